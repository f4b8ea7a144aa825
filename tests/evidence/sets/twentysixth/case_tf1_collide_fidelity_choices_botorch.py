"""
title: Discrete choices from a NumPy meshgrid are double, the GP was fitted in float
expect: collision
thread: https://github.com/meta-pytorch/botorch/issues/942
fix_at: (none beside the marked)

Expectation, written first: train_X is float32, hence kernel matrix and Cholesky factor too. The discrete choices come from
np.meshgrid in float64 and torch.tensor keeps that; the cross covariance becomes double and meets the float32 factors
in the posterior, which raises.
"""
import numpy as np
import torch


class SingleTaskGP:
    def __init__(self, train_X, train_Y, lengthscale=0.4, noise=1e-2):
        self.train_X = train_X
        self.lengthscale, self.noise = lengthscale, noise
        self.mean, self.std = train_Y.mean(), train_Y.std()
        self.train_Y = (train_Y - self.mean) / self.std
        K = self.kernel(train_X, train_X)
        self.L = torch.linalg.cholesky(K + noise * torch.eye(len(train_X)))
        self.alpha = torch.cholesky_solve(self.train_Y, self.L)

    def kernel(self, a, b):
        d2 = ((a.unsqueeze(-2) - b.unsqueeze(-3)) / self.lengthscale).square().sum(-1)
        return torch.exp(-0.5 * d2)

    def posterior(self, X):
        K_star = self.kernel(self.train_X, X)  # BORN
        v = torch.linalg.solve_triangular(self.L, K_star, upper=False)
        mean = K_star.T @ self.alpha  # COLLIDES
        var = (1.0 - v.square().sum(0)).clamp_min(1e-9)
        return mean.squeeze(-1) * self.std + self.mean, var.sqrt() * self.std


class ExpectedImprovement:
    def __init__(self, model, best_f):
        self.model, self.best_f = model, best_f
        self.normal = torch.distributions.Normal(0.0, 1.0)

    def __call__(self, X):
        mean, sigma = self.model.posterior(X)
        u = (mean - self.best_f) / sigma
        return sigma * (self.normal.log_prob(u).exp() + u * self.normal.cdf(u))


def optimize_acqf_discrete(acq_function, q, choices, max_batch_size=16):
    candidates = []
    for _ in range(q):
        values = torch.cat([acq_function(chunk) for chunk in choices.split(max_batch_size)])  # BORN
        best = values.argmax()
        candidates.append(choices[best])
        choices = torch.cat([choices[:best], choices[best + 1:]])
    return torch.stack(candidates)


def meshgrid_discrete_fidelities(fidelities, num=5):
    axes = [np.linspace(0.0, 1.0, num), np.linspace(0.0, 1.0, num), np.asarray(fidelities)]  # BORN
    return np.stack([g.ravel() for g in np.meshgrid(*axes)], axis=1)  # BORN


def problem(X):
    x, y, fid = X.unbind(-1)
    return (torch.sin(3 * x) * torch.cos(2 * y) + 0.1 * fid - (1 - fid) * 0.3 * x).unsqueeze(-1)


def main():
    torch.manual_seed(942)
    fidelities = [0.5, 0.75, 1.0]
    train_X = torch.rand(12, 3)  # BORN
    train_X[:, 2] = torch.tensor(fidelities)[torch.randint(0, 3, (12,))]
    train_Y = problem(train_X)
    model = SingleTaskGP(train_X, train_Y)
    ei = ExpectedImprovement(model, train_Y.max())
    choices = torch.tensor(meshgrid_discrete_fidelities(fidelities))  # BORN
    candidates = optimize_acqf_discrete(ei, q=2, choices=choices)  # BORN
    print("candidates", candidates.tolist(), "value", round(problem(candidates).max().item(), 2))


if __name__ == "__main__":
    main()
