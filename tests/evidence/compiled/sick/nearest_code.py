"""Vector quantisation in bfloat16, one-hot by comparison with the least distance: compiled, vectors get no code.

kind: kept-wide-discontinuous
thread: pytorch/pytorch#195223
"""

import torch
from torch import nn

torch.set_num_threads(1)


class Quantiser(nn.Module):
    def __init__(self, codes=32, width=8):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(codes, width))

    def forward(self, z):
        distance = z.square().sum(-1, keepdim=True) - 2 * z @ self.codes.T + self.codes.square().sum(-1)  # KEPT
        nearest = distance == distance.amin(-1, keepdim=True)  # LINE
        return nearest.to(z.dtype) @ self.codes


def measure(compiled, dtype):
    torch.manual_seed(0)
    model, z = Quantiser().bfloat16().to(dtype), torch.randn(256, 8).bfloat16().to(dtype)
    with torch.no_grad():
        return ((torch.compile(model) if compiled else model)(z) == 0).all(-1).double().mean().item()


DTYPE, HEALTHY, SICK = torch.bfloat16, 0.0, 0.1
print(f"compiled: share of vectors without a code {measure(True, DTYPE):.4f}")
