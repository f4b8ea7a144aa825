"""
title: PPO: the value head is float32 and gets bfloat16 hidden states
expect: collision
fix_at: 27, 28

trl's AutoModelForCausalLMWithValueHead in small: v_head is made after the base was loaded in bfloat16.
"""
import torch
from torch import nn


class Base(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed, self.mix, self.head = nn.Embedding(40, width), nn.Linear(width, width), nn.Linear(width, 40)

    def forward(self, ids):
        h = torch.tanh(self.mix(self.embed(ids)))
        return self.head(h), h


class WithValueHead(nn.Module):
    def __init__(self, pretrained, width=16):
        super().__init__()
        self.pretrained = pretrained
        self.v_head = nn.Linear(width, 1)  # BORN

    def forward(self, ids):
        logits, hidden = self.pretrained(ids)
        return logits.float(), self.v_head(hidden).squeeze(-1)  # COLLIDES


torch.manual_seed(0)
base = Base().to(torch.bfloat16)
model = WithValueHead(base)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
logits, value = model(torch.randint(0, 40, (2, 6)))
loss = logits.logsumexp(-1).mean() + value.square().mean()
loss.backward()
optimizer.step()
