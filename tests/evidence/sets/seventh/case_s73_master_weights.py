"""
title: bfloat16 model with float32 master weights
expect: clean
thread: https://github.com/NVIDIA-NeMo/Automodel/pull/2248

Expectation, written first.  Nothing is wrong.  The network that computes is
bfloat16, but the optimizer owns float32 copies of the parameters; gradients
are upcast into them, the update is made in float32 and only the result is
rounded into the bfloat16 weights.  Small updates are not lost: they gather in
the masters.
"""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class MasterOptimizer:
    def __init__(self, model, lr):
        self.live = [p for p in model.parameters() if p.requires_grad]
        self.master = [p.detach().float().clone().requires_grad_(True) for p in self.live]
        self.inner = torch.optim.AdamW(self.master, lr=lr, weight_decay=0.0)

    def step(self):
        for master, live in zip(self.master, self.live):
            master.grad = None if live.grad is None else live.grad.float()
        self.inner.step()
        with torch.no_grad():
            for master, live in zip(self.master, self.live):
                live.copy_(master)

    def zero_grad(self):
        for live in self.live:
            live.grad = None

    def state_dict(self):
        return {"master": [m.detach() for m in self.master], "inner": self.inner.state_dict()}


def main(steps=150):
    model = nn.Sequential(nn.Linear(8, 48), nn.SiLU(), nn.Linear(48, 1)).to(torch.bfloat16)
    optimizer = MasterOptimizer(model, lr=1e-3)
    w = torch.randn(8, 1)
    first = None
    for _ in range(steps):
        x = torch.randn(64, 8)
        y = torch.tanh(x @ w)
        prediction = model(x.to(torch.bfloat16)).float()
        loss = nn.functional.mse_loss(prediction, y)
        first = first or loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    drift = max((m - p.float()).abs().max().item() for m, p in zip(optimizer.master, optimizer.live))
    print(f"loss {first:.4f} -> {loss.item():.4f}, largest master-live gap {drift:.5f}")
    assert all(t.dtype is torch.float32 for t in optimizer.state_dict()["master"])


if __name__ == "__main__":
    main()
