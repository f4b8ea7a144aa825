"""The mean over all maxima of a row, in bfloat16: compiled, a row has no maximum.

kind: kept-wide-discontinuous
thread: pytorch/pytorch#195214
"""

import torch

torch.set_num_threads(1)


@torch.compile
def tied_mean(scores, temperature, payload):
    scaled = scores / temperature  # KEPT
    top = scaled.amax(dim=-1, keepdim=True)
    ties = scaled == top  # LINE
    return (payload * ties).sum(-1) / ties.sum(-1)


def measure(compiled, dtype):
    torch.manual_seed(0)
    scores = torch.randn(64, 32).bfloat16().to(dtype)
    payload = torch.randn(64, 32).bfloat16().to(dtype)
    function = tied_mean if compiled else tied_mean._torchdynamo_orig_callable
    result = function(scores, torch.tensor(0.7).bfloat16().to(dtype), payload)
    return (~result.isfinite()).double().mean().item()


DTYPE, HEALTHY, SICK = torch.bfloat16, 0.0, 0.5
print(f"compiled: share of rows without a maximum {measure(True, DTYPE):.4f}")
