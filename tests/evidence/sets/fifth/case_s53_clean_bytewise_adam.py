"""
title: Adam's moments are kept as bytes with a scale per block, widened to float32 for the step
expect: clean

After https://github.com/pytorch/ao/pull/1124 and https://github.com/Nerogar/OneTrainer/issues/1005.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(304)


class Packed:
    """A tensor as signed bytes of its root, one float32 scale per block."""

    def __init__(self, like, block=32):
        self.shape, self.block = like.shape, block
        self.rest = -like.numel() % block
        self.write(torch.zeros_like(like, dtype=torch.float32))

    def write(self, value):
        flat = F.pad(value.flatten(), (0, self.rest)).view(-1, self.block)
        root = flat.sign() * flat.abs().sqrt()
        self.scale = root.abs().amax(1, keepdim=True).clamp(min=1e-20) / 127
        self.code = (root / self.scale).round().to(torch.int8)

    def read(self):
        root = self.code.float() * self.scale
        flat = (root.sign() * root.square()).flatten()
        return flat[:flat.numel() - self.rest].view(self.shape)


class ByteAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.98), eps=1e-6):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (b1, b2), eps = group["betas"], group["eps"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(count=0, m=Packed(p), v=Packed(p))
                state["count"] += 1
                m = b1 * state["m"].read() + (1 - b1) * p.grad
                v = b2 * state["v"].read() + (1 - b2) * p.grad.square()
                state["m"].write(m)
                state["v"].write(v)
                m, v = m / (1 - b1 ** state["count"]), v / (1 - b2 ** state["count"])
                p.sub_(group["lr"] * (m / (v.sqrt() + eps)).clamp(-2, 2))


class Shifter(nn.Module):
    def __init__(self, words=30, dim=24):
        super().__init__()
        self.embed, self.rnn, self.out = nn.Embedding(words, dim), nn.GRU(dim, dim, batch_first=True), nn.Linear(dim, words)

    def forward(self, ids):
        return self.out(self.rnn(self.embed(ids))[0])


model = Shifter()
optimizer = ByteAdam(model.parameters(), lr=5e-3)
for step in range(100):
    ids = torch.randint(0, 30, (16, 10))
    loss = F.cross_entropy(model(ids).flatten(0, 1), (ids * 7 % 30).flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", round(loss.item(), 3))
