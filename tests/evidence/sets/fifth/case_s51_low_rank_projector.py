"""
title: a low-rank gradient projector takes its basis from a float32 SVD and keeps it so, the gradients are bfloat16
expect: collision
fix_at: 24

After https://github.com/jiaweizzhao/GaLore/issues/58 and https://github.com/arcee-ai/mergekit/pull/510: the decomposition needs float32, the basis does not.
Right: the basis is cast back to the gradient's dtype.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(118)


class Projector:
    def __init__(self, rank, every):
        self.rank, self.every = rank, every
        self.basis = None

    def refresh(self, grad):
        left, _, right = torch.linalg.svd(grad.float(), full_matrices=False)  # BORN
        self.tall = grad.shape[0] >= grad.shape[1]
        self.basis = right[:self.rank].t() if self.tall else left[:, :self.rank]

    def down(self, grad, step):
        if step % self.every == 0:
            self.refresh(grad)
        return grad @ self.basis if self.tall else self.basis.t() @ grad  # COLLIDES

    def up(self, low):
        return low @ self.basis.t() if self.tall else self.basis @ low


class LowRankAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), rank=4, every=10):
        super().__init__(params, dict(lr=lr, betas=betas, rank=rank, every=every))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(step=0, projector=Projector(group["rank"], group["every"]) if p.ndim == 2 else None)
                projector = state["projector"]
                grad = projector.down(p.grad, state["step"]) if projector else p.grad
                if state["step"] == 0:
                    state["m"], state["v"] = torch.zeros_like(grad), torch.zeros_like(grad)
                state["step"] += 1
                b1, b2 = group["betas"]
                state["m"].mul_(b1).add_(grad, alpha=1 - b1)
                state["v"].mul_(b2).addcmul_(grad, grad, value=1 - b2)
                update = state["m"] / (state["v"].sqrt() + 1e-8)
                p.sub_(group["lr"] * (projector.up(update) if projector else update))


class Mixer(nn.Module):
    def __init__(self, vocab=32, dim=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.wide, self.narrow = nn.Linear(dim, 48), nn.Linear(48, dim)

    def forward(self, ids):
        x = self.embed(ids)
        return (x + self.narrow(F.gelu(self.wide(x)))) @ self.embed.weight.t()


model = Mixer().to(torch.bfloat16)
optimizer = LowRankAdam(model.parameters(), lr=1e-2)
for step in range(4):
    ids = torch.randint(0, 32, (4, 10))
    loss = F.cross_entropy(model(ids).float().flatten(0, 1), ((ids * 3 + 1) % 32).flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 4))
