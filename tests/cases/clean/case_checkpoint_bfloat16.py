"""
title: checkpointed blocks of a bfloat16 model with a float32 norm inside each
expect: clean

The island is entered and left inside the block, in the forward and in its recomputation.
"""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        wide = nn.functional.layer_norm(x.float(), (x.shape[-1],), self.norm.weight.float(), self.norm.bias.float())
        return x + self.down(nn.functional.gelu(self.up(wide.to(x.dtype))))


torch.manual_seed(0)
blocks = nn.ModuleList(Block(16) for _ in range(3)).to(torch.bfloat16)
optimizer = torch.optim.SGD(blocks.parameters(), lr=0.5)
for reentrant in (False, True, False):
    x = torch.randn(4, 6, 16, dtype=torch.bfloat16, requires_grad=True)
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=reentrant)
    loss = x.float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(x.dtype, loss.dtype)