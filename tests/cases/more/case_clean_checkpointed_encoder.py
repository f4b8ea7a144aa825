"""
title: checkpointed encoder layers of torch under autocast, with a boolean padding mask
expect: clean

The recomputation takes place under the autocast of the forward, weights and gradients are float32, the mask is
boolean and the mean over the unpadded tokens divides by a count brought to the dtype it divides.
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Encoder(nn.Module):
    def __init__(self, vocabulary, width, depth, classes):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width, padding_idx=0)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.1, batch_first=True, norm_first=True) for _ in range(depth)
        )
        self.out = nn.Linear(width, classes)

    def forward(self, ids):
        padding = ids == 0
        x = self.tokens(ids)
        for layer in self.layers:
            x = checkpoint(layer, x, src_key_padding_mask=padding, use_reentrant=False)
        kept = (~padding).unsqueeze(-1)
        mean = (x * kept).sum(dim=1) / kept.sum(dim=1).to(x.dtype)
        return self.out(mean)


torch.manual_seed(0)
encoder = Encoder(vocabulary=20, width=16, depth=2, classes=2)
optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-2)
for step in range(3):
    ids = torch.randint(1, 20, (8, 10))
    ids[::2, 6:] = 0
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(encoder(ids), (ids[:, 0] > 10).long())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(step, round(loss.item(), 3))
