"""
title: A SOAP-like optimizer keeps its preconditioner in the parameter's bfloat16 and cannot take its QR
expect: collision
thread: https://github.com/HomebrewML/HeavyBall/issues/57

Expectation, written first.  The model is bfloat16 on purpose.  The optimizer
allocates the running second-moment matrix with the dtype of the parameter;
the power iteration then asks for torch.linalg.qr of a bfloat16 matrix, for
which there is no kernel.  BORN is the allocation of the preconditioner:
in float32 the statistic accumulates properly, QR works and the basis is cast
back to the gradient's dtype a line later.
"""
import torch
from torch import nn

torch.manual_seed(0)


class MiniSOAP(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-2, beta=0.95, refresh=4):
        super().__init__(params, dict(lr=lr, beta=beta, refresh=refresh))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None or p.ndim != 2:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["gg"] = torch.zeros(p.size(0), p.size(0), dtype=p.dtype)  # BORN
                    state["basis"] = torch.eye(p.size(0), dtype=p.dtype)
                    state["second"] = torch.zeros_like(p, dtype=torch.float32)
                state["step"] += 1
                g = p.grad
                state["gg"].mul_(group["beta"]).add_(g @ g.T, alpha=1 - group["beta"])
                if state["step"] % group["refresh"] == 0:
                    state["basis"] = self.power_iteration(state["gg"], state["basis"])
                projected = state["basis"].T @ g
                state["second"].mul_(0.99).addcmul_(projected.float(), projected.float(), value=0.01)
                direction = projected / (state["second"].sqrt() + 1e-8).to(g.dtype)
                p.add_(state["basis"] @ direction, alpha=-group["lr"])

    def power_iteration(self, gg, basis):
        q, _ = torch.linalg.qr(gg @ basis.to(gg.dtype))  # COLLIDES
        return q.to(basis.dtype)


def main():
    model = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 3)).to(torch.bfloat16)
    opt = MiniSOAP([p for p in model.parameters() if p.ndim == 2])
    x = torch.randn(64, 12, dtype=torch.bfloat16)
    y = torch.randint(0, 3, (64,))
    for _ in range(12):
        loss = nn.functional.cross_entropy(model(x).float(), y)
        model.zero_grad()
        loss.backward()
        opt.step()
    print(f"final loss = {loss.item():.4f}")


if __name__ == "__main__":
    main()
