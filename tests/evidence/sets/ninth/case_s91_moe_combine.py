"""
title: token-choice MoE combines its experts with index_add_ inside a bf16 autocast region
expect: collision
thread: https://github.com/pytorch/pytorch/issues/51730
fix_at: 46

Expectation, written first: the combine buffer is allocated like the normalised
residual, which is float32, while every expert output leaves its Linear in bfloat16
because of the autocast region; index_add_ refuses the pair. Allocating the buffer
in the dtype of autocast or casting the expert output are both right.
"""
import torch
from torch import nn


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.w2(torch.nn.functional.silu(self.w1(x)))


class SparseMoE(nn.Module):
    def __init__(self, dim=32, hidden=64, n_experts=4, top_k=2):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.router = nn.Linear(dim, n_experts, bias=False)
        self.experts = nn.ModuleList(Expert(dim, hidden) for _ in range(n_experts))
        self.top_k = top_k

    def forward(self, x):
        h = self.norm(x).reshape(-1, x.shape[-1])
        probs = self.router(h).float().softmax(-1)
        weights, picks = probs.topk(self.top_k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        combined = torch.zeros(h.shape[0], h.shape[1])  # BORN
        for idx, expert in enumerate(self.experts):
            rows, slot = (picks == idx).nonzero(as_tuple=True)
            if rows.numel() == 0:
                continue
            y = expert(h[rows])
            y = y * weights[rows, slot, None].to(y.dtype)
            combined.index_add_(0, rows, y)  # COLLIDES
        return x + combined.reshape(x.shape)


def main():
    torch.manual_seed(0)
    block = SparseMoE()
    opt = torch.optim.AdamW(block.parameters(), lr=1e-3)
    for step in range(3):
        batch = torch.randn(2, 16, 32)
        with torch.autocast("cpu", dtype=torch.bfloat16):  # BORN
            out = block(batch)
            loss = (out.float() - batch.roll(1, 1)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
