"""
title: Houlsby adapters are made after the frozen encoder went to bfloat16, so they are float32
expect: collision
fix_at: 63

After adapter-hub/adapters#766: modules that are added to a model loaded in half precision come in the default dtype, and
the first forward pass refuses them. Right: give the adapter the dtype of the block it sits in (or move the
adapters to the model's dtype after they were added).
"""
import torch
from torch import nn
import torch.nn.functional as F

DIM = 32
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)
        self.adapter = None

    def forward(self, x):
        h = self.down(F.gelu(self.up(self.norm(x))))
        if self.adapter is not None:
            h = self.adapter(h)
        return x + h


class Bottleneck(nn.Module):
    def __init__(self, dim, rank):
        super().__init__()
        self.squeeze = nn.Linear(dim, rank)  # BORN
        self.expand = nn.Linear(rank, dim)  # BORN
        nn.init.zeros_(self.expand.weight)
        nn.init.zeros_(self.expand.bias)

    def forward(self, h):
        return h + self.expand(F.relu(self.squeeze(h)))  # COLLIDES


class Encoder(nn.Module):
    def __init__(self, vocab=50, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, DIM)
        self.blocks = nn.ModuleList(Block(DIM) for _ in range(depth))
        self.head = nn.Linear(DIM, 3)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(dim=1))


def add_adapters(model):
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for block in model.blocks:
        block.adapter = Bottleneck(DIM, 8)
    return [p for block in model.blocks for p in block.adapter.parameters()]


model = Encoder().to(torch.bfloat16)
trainable = add_adapters(model)
masters = [p.detach().float() for p in trainable]

for step in range(3):
    ids = torch.randint(0, 50, (4, 7))
    labels = torch.randint(0, 3, (4,))
    loss = F.cross_entropy(model(ids).float(), labels)
    grads = torch.autograd.grad(loss, trainable)
    with torch.no_grad():
        for parameter, master, grad in zip(trainable, masters, grads):
            parameter.copy_(master.sub_(grad.float(), alpha=0.1))
    print(step, round(loss.item(), 3))
