"""
title: k-means starts a codebook with bincount's integers, the moving average of the cluster sizes cannot mix them with floats
expect: collision
fix_at: 23, 36

After https://github.com/lucidrains/vector-quantize-pytorch/issues/66 and https://github.com/karpathy/deep-vector-quantization/issues/5.
Right: the counts are floats from the first batch on.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(113)


def kmeans(data, count, rounds=4):
    centres = data[torch.randperm(len(data))[:count]].clone()
    for _ in range(rounds):
        nearest = torch.cdist(data, centres).argmin(1)
        sizes = torch.bincount(nearest, minlength=count)  # BORN
        sums = torch.zeros_like(centres).index_add_(0, nearest, data)
        centres = torch.where((sizes > 0)[:, None], sums / sizes.clamp(min=1)[:, None], centres)
    return centres, sizes


class Codebook(nn.Module):
    def __init__(self, count=16, dim=8, decay=0.9):
        super().__init__()
        self.decay = decay
        self.register_buffer("codes", torch.zeros(count, dim))
        self.register_buffer("sums", torch.zeros(count, dim))
        self.register_buffer("sizes", torch.zeros(count))
        self.register_buffer("ready", torch.tensor(False))

    def start(self, flat):
        self.codes, self.sizes = kmeans(flat, len(self.codes))
        self.sums = self.codes * self.sizes[:, None]
        self.ready.fill_(True)

    @torch.no_grad()
    def follow(self, flat, nearest):
        chosen = F.one_hot(nearest, len(self.codes)).to(flat.dtype)
        self.sums.lerp_(chosen.t() @ flat, 1 - self.decay)
        self.sizes.lerp_(chosen.sum(0), 1 - self.decay)  # COLLIDES
        total = self.sizes.sum()
        smooth = (self.sizes + 1e-5) / (total + len(self.codes) * 1e-5) * total
        self.codes = self.sums / smooth[:, None]

    def forward(self, z):
        flat = z.detach().flatten(0, 1)
        if not self.ready:
            self.start(flat)
        nearest = torch.cdist(flat, self.codes).argmin(1)
        quantised = self.codes[nearest].view_as(z)
        if self.training:
            self.follow(flat, nearest)
        return z + (quantised - z).detach(), F.mse_loss(z, quantised), nearest


class Codec(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, dim))
        self.codebook = Codebook(dim=dim)
        self.decode = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, 12))

    def forward(self, x):
        quantised, commitment, used = self.codebook(self.encode(x))
        return self.decode(quantised), commitment, used


model = Codec()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(4):
    x = torch.randn(8, 20, 12)
    out, commitment, used = model(x)
    loss = F.mse_loss(out, x) + 0.25 * commitment
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 4), "codes used", used.unique().numel())
