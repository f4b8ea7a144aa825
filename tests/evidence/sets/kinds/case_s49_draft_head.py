"""
title: the draft head of speculative decoding is trained in float32, its features go through the target's frozen bfloat16 output layer
expect: collision
fix_at: 45

After https://github.com/SafeAILab/EAGLE/issues/180 and https://github.com/sgl-project/SpecForge/issues/112.
Right: the head stays float32, what it returns is cast to the dtype of the target.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(5)


class Target(nn.Module):
    def __init__(self, vocab=40, dim=16):
        super().__init__()
        self.embed, self.block = nn.Embedding(vocab, dim), nn.Linear(dim, dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    @torch.no_grad()
    def hidden(self, ids):
        x = self.embed(ids)
        return x + F.silu(self.block(x))


class Draft(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.join, self.layer = nn.Linear(2 * dim, dim), nn.Linear(dim, dim)

    def forward(self, embedded, hidden):
        x = self.join(torch.cat([embedded, hidden], -1).float())
        return x + F.silu(self.layer(x))  # BORN


class Speculator:
    def __init__(self, target, draft):
        self.target, self.draft = target.requires_grad_(False), draft

    def guess(self, ids):
        hidden = self.target.hidden(ids)
        features = self.draft(self.target.embed(ids[:, 1:]), hidden[:, :-1])  # BORN
        return features, hidden[:, 1:]

    def loss(self, ids):
        features, wanted = self.guess(ids)
        logits = self.target.lm_head(features)  # COLLIDES
        soft = F.cross_entropy(logits.float()[:, :-1].flatten(0, 1), ids[:, 2:].flatten())
        return soft + F.smooth_l1_loss(features.float(), wanted.float())


speculator = Speculator(Target().to(torch.bfloat16), Draft())
optimizer = torch.optim.AdamW(speculator.draft.parameters(), lr=1e-3)
for step in range(3):
    loss = speculator.loss(torch.randint(0, 40, (4, 9)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 4))
