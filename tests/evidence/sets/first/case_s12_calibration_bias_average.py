"""
title: a calibrator's running mean of activations is kept in the activations' bfloat16 and stalls
expect: silent:lost-update|precision-loss
modes: diagnose

NVIDIA/Model-Optimizer#738 (MMLU 59.1 -> 71.8 when repaired). mean += (x - mean) / n: from some twenty batches on the increment is
less than half a step of bfloat16.
Measured: After 1000 batches the mean of layer 1.up is 0.756, in float32 1.313; the mean of 0.up 0.515 against 0.796.
BORN is the factory of the mean: it takes the activations' dtype. Change: dtype=torch.float32 there (and x.float() in the update).
"""
import torch
from torch import nn


class BiasCalibrator:
    def __init__(self):
        self.mean, self.count = None, 0

    def collect(self, module, inputs, output):
        sample = output.detach().flatten(0, -2).mean(0)
        if self.mean is None:
            self.mean = torch.zeros(sample.shape, dtype=output.dtype)  # BORN
        self.count += 1
        self.mean += (sample - self.mean) / self.count


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


def calibrate(model, batches):
    calibrators = {}
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            calibrators[name] = BiasCalibrator()
            handles.append(module.register_forward_hook(calibrators[name].collect))
    with torch.no_grad():
        for batch in batches:
            model(batch)
    for handle in handles:
        handle.remove()
    return calibrators


torch.manual_seed(0)
model = nn.Sequential(MLP(16), MLP(16)).bfloat16().eval()
# the stream drifts: later texts are longer and louder
batches = [(torch.randn(1, 8, 16) + 4 * step / 1000).bfloat16() for step in range(1000)]
found = calibrate(model, batches)
for name, calibrator in found.items():
    print(name, calibrator.count, round(float(calibrator.mean.float().abs().mean()), 4))
