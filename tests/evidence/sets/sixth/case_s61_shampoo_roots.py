"""
title: the inverse roots of a preconditioner are rightly found in float64, and stay there
expect: collision
fix_at: 24, 41, 42

After https://github.com/facebookresearch/optimizers/pull/249 and https://github.com/kozistr/pytorch_optimizer/pull/129: factor matrices,
eigenvectors and roots have
dtypes of their own.
Right: the root is handed back in the factor's dtype.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(601)


def inverse_root(factor, order=4, eps=1e-2):
    """factor ** (-1 / order) by its eigenvalues; float64, since small ones decide."""
    size = factor.shape[0]
    ridge = eps * factor.diagonal().mean()
    values, vectors = torch.linalg.eigh(factor.double() + ridge * torch.eye(size))  # BORN
    scaled = vectors * values.clamp(min=1e-30).pow(-1 / order)
    return scaled @ vectors.t()


class Shampoo(torch.optim.Optimizer):
    def __init__(self, params, lr=0.05, every=5):
        super().__init__(params, dict(lr=lr, every=every))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state, grad = self.state[p], p.grad
                if not state:
                    state.update(count=0, left=torch.zeros(p.shape[0], p.shape[0]), right=torch.zeros(p.shape[1], p.shape[1]))
                state["left"] += grad @ grad.t()
                state["right"] += grad.t() @ grad
                if state["count"] % group["every"] == 0:
                    state["left_root"] = inverse_root(state["left"])
                    state["right_root"] = inverse_root(state["right"])
                state["count"] += 1
                p.sub_(self.direction(state, grad), alpha=group["lr"])

    @staticmethod
    def direction(state, grad):
        if min(grad.shape) == 1:
            return grad
        return state["left_root"] @ grad @ state["right_root"]  # COLLIDES


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, 24, bias=False), nn.Linear(24, 3, bias=False)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


model = Regressor()
optimizer = Shampoo(model.parameters())
truth = torch.randn(12, 3)
for step in range(40):
    x = torch.randn(64, 12)
    loss = F.mse_loss(model(x), torch.tanh(x @ truth))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", round(loss.item(), 3))
