"""
title: a bfloat16 model whose logged loss is summed in float32
expect: clean

Looks like running_loss.
"""
import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self, vocab=20, dim=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        return self.head(self.norm(self.embed(ids)))


class Evaluator:
    def __init__(self, model):
        self.model = model
        self.total = torch.zeros((), dtype=torch.float32)
        self.count = 0

    @torch.no_grad()
    def update(self, ids):
        logits = self.model(ids[:, :-1]).float()
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        self.total += loss
        self.count += 1
        return loss.item()

    def mean(self):
        return self.total.item() / self.count


torch.manual_seed(0)
evaluator = Evaluator(Net().to(torch.bfloat16).eval())
gen = torch.Generator().manual_seed(0)
exact = 0.0
for _ in range(300):
    exact += evaluator.update(torch.randint(0, 20, (1, 8), generator=gen))
print("mean loss", round(evaluator.mean(), 4), "by python", round(exact / 300, 4))
