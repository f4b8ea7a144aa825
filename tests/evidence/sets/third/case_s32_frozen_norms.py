"""
title: bfloat16 weights, AdamW at 1e-4: the norms stay exactly one
expect: silent:lost-update
modes: diagnose

After vllm-project/speculators#668 (norm weights exactly 1.0 after a whole run) and Model-Optimizer#2322.
Damage: 0 of 64 norm weights move in 40 steps (float32: 64 of 64). Right change: float32 master weights under autocast.
"""
import torch
import torch.nn as nn


class Draft(nn.Module):
    def __init__(self, vocab=40, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.norm1 = nn.RMSNorm(dim)
        self.fc = nn.Linear(dim, dim)
        self.norm2 = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        h = self.embed(ids)
        h = h + torch.tanh(self.fc(self.norm1(h)))
        return self.head(self.norm2(h))


def load_draft(dtype):
    torch.manual_seed(0)
    return Draft().to(dtype)  # BORN


def train(model, steps, lr=1e-4):
    opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)  # BORN
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 10))
    gen = torch.Generator().manual_seed(1)
    for _ in range(steps):
        ids = torch.randint(0, 40, (4, 12), generator=gen)
        target = (ids * 3 + 1) % 40
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(ids)
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), target.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()  # BORN
        sched.step()
    return loss.item()


draft = load_draft(torch.bfloat16)  # BORN
loss = train(draft, 40)
w = torch.cat([draft.norm1.weight, draft.norm2.weight]).float()
print("loss", round(loss, 4), "norm weights moved", int((w != 1).sum()), "of", w.numel())
