"""
title: the kernel matrix of a Gaussian process gets a float64 jitter, the targets are float32
expect: collision
fix_at: 40, 45

After https://github.com/GPflow/GPflow/issues/189 (the factorisation in float64, the rest in float32).
Right: build the jitter in the kernel's dtype, or take the whole solve to float64 and back.
"""
import torch
from torch import nn

torch.manual_seed(13)


class RBF(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(0.0))
        self.log_amplitude = nn.Parameter(torch.tensor(0.0))

    def forward(self, a, b):
        distance = (a[:, None] - b[None]).square().sum(-1)
        return self.log_amplitude.exp() * torch.exp(-0.5 * distance / self.log_scale.exp().square())


def jitter(n, size=1e-6):
    return size * torch.eye(n, dtype=torch.float64)  # BORN


class GP(nn.Module):
    def __init__(self, x, y):
        super().__init__()
        self.kernel = RBF()
        self.log_noise = nn.Parameter(torch.tensor(-2.0))
        self.x, self.y = x, y

    def factor(self):
        n = len(self.x)
        covariance = self.kernel(self.x, self.x) + self.log_noise.exp() * torch.eye(n)
        covariance = covariance + jitter(n)
        return torch.linalg.cholesky(covariance)

    def negative_log_likelihood(self):
        L = self.factor()
        residual = (self.y - self.y.mean())[:, None]
        alpha = torch.cholesky_solve(residual, L)  # COLLIDES
        return 0.5 * (residual * alpha).sum() + L.diagonal().log().sum()

    @torch.no_grad()
    def predict(self, new):
        L = self.factor()
        alpha = torch.cholesky_solve((self.y - self.y.mean())[:, None], L)
        return (self.kernel(new, self.x) @ alpha)[:, 0] + self.y.mean()


x = torch.linspace(-3, 3, 24)[:, None]
y = torch.sin(2 * x[:, 0]) + 0.1 * torch.randn(24)
model = GP(x, y)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
for step in range(8):
    loss = model.negative_log_likelihood()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("nll", round(loss.item(), 3), "error", round((model.predict(x) - y).abs().mean().item(), 3))
