"""
title: a logged loss summed in the model's bfloat16
expect: silent:lost-update|precision-loss
modes: diagnose

After huggingface/transformers#8561 and pytorch/xla#2425 (a bf16 sum stops growing; the mean falls).
Damage: mean loss printed 1.71, true 3.21 (600 batches). Right change: accumulate in float32.
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
        p = next(model.parameters())
        self.total = torch.zeros((), dtype=p.dtype, device=p.device)  # BORN
        self.count = 0

    @torch.no_grad()
    def update(self, ids):
        logits = self.model(ids[:, :-1]).float()
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        self.total += loss.to(self.total.dtype)  # BORN
        self.count += 1
        return loss.item()

    def mean(self):
        return self.total.item() / self.count


torch.manual_seed(0)
model = Net().to(torch.bfloat16).eval()
evaluator = Evaluator(model)
gen = torch.Generator().manual_seed(0)
exact = 0.0
for _ in range(600):
    exact += evaluator.update(torch.randint(0, 20, (1, 8), generator=gen))
print("mean loss", round(evaluator.mean(), 4), "by python", round(exact / 600, 4))
