"""
title: one of the adapters served in a batch was averaged in float32, stacking widens all of them
expect: collision
fix_at: 37

After https://github.com/vllm-project/vllm/issues/33704 and https://github.com/huggingface/candle/pull/3762.
Right: the average is cast back to the pool's dtype.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(117)


class Pool:
    """Adapters by name: a dictionary of (down, up) per layer."""

    def __init__(self, layers, dim, rank, dtype):
        self.layers, self.dim, self.rank, self.dtype = layers, dim, rank, dtype
        self.adapters = {}

    def load(self, name, seed):
        make = torch.Generator().manual_seed(seed)
        self.adapters[name] = {layer: (torch.randn(self.dim, self.rank, generator=make).to(self.dtype) * 0.1,
                                       torch.randn(self.rank, self.dim, generator=make).to(self.dtype) * 0.1) for layer in self.layers}

    def blend(self, name, parts):
        blended = {}
        for layer in self.layers:
            pairs = zip(*(self.adapters[part][layer] for part in parts))
            blended[layer] = tuple(torch.stack(group).mean(0, dtype=torch.float32) for group in pairs)  # BORN
        self.adapters[name] = blended

    def slots(self, layer, names):
        down, up = zip(*(self.adapters[name][layer] for name in names))
        return torch.stack(down), torch.stack(up)


class Served(nn.Module):
    def __init__(self, name, base, pool):
        super().__init__()
        self.name, self.base, self.pool = name, base, pool
        self.names = ()

    def forward(self, x):
        down, up = self.pool.slots(self.name, self.names)
        return self.base(x) + torch.bmm(torch.bmm(x, down), up)  # COLLIDES


class Server:
    def __init__(self, dim=32, depth=2, vocab=50, dtype=torch.bfloat16):
        names = [f"layer{i}" for i in range(depth)]
        self.pool = Pool(names, dim, 4, dtype)
        self.embed = nn.Embedding(vocab, dim).to(dtype)
        self.layers = [Served(n, nn.Linear(dim, dim).to(dtype), self.pool) for n in names]

    @torch.no_grad()
    def answer(self, requests):
        x = self.embed(torch.stack([ids for _, ids in requests]))
        for layer in self.layers:
            layer.names = [name for name, _ in requests]
            x = x + F.gelu(layer(x))
        return (x @ self.embed.weight.t())[:, -1].argmax(-1).tolist()


server = Server()
for seed, name in enumerate(("law", "code", "poems")):
    server.pool.load(name, seed)
print(server.answer([("law", torch.arange(6)), ("code", torch.arange(6))]))
server.pool.blend("law+code", ("law", "code"))
print(server.answer([("poems", torch.arange(6)), ("law+code", torch.arange(6)), ("law", torch.arange(6))]))
