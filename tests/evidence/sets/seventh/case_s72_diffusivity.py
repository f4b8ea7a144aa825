"""
title: Diffusion coefficient from second differences on a float32 collocation grid
expect: silent:precision-loss|downcast|cancellation|round-trip
thread: https://github.com/SciML/NeuralPDE.jl/issues/931
measured: estimated D = 0.0068 (true 0.1000), residual = 0.6307
widened: estimated D = 0.1000 (true 0.1000), residual = 0.0000

Expectation, written first.  The inverse problem takes u_xx by a central second
difference with h = 5e-5.  On float32 points u has seven digits and the division
by h^2 = 2.5e-9 leaves an error larger than u_xx itself; least squares on a
noise-filled regressor shrinks the coefficient towards zero.  BORN is the
linspace that makes the collocation points with the default dtype; in float64
the coefficient is recovered.
"""
import math

import torch

torch.manual_seed(0)
TRUE_D = 0.10


class HeatField:
    """Surrogate of the measured field; evaluates in the dtype of its arguments."""

    def __init__(self, modes=((1, 1.0), (2, 0.4))):
        self.modes = modes

    def __call__(self, x, t):
        u = torch.zeros_like(x)
        for k, amplitude in self.modes:
            u = u + amplitude * torch.exp(-TRUE_D * (k * math.pi) ** 2 * t) * torch.sin(k * math.pi * x)
        return u


class InverseProblem:
    def __init__(self, field, n_points=400, h=5e-5, dt=1e-3):
        self.field, self.h, self.dt = field, h, dt
        self.x = torch.linspace(0.05, 0.95, n_points)  # BORN
        self.t = torch.full_like(self.x, 0.3)

    def u_xx(self):
        x, t, h = self.x, self.t, self.h
        return (self.field(x + h, t) - 2 * self.field(x, t) + self.field(x - h, t)) / h ** 2

    def u_t(self):
        x, t, dt = self.x, self.t, self.dt
        return (self.field(x, t + dt) - self.field(x, t - dt)) / (2 * dt)

    def solve(self):
        a, b = self.u_xx(), self.u_t()
        d = (a @ b) / (a @ a)
        residual = (b - d * a).pow(2).mean().sqrt()
        return d.item(), residual.item()


def main():
    d, residual = InverseProblem(HeatField()).solve()
    print(f"estimated D = {d:.4f} (true {TRUE_D:.4f}), residual = {residual:.4f}")


if __name__ == "__main__":
    main()
