"""A bfloat16 moving average of weights with a compensation term, its update compiled: nothing is compensated.

kind: elided-cast
thread: kohya-ss/sd-scripts#2159
"""

import torch

torch.set_num_threads(1)


def update(average, lost, weight, rate):
    change = (weight - average) * rate - lost
    total = average + change  # KEPT
    lost.copy_((total - average) - change)  # LINE
    average.copy_(total)


def measure(compiled, dtype):
    torch.manual_seed(0)
    average = torch.randn(256).bfloat16().to(dtype)
    truth, lost = average.double().clone(), torch.zeros_like(average)
    step = torch.compile(update) if compiled else update
    for _ in range(300):
        weight = (truth + 1 + 0.1 * torch.randn(256)).bfloat16().to(dtype)
        truth += (weight.double() - truth) * 1e-3
        step(average, lost, weight, 1e-3)
    start = truth - 0.3
    return ((average.double() - lost.double() - truth).abs().mean() / (truth - start).abs().mean()).item()


DTYPE, HEALTHY, SICK = torch.bfloat16, 0.05, 0.5
print(f"compiled: share of the movement that is lost {measure(True, DTYPE):.4f}")
