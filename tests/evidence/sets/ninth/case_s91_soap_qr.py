"""
title: SOAP-like optimizer keeps its preconditioner in the parameter dtype and refreshes it with QR
expect: collision
thread: https://github.com/HomebrewML/HeavyBall/issues/57
fix_at: 22

Expectation, written first: parameters are bf16, the statistics are created like the
gradient, and qr has no bf16 kernel. Birth: the model's bf16 cast or the statistics
created like the gradient; a cast around the factorisation is as right.
"""
import torch
from torch import nn


class MiniSOAP(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-2, beta=0.95, every=2):
        super().__init__(params, dict(lr=lr, beta=beta, every=every))

    @staticmethod
    def refresh(stat, basis):
        prod = stat @ basis
        q, _ = torch.linalg.qr(prod)  # COLLIDES
        return q.to(basis.dtype)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None or p.dim() != 2:
                    continue
                g, st = p.grad, self.state[p]
                if not st:
                    st["n"] = 0
                    st["L"] = torch.zeros(g.shape[0], g.shape[0], dtype=g.dtype)  # BORN
                    st["Q"] = torch.eye(g.shape[0], dtype=st["L"].dtype)
                    st["v"] = torch.zeros_like(g, dtype=torch.float32)
                st["n"] += 1
                outer = (g @ g.T).to(st["L"].dtype)
                st["L"].mul_(group["beta"]).add_(outer, alpha=1 - group["beta"])
                if st["n"] % group["every"] == 0:
                    st["Q"] = self.refresh(st["L"], st["Q"])
                rot = st["Q"].float().T @ g.float()
                st["v"].mul_(group["beta"]).add_(rot.square(), alpha=1 - group["beta"])
                upd = st["Q"].float() @ (rot / (st["v"].sqrt() + 1e-8))
                p.add_(upd.to(p.dtype), alpha=-group["lr"])


def make_model():
    return nn.Sequential(nn.Linear(8, 16, bias=False), nn.Tanh(), nn.Linear(16, 2, bias=False))


def main():
    torch.manual_seed(1)
    model = make_model().to(torch.bfloat16)  # BORN
    opt = MiniSOAP(model.parameters())
    w = next(model.parameters())
    for step in range(4):
        x = torch.randn(32, 8)
        target = torch.stack([x.sum(1), x[:, 0] - x[:, 1]], 1)
        loss = (model(x.to(w.dtype)).float() - target).pow(2).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        print(step, round(loss.item(), 4))


main()
