"""
title: matching two clouds of points with entropic transport
expect: silent:underflow|downcast|precision-loss
thread: https://github.com/jeanfeydy/geomloss/issues/60
measured: gap 0.2: mass 1.000, cost 0.067 / gap 1.0: mass nan, cost nan / gap 1.2: mass nan, cost nan
widened: gap 0.2: mass 1.000, cost 0.067 / gap 1.0: mass 1.000, cost 1.024 / gap 1.2: mass 1.000, cost 1.463

Expectation, written first: the kernel exp(-cost/eps) of a well separated pair of
clouds is about 1e-9, which is zero in float16; the scaling divides by zero and the plan is nan.
BORN is the cast of the cost to half; float32 gives a plan with the right mass.
"""
import torch


class Clouds:
    def __init__(self, n, gap, seed):
        gen = torch.Generator().manual_seed(seed)
        self.x = 0.1 * torch.randn(n, 2, generator=gen)
        self.y = 0.1 * torch.randn(n, 2, generator=gen) + torch.tensor([gap, 0.0])

    def cost(self):
        return (self.x[:, None] - self.y[None]).square().sum(-1)


class Sinkhorn:
    def __init__(self, eps, rounds):
        self.eps, self.rounds = eps, rounds

    def plan(self, cost):
        n, m = cost.shape
        kernel = torch.exp(-cost / self.eps)
        a = torch.full((n,), 1.0 / n, dtype=cost.dtype)
        b = torch.full((m,), 1.0 / m, dtype=cost.dtype)
        v = torch.ones_like(b)
        for _ in range(self.rounds):
            u = a / (kernel @ v)
            v = b / (kernel.t() @ u)
        return u[:, None] * kernel * v[None, :]


def transport(clouds, solver):
    cost = clouds.cost()
    plan = solver.plan(cost.to(torch.float16)).float()  # BORN
    return plan.sum().item(), (plan * cost).sum().item()


def main():
    for gap in (0.2, 1.0, 1.2):
        mass, value = transport(Clouds(40, gap, seed=0), Sinkhorn(eps=0.06, rounds=60))
        print("gap %.1f: mass %.3f, cost %.3f" % (gap, mass, value))


if __name__ == "__main__":
    main()
