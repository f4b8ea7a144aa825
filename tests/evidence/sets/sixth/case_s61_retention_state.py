"""
title: the recurrent state of a retention layer is float32 between chunks, the queries of the next chunk are bfloat16
expect: collision
fix_at: 25

After https://github.com/open-lm-engine/lm-engine/pull/496 and https://github.com/fla-org/flash-linear-attention/issues/32 and
https://github.com/fkodom/yet-another-retnet/pull/25.
Right: the state is float32 where it is summed, and is read in the dtype of the queries.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(619)


class State:
    """What earlier chunks left behind; decays by gamma per token."""

    def __init__(self, heads, dim):
        self.heads, self.dim = heads, dim
        self.memory = None

    def read(self):
        return self.memory

    def write(self, keys, values, decay):
        update = torch.einsum("bhtd,bhte->bhde", keys.float(), values.float())  # BORN
        self.memory = update if self.memory is None else self.memory * decay + update


class Retention(nn.Module):
    def __init__(self, dim, heads=2, gamma=0.9):
        super().__init__()
        self.heads, self.gamma = heads, gamma
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, x, state):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        length = q.shape[2]
        t = torch.arange(length)
        decay = torch.where(t[:, None] >= t, self.gamma ** (t[:, None] - t).clamp(min=0).float(), 0.0).to(q.dtype)
        inner = (q @ k.transpose(-1, -2) * decay) @ v
        memory = state.read()
        if memory is not None:
            fade = (self.gamma ** (t + 1).float()).to(q.dtype)[:, None]
            inner = inner + torch.einsum("bhtd,bhde->bhte", q * fade, memory)  # COLLIDES
        state.write(k * (self.gamma ** (length - 1 - t).float()).to(k.dtype)[:, None], v, self.gamma ** length)
        return self.out(inner.transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self, vocab=50, dim=32, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Retention(dim) for _ in range(depth))

    def forward(self, ids, states):
        x = self.embed(ids)
        for layer, state in zip(self.layers, states):
            x = x + F.silu(layer(x, state))
        return x @ self.embed.weight.t()


@torch.no_grad()
def stream(model, ids, chunk):
    states = [State(2, 16) for _ in model.layers]
    return torch.cat([model(part, states) for part in ids.split(chunk, dim=1)], dim=1)


model = Model().to(torch.bfloat16)
ids = torch.randint(0, 50, (2, 24))
whole, parts = stream(model, ids, 24), stream(model, ids, 8)
print("difference between chunked and whole", round(((whole - parts).float().norm() / whole.float().norm()).item(), 2))
