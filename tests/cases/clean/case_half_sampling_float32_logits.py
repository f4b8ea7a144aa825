"""
title: logits of a half model are widened for sampling, with temperatures and penalties in float32
expect: clean

What comes after the model is small and decides which token is next: it is float32 in every library.
"""
import torch
from torch import nn


def pick(logits, temperature, penalty, seen, generator):
    logits = logits / temperature
    logits = logits - penalty * seen
    share = logits.softmax(dim=-1)
    kept = share >= share.topk(8, dim=-1).values[:, -1:]
    return torch.multinomial(share * kept, 1, generator=generator)


torch.manual_seed(0)
generator = torch.Generator().manual_seed(0)
model = nn.Sequential(nn.Embedding(40, 16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 40)).half().eval()
token = torch.zeros(3, 1, dtype=torch.long)
temperature, seen = torch.tensor([[0.7], [1.0], [1.3]]), torch.zeros(3, 40)
with torch.no_grad():
    for _ in range(4):
        token = pick(model(token)[:, -1], temperature, 0.5, seen, generator)
        seen.scatter_(1, token, 1.0)
print(token.flatten().tolist())