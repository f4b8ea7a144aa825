"""
title: neural Lyapunov control: counterexamples drawn with numpy turn the training set into float64
expect: collision
thread: https://github.com/YaChienChang/Neural-Lyapunov-Control/issues/4
fix_at: 81

Expectation, written first: training starts on float32 samples. When the falsifier finds a counterexample, points near it are drawn with numpy, wrapped
in torch.tensor (float64) and concatenated to the samples, and the concatenation promotes everything to float64. The next pass through the float32
network dies. The counterexamples must be made float32.
"""
import numpy as np
import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self, n_input, n_hidden, n_output, lqr):
        super().__init__()
        self.layer1 = nn.Linear(n_input, n_hidden)
        self.layer2 = nn.Linear(n_hidden, n_output)
        self.control = nn.Linear(n_input, 1, bias=False)
        self.control.weight = nn.Parameter(lqr)

    def forward(self, x):
        h_1 = torch.tanh(self.layer1(x))  # COLLIDES
        return torch.tanh(self.layer2(h_1)), self.control(x)


def f_value(x, u, g=9.81, length=0.5, m=0.15, b=0.1):
    theta, omega = x[:, 0], x[:, 1]
    domega = (m * g * length * torch.sin(theta) - b * omega + u[:, 0]) / (m * length**2)
    return torch.stack([omega, domega], dim=1)


def lie_derivative(model, x, f):
    w1, b1 = model.layer1.weight, model.layer1.bias
    w2, b2 = model.layer2.weight, model.layer2.bias
    z1 = torch.tanh(x @ w1.t() + b1)
    z2 = torch.tanh(z1 @ w2.t() + b2)
    grad = ((1 - z2**2) @ w2 * (1 - z1**2)) @ w1
    return (grad * f).sum(dim=1)


def check_lyapunov(model, ball_lb, ball_ub, rng):
    for _ in range(200):
        p = rng.uniform(-ball_ub, ball_ub, size=2)
        if not ball_lb <= np.hypot(*p) <= ball_ub:
            continue
        point = torch.tensor([p.tolist()])
        with torch.no_grad():
            v, u = model(point)
            l_v = lie_derivative(model, point, f_value(point, u))
        if v.item() <= 0 or l_v.item() >= 0:
            return [(c - 1e-3, c + 1e-3) for c in p]
    return None


def add_counterexamples(x, ce, n, rng):
    nearby = np.stack([rng.uniform(lb, ub, size=n) for lb, ub in ce], axis=1)  # BORN
    return torch.cat((x, torch.tensor(nearby)), dim=0)  # BORN


def learn(max_iters=6, check_every=2):
    torch.manual_seed(10)
    rng = np.random.default_rng(10)
    x = torch.empty(100, 2).uniform_(-6, 6)
    x_0 = torch.zeros(1, 2)
    model = Net(2, 6, 1, torch.tensor([[-23.58, -5.31]]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for i in range(max_iters):
        v, u = model(x)
        l_v = lie_derivative(model, x, f_value(x, u))
        risk = (torch.relu(-v) + 1.5 * torch.relu(l_v[:, None] + 0.5)).mean() + model(x_0)[0].pow(2).sum()
        print(i, "Lyapunov Risk=", risk.item())
        optimizer.zero_grad()
        risk.backward()
        optimizer.step()
        if i % check_every == 0:
            ce = check_lyapunov(model, 0.5, 6, rng)
            if ce is not None:
                x = add_counterexamples(x, ce, 20, rng)


if __name__ == "__main__":
    learn()
