"""
title: bitsandbytes' 8-bit AdamW on float32 weights, the embedding kept on 32-bit states
expect: clean
thread: https://github.com/bitsandbytes-foundation/bitsandbytes/pull/1901
measured: loss 2.189 -> 1.778 (32 bits 1.778), states ['torch.float32', 'torch.uint8']

Expectation, written first: moments are stored blockwise in 8 bits with float32 maxima, updates fall on float32 weights.
The model learns as with torch's AdamW, the last losses lie close together.
"""
import bitsandbytes as bnb
import torch
import torch.nn.functional as F
from torch import nn

CONFIG = {"lr": 2e-3, "betas": (0.9, 0.95), "weight_decay": 0.01, "epochs": 6, "batch_size": 16, "min_8bit_size": 1024}


class TagModel(nn.Module):
    def __init__(self, vocab=64, dim=64, tags=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.conv = nn.Conv1d(dim, dim, 3, padding=1)
        self.mlp = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 128), nn.GELU(), nn.Linear(128, dim))
        self.head = nn.Linear(dim, tags)

    def forward(self, ids):
        x = self.embed(ids)
        x = x + self.conv(x.transpose(1, 2)).transpose(1, 2)
        return self.head(x + self.mlp(x))


class TagData(torch.utils.data.Dataset):
    """a token's tag depends on it and on its left neighbour"""

    def __init__(self, n=128, length=12):
        g = torch.Generator().manual_seed(0)
        self.ids = torch.randint(0, 64, (n, length), generator=g)
        self.tags = (self.ids + self.ids.roll(1, dims=1).mul(3)) % 8
        self.tags[:, 0] = -100

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i], self.tags[i]


def split_parameters(model):
    decay, rest = [], []
    for p in model.parameters():
        (decay if p.ndim >= 2 else rest).append(p)
    return decay, rest


def make_optimizer(model, config, eight_bit):
    decay, rest = split_parameters(model)
    groups = [{"params": decay, "weight_decay": config["weight_decay"]}, {"params": rest, "weight_decay": 0.0}]
    if not eight_bit:
        return torch.optim.AdamW(groups, lr=config["lr"], betas=config["betas"])
    manager = bnb.optim.GlobalOptimManager.get_instance()
    manager.register_module_override(model.embed, "weight", {"optim_bits": 32})
    return bnb.optim.AdamW8bit(groups, lr=config["lr"], betas=config["betas"], min_8bit_size=config["min_8bit_size"])


class Trainer:
    def __init__(self, config, eight_bit):
        torch.manual_seed(0)
        self.config, self.model = config, TagModel()
        self.optimizer = make_optimizer(self.model, config, eight_bit)
        self.loader = torch.utils.data.DataLoader(TagData(), config["batch_size"])

    def epoch(self):
        total, count = 0.0, 0
        for ids, tags in self.loader:
            loss = F.cross_entropy(self.model(ids).flatten(0, 1), tags.flatten(), label_smoothing=0.05)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
            total, count = total + loss.item() * len(ids), count + len(ids)
        return total / count

    def train(self):
        return [self.epoch() for _ in range(self.config["epochs"])]

    def state_dtypes(self):
        return sorted({str(v.dtype) for s in self.optimizer.state.values() for k, v in s.items() if k in ("state1", "state2")})


low, full = Trainer(CONFIG, eight_bit=True), Trainer(CONFIG, eight_bit=False)
a, b = low.train(), full.train()
assert "torch.uint8" in low.state_dtypes()
assert abs(a[-1] - b[-1]) < 0.06 and a[-1] < a[0] - 0.3, (a, b)
print(f"loss {a[0]:.3f} -> {a[-1]:.3f} (32 bits {b[-1]:.3f}), states {low.state_dtypes()}")
