"""
title: a gradient-centring hook with a float32 running mean on bfloat16 weights
expect: collision
fix_at: 22

After PaddlePaddle/Paddle#40041 (hooks that change the dtype); torch says "hook has changed the type of value".
Right change: return the centred gradient in grad.dtype.
"""
import torch
import torch.nn as nn


class Centring:
    """Subtracts a slow average of the gradient."""

    def __init__(self, param, beta=0.9):
        self.beta = beta
        self.mean = torch.zeros(param.shape)  # BORN
        self.handle = param.register_hook(self)

    def __call__(self, grad):
        self.mean.mul_(self.beta).add_(grad, alpha=1 - self.beta)
        return grad - self.mean  # BORN


class Tagger(nn.Module):
    def __init__(self, vocab=30, dim=16, tags=5):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, tags)

    def forward(self, ids):
        return self.out(self.rnn(self.embed(ids))[0])


def train(steps=3):
    torch.manual_seed(0)
    model = Tagger().to(torch.bfloat16)
    hooks = [Centring(p) for n, p in model.named_parameters() if n.startswith("out.weight")]
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        ids, tags = torch.randint(0, 30, (4, 7)), torch.randint(0, 5, (4, 7))
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1).float(), tags.flatten())
        opt.zero_grad()
        loss.backward()  # COLLIDES
        opt.step()
    for h in hooks:
        h.handle.remove()
    return loss.item()


print("loss", train())
