"""
title: discounted returns of a card game with whole points
expect: silent:downcast|precision-loss
thread: https://github.com/numpy/numpy/issues/16578
measured: mean return 0.318, spread of the advantage 0.286
widened: mean return 2.691, spread of the advantage 2.003

Expectation, written first: the points of the game are integers and the returns are
made like them, so every discounted sum is cut to a whole number while it runs. BORN is the
zeros_like; a float dtype there mends it. The half baseline only rounds by a thousandth.
"""
import torch
from torch import nn


class CardGame:
    def __init__(self, rounds, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.rounds = rounds

    def play(self):
        hands = torch.randn(self.rounds, 3, generator=self.gen)
        points = (hands.sum(1) > 0.8).long()
        return hands, points


class Returns:
    def __init__(self, gamma):
        self.gamma = gamma

    def __call__(self, points):
        out = torch.zeros_like(points)  # BORN
        running = 0.0
        for t in range(len(points) - 1, -1, -1):
            running = points[t] + self.gamma * running
            out[t] = running
            running = out[t]
        return out


class Baseline(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 1)

    def forward(self, hands):
        return self.net(hands)[:, 0].half().float()

    def raw(self, hands):
        return self.net(hands)[:, 0]


def main():
    torch.manual_seed(0)
    game, returns, baseline = CardGame(60, seed=0), Returns(0.9), Baseline()
    opt = torch.optim.Adam(baseline.parameters(), 2e-2)
    means = []
    for _ in range(150):
        hands, points = game.play()
        goal = returns(points).float()
        means.append(goal.mean().item())
        loss = nn.functional.mse_loss(baseline.raw(hands), goal)
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        advantage = (goal - baseline(hands)).std().item()
    print("mean return %.3f, spread of the advantage %.3f" % (sum(means) / len(means), advantage))


if __name__ == "__main__":
    main()
