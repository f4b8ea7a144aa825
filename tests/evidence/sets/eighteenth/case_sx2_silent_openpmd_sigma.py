"""
title: kernel upsampling: the spread added along the beam axis is rounding noise, five times too wide
expect: silent:cancellation|precision-loss
thread: https://github.com/berceanu/openPMD-resampler/pull/3
measured: spread added by the kernel, in units of the bunch's: x 0.1002, z 0.5117, pz 0.0993
widened: spread added by the kernel, in units of the bunch's: x 0.1002, z 0.1005, pz 0.0996
innocent: spread added by the kernel, in units of the bunch's: x 0.1002, z 0.5117, pz 0.0993
suspect: line 37 harmless (a random kick with three good digits is as random)

Expectation, written first: the variance of a cell is E[x^2] - E[x]^2 in float32. A centimetre of offset against a spread
of a micrometre leaves only rounding errors of it, zero or far too much, and the daughters are spread by that along z.
Drawing the kicks in float16 looks careless but is harmless.
"""
import torch


class KernelUpsampler:
    def __init__(self, factor=4, bandwidth=0.1):
        self.factor = factor
        self.bandwidth = bandwidth

    def cell_sigma(self, phase, weight, cell_key, number_of_cells):
        phase = phase.float()
        weight = weight.to(phase.dtype)
        zeros = lambda *shape: torch.zeros(*shape, dtype=phase.dtype)
        cell_weight = zeros(number_of_cells).index_add_(0, cell_key, weight)
        cell_sum = zeros(number_of_cells, phase.shape[1]).index_add_(0, cell_key, weight[:, None] * phase)
        cell_sum_sq = zeros(number_of_cells, phase.shape[1]).index_add_(0, cell_key, weight[:, None] * phase**2)  # BORN
        inverse_weight = 1.0 / cell_weight
        mean = cell_sum * inverse_weight[:, None]
        variance = (cell_sum_sq * inverse_weight[:, None] - mean**2).clamp_min(0.0)  # BORN
        return torch.sqrt(variance).float()

    def __call__(self, phase, weight, cell_key, number_of_cells):
        sigma = self.cell_sigma(phase, weight, cell_key, number_of_cells)
        parent = torch.arange(phase.shape[0]).repeat_interleave(self.factor)
        kick = torch.randn(len(parent), phase.shape[1]).to(dtype=torch.float16).float()
        daughters = phase[parent] + self.bandwidth * sigma[cell_key[parent]] * kick
        return daughters, weight[parent] / self.factor, parent


def make_bunch(n=8000):
    position_x = torch.randn(n, dtype=torch.float64) * 2e-6
    position_z = 1e-2 + torch.randn(n, dtype=torch.float64) * 1e-6
    momentum_z = 2000.0 + torch.randn(n, dtype=torch.float64) * 10.0
    return torch.stack([position_x, position_z, momentum_z], dim=1).float()


def report(names, phase, daughters, parent):
    columns = []
    spread = phase.double().std(0)
    added = (daughters.double() - phase.double()[parent]).std(0)
    for i, name in enumerate(names):
        columns.append(f"{name} {added[i] / spread[i]:.4f}")
    return ", ".join(columns)


def main():
    torch.manual_seed(0)
    phase = make_bunch()
    weight = torch.rand(len(phase)) + 0.5
    cell_key = torch.randint(0, 4, (len(phase),))
    daughters, weights, parent = KernelUpsampler()(phase, weight, cell_key, 4)
    print("spread added by the kernel, in units of the bunch's:", report(["x", "z", "pz"], phase, daughters, parent))


main()
