"""
title: only a new token's embedding is trained, in float16, by a plain loop
expect: silent:lost-update
"""
import torch
from torch import nn


class Concept(nn.Module):
    def __init__(self, width):
        super().__init__()
        vector = torch.randn(4, width, dtype=torch.float16)  # BORN
        self.vector = nn.Parameter(vector)

    def forward(self, x):
        return (x @ self.vector.float().T).pow(2).mean()


torch.manual_seed(0)
concept = Concept(16)
optimizer = torch.optim.RMSprop(concept.parameters(), lr=1e-5)
for _ in range(5):
    concept(torch.randn(8, 16)).backward()
    optimizer.step()
    optimizer.zero_grad()
print(concept.vector.float().norm().item())
