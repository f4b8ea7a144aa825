"""
title: Adagrad's sums of squares are bfloat16 to save memory, they stop growing and the steps stop shrinking
expect: silent:lost-update|precision-loss|downcast
fix_at: 19

After https://github.com/PersiaML/PERSIA/issues/91, https://github.com/google-deepmind/optax/issues/1552 and https://github.com/PaddlePaddle/Paddle/pull/50078.
Right: the sums are float32.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(703)


class RowAdagrad(torch.optim.Optimizer):
    """One sum for each row, as for embedding tables."""

    def __init__(self, params, lr=0.1, eps=1e-8, state_dtype=torch.bfloat16):
        super().__init__(params, dict(lr=lr, eps=eps))
        self.state_dtype = state_dtype

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["sum"] = torch.zeros(p.shape[0], 1, dtype=self.state_dtype)  # BORN
                    state["exact"] = torch.zeros(p.shape[0], 1, dtype=torch.float64)
                square = p.grad.square().mean(1, keepdim=True)
                state["sum"].add_(square)
                state["exact"].add_(square)
                p.addcdiv_(p.grad, state["sum"].float().sqrt().add_(group["eps"]), value=-group["lr"])


class Clicks:
    """Impressions, a few at a time, and which of six buttons were clicked."""

    def __init__(self, features=12, buttons=6):
        self.truth = torch.randn(buttons, features)

    def batch(self, count=16):
        x = torch.randn(count, self.truth.shape[1])
        return x, (torch.rand(count, len(self.truth)) < torch.sigmoid(x @ self.truth.t())).float()


clicks, model = Clicks(), nn.Linear(12, 6, bias=False)
optimizer = RowAdagrad(model.parameters(), lr=1.0)
for step in range(2500):
    x, click = clicks.batch()
    loss = F.binary_cross_entropy_with_logits(model(x), click)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
state = optimizer.state[model.weight]
error = (model.weight.detach() - clicks.truth).square().mean().sqrt().item()
print("sums kept", round((state["sum"].double().sum() / state["exact"].sum()).item(), 3), "error of the weights", round(error, 3))
