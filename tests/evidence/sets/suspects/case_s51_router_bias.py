"""
title: scores with a large bias are rounded before the choice; the weights of the chosen are rounded after it
expect: silent:precision-loss|downcast|round-trip
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(6)

class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(32, 16, bias=False)
        self.register_buffer("bias", 8 + 0.01 * torch.randn(16))

    def forward(self, x):
        scores = self.gate(x).sigmoid()
        biased = scores + self.bias
        biased = biased.bfloat16()  # BORN
        chosen = biased.topk(2).indices
        weights = scores.gather(-1, chosen)
        weights = weights.bfloat16()
        return chosen, weights.float()

router = Router()
with torch.no_grad():
    chosen, weights = router(0.3 * torch.randn(400, 32))
result = (chosen * weights).sum()
print(f"{result:.3g}")
