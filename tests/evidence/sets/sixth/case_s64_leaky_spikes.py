"""
title: the leak of spiking neurons is bfloat16 and is one; the spikes themselves may be bfloat16
expect: silent:precision-loss|downcast
"""
import torch

torch.manual_seed(915)


class Layer:
    """Potentials leak by a few thousandths a step and collect weighted spikes."""

    def __init__(self, inner=20, outer=6):
        self.weight = torch.rand(inner, outer) * 0.1
        self.leak = torch.full((outer,), 0.9985)

    def run(self, spikes, threshold=25.0):
        spikes = spikes.bfloat16().float()
        leak = self.leak.bfloat16().float()  # BORN
        potential = torch.zeros(self.weight.shape[1])
        fired = torch.zeros(self.weight.shape[1])
        for t in range(len(spikes)):
            potential = leak * potential + spikes[t] @ self.weight
            out = potential > threshold
            fired += out
            potential = torch.where(out, 0.0, potential)
        return potential, fired


layer = Layer()
quiet = (torch.rand(3000, 20) < 0.03).float()
potential, fired = layer.run(quiet)
print("neurons that fired on quiet input", int((fired > 0).sum()), "of 6, spikes", int(fired.sum()), "potential", round(potential.mean().item(), 2))
