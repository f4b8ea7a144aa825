"""
title: The oscillators are drawn in the default dtype while the matrix follows the caller's float64
expect: collision
thread: https://github.com/bqth29/simulated-bifurcation-algorithm/issues/36
fix_at: the line of the momentum; the dtype=torch.float64 of the caller (or set_default_dtype there)

Expectation, written first: minimize casts the quadratic form to the requested float64. The symplectic
integrator draws positions and momenta with torch.rand in the default float32 because the dtype is not
handed to it, so the matrix product of Double and Float raises.
"""
import torch


class SymplecticIntegrator:
    def __init__(self, shape, ballistic, device):
        self.position = 2 * torch.rand(shape, device=device) - 1  # BORN
        self.momentum = 2 * torch.rand(shape, device=device) - 1
        self.activation = torch.nn.Identity() if ballistic else torch.sign

    def position_update(self, coefficient):
        self.position += coefficient * self.momentum

    def momentum_update(self, coefficient):
        self.momentum += coefficient * self.position

    def quadratic_momentum_update(self, coefficient, matrix):
        self.momentum += coefficient * (matrix @ self.activation(self.position))  # BORN COLLIDES

    def simulate_inelastic_walls(self):
        self.momentum[self.position.abs() > 1.0] = 0
        self.position.clamp_(-1.0, 1.0)


class Ising:
    def __init__(self, J, h, dtype=torch.float32, device="cpu"):
        self.J = J.to(dtype=dtype, device=device)
        self.h = h.to(dtype=dtype, device=device)
        self.dtype, self.device = dtype, device

    def as_simulated_bifurcation_tensor(self):
        n = len(self.h)
        sb = torch.zeros(n + 1, n + 1, dtype=self.dtype, device=self.device)
        sb[:n, :n] = self.J
        sb[:n, n] = sb[n, :n] = -self.h
        return sb

    def energy(self, spins):
        return -0.5 * torch.einsum("na,nm,ma->a", spins, self.J, spins) + self.h @ spins


class SimulatedBifurcationOptimizer:
    def __init__(self, agents, max_steps, ballistic, time_step=0.1):
        self.agents, self.max_steps = agents, max_steps
        self.ballistic, self.time_step = ballistic, time_step

    def run_integrator(self, model):
        matrix = model.as_simulated_bifurcation_tensor()
        scale = 0.5 * (len(matrix) - 1) ** 0.5 / matrix.square().sum().sqrt().item()
        integrator = SymplecticIntegrator(  # BORN
            (len(matrix), self.agents), self.ballistic, model.device)
        for step in range(self.max_steps):
            pressure = min(self.time_step * step * 0.01, 1.0)
            integrator.momentum_update(self.time_step * (pressure - 1.0))
            integrator.position_update(self.time_step)
            integrator.quadratic_momentum_update(self.time_step * scale, matrix)
            integrator.simulate_inelastic_walls()
        spins = torch.where(integrator.position >= 0, 1.0, -1.0).to(model.dtype)
        return spins[:-1] * spins[-1]


def minimize(matrix, vector, dtype=torch.float32, agents=16, max_steps=200, ballistic=False):
    model = Ising(-0.5 * matrix, 0.5 * vector, dtype=dtype)
    spins = SimulatedBifurcationOptimizer(agents, max_steps, ballistic).run_integrator(model)
    energies = model.energy(spins)
    return spins[:, energies.argmin()], energies.min()


def main():
    torch.manual_seed(15)
    q = torch.randint(-5, 6, (12, 12)).float()
    q, v = (q + q.T).fill_diagonal_(0), torch.randint(-3, 4, (12,)).float()
    print("float32", minimize(q, v)[1].item())
    print("float64", minimize(q, v, dtype=torch.float64)[1].item())


if __name__ == "__main__":
    main()
