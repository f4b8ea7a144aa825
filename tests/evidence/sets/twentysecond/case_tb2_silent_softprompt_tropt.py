"""
title: soft prompt optimisation turns to NaN after one step, since Adam works in the float16 of the embedding layer
expect: silent:underflow|overflow|precision-loss|gradient-dtype
thread: https://github.com/matanbt/TROPT/pull/8
measured: losses [0.011, nan, nan] | finite share of the prompt 0.0
widened: losses [0.011, 0.011, 0.0055] | finite share of the prompt 1.0; innocent: losses [0.011, nan, nan] | finite share of the prompt 0.0
suspect: line 34 - innocent: the pooling mask holds ones and zeros, exact in float16

Expectation, written first: the optimised prompt is cloned from the float16 embedding and Adam keeps its state in that
type. The squares of small gradients and the eps of 1e-8 are both zero in float16, so the step divides by zero, the
prompt becomes inf or NaN and so do all later losses. With a float32 prompt, cast for the forward pass, the loss falls.
"""
import torch
import torch.nn.functional as F
from torch import nn


class TextEncoder(nn.Module):
    def __init__(self, vocab=128, dim=16, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.embeddings = nn.Embedding(vocab, dim)
        self.proj = nn.Linear(dim, dim)

    def get_input_embeddings(self):
        return self.embeddings

    @property
    def dtype(self):
        return self.embeddings.weight.dtype

    def encode(self, embeds, mask):
        hidden = torch.tanh(self.proj(embeds.to(self.dtype)))
        mask = mask.to(torch.float16)
        pooled = (hidden * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
        return F.normalize(pooled.float(), dim=-1)


class SoftPromptOptimizer:
    def __init__(self, encoder, lr=0.01, num_steps=30):
        self.encoder = encoder
        self.lr = lr
        self.num_steps = num_steps

    def optimize(self, init_ids, target):
        layer = self.encoder.get_input_embeddings()
        start = layer(init_ids).detach()
        prompt = start.clone().requires_grad_(True)  # BORN
        optimizer = torch.optim.Adam([prompt], lr=self.lr)  # BORN
        mask = torch.ones(prompt.shape[:2], dtype=torch.long)
        losses = []
        for _ in range(self.num_steps):
            optimizer.zero_grad()
            loss = (1 - (self.encoder.encode(prompt, mask) * target).sum(-1)).mean() * 0.01
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return prompt.detach(), losses


def main():
    encoder = TextEncoder().half()
    for p in encoder.parameters():
        p.requires_grad_(False)
    gen = torch.Generator().manual_seed(5)
    target = F.normalize(torch.randn(1, 16, generator=gen), dim=-1)
    init_ids = torch.randint(0, 128, (1, 12), generator=gen)
    prompt, losses = SoftPromptOptimizer(encoder).optimize(init_ids, target)
    print("losses", [float(f"{v:.2g}") for v in losses[:2] + losses[-1:]])
    print("finite share of the prompt", round(torch.isfinite(prompt).float().mean().item(), 2))


if __name__ == "__main__":
    main()
