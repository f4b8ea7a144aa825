"""
title: the first SOAP step of a bf16 model stops in the lerp of the Kronecker factor
expect: collision
thread: https://github.com/HomebrewML/HeavyBall/issues/2

Expectation, written first: the factors GG are allocated without a dtype, so in float32, while the gradient of a bf16 model and with it the
outer product are bf16. `lerp_` takes no mixed pair and raises. Computing the outer product in float32 (or casting at the lerp, or taking the
gradient in float32) repairs it; GG in bf16 would run as well but is the poorer choice.
"""
import torch
import torch.nn as nn
from torch.optim import Optimizer


class SOAP(Optimizer):
    def __init__(self, params, lr=3e-3, betas=(0.9, 0.95), shampoo_beta=0.95, eps=1e-8, freq=2):
        super().__init__(params, dict(lr=lr, betas=betas, shampoo_beta=shampoo_beta, eps=eps, freq=freq))

    def init_preconditioner(self, grad, state):
        state["GG"], state["Q"] = [], None
        for size in grad.shape:
            state["GG"].append(torch.zeros(size, size, device=grad.device))  # BORN

    def update_preconditioner(self, grad, state, beta):
        for idx in range(grad.dim()):
            dims = [d for d in range(grad.dim()) if d != idx]
            outer_product = torch.tensordot(grad, grad, dims=[dims, dims])  # BORN
            state["GG"][idx].lerp_(outer_product, 1 - beta)  # BORN COLLIDES

    def eigenbases(self, state):
        return [torch.linalg.eigh(gg.double() + 1e-30 * torch.eye(gg.shape[0], dtype=torch.float64))[1].float() for gg in state["GG"]]

    def project(self, tensor, bases, back=False):
        for q in bases:
            tensor = torch.tensordot(tensor, q, dims=[[0], [1 if back else 0]])
        return tensor

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                grad = p.grad  # BORN
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p, dtype=torch.float32)
                    state["exp_avg_sq"] = torch.zeros_like(p, dtype=torch.float32)
                    self.init_preconditioner(grad, state)
                state["step"] += 1
                self.update_preconditioner(grad, state, group["shampoo_beta"])
                if state["Q"] is None or state["step"] % group["freq"] == 0:
                    state["Q"] = self.eigenbases(state)
                projected = self.project(grad.float(), state["Q"])
                state["exp_avg"].mul_(b1).add_(projected, alpha=1 - b1)
                state["exp_avg_sq"].mul_(b2).addcmul_(projected, projected, value=1 - b2)
                direction = self.project(state["exp_avg"] / (state["exp_avg_sq"].sqrt() + group["eps"]), state["Q"], back=True)
                p.add_(direction.to(p.dtype), alpha=-group["lr"])


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 16, bias=False), nn.GELU(), nn.Linear(16, 4, bias=False)).to(torch.bfloat16)
    opt = SOAP(model.parameters())
    x, y = torch.randn(32, 12, dtype=torch.bfloat16), torch.randn(32, 4, dtype=torch.bfloat16)
    for step in range(4):
        opt.zero_grad()
        loss = (model(x) - y).float().pow(2).mean()
        loss.backward()
        opt.step()
        print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
