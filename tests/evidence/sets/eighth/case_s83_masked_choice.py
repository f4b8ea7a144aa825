"""
title: choosing among legal moves with a half-precision policy
expect: clean
thread: https://github.com/KevinMusgrave/pytorch-metric-learning/issues/121

Expectation, written first: illegal moves get the most negative half number (or minus
infinity), which looks like an overflow, but their probability is exactly zero after the softmax
and legal moves are untouched. Float32 gives the same choices.
"""
import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, cells=9, width=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(cells, width), nn.ReLU(), nn.Linear(width, cells))

    def forward(self, board):
        return self.net(board)


class Chooser:
    def __init__(self, policy, dtype):
        self.policy, self.dtype = policy.to(dtype).eval(), dtype

    @torch.no_grad()
    def __call__(self, board):
        logits = self.policy(board.to(self.dtype)[None])[0]
        legal = board == 0
        logits = logits.masked_fill(~legal, float("-inf"))
        floor = torch.full_like(logits, torch.finfo(self.dtype).min)
        logits = torch.maximum(logits, floor)
        prob = torch.softmax(logits.float(), 0)
        return int(prob.argmax()), prob[~legal].sum().item()


def play(chooser):
    board, side, moves, leak = torch.zeros(9), 1.0, [], 0.0
    for _ in range(9):
        move, wrong = chooser(board * side)
        board[move] = side
        moves.append(move)
        leak = max(leak, wrong)
        side = -side
    return moves, leak


def main():
    torch.manual_seed(3)
    dtype = torch.float16
    moves, leak = play(Chooser(Policy(), dtype))
    print("moves", moves, "probability on illegal moves %.1f" % leak)


if __name__ == "__main__":
    main()
