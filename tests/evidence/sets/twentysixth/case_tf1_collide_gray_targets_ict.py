"""
title: Grayscale codes as float targets of the image transformer
expect: collision
thread: https://github.com/raywzy/ICT/issues/24
fix_at: (none beside the marked)

Expectation, written first: For colour images the dataset looks up the nearest cluster, which gives Long indices. The user's
grayscale branch returns the pixel levels as a floating point tensor; cross_entropy takes 1-D targets for indices and raises.
"""
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class ImageDataset(Dataset):
    def __init__(self, images, clusters, gray=False):
        self.images, self.clusters, self.gray = images, clusters, gray

    def __len__(self):
        return len(self.images)

    def __getitem__(self, idx):
        img = self.images[idx]
        if self.gray:
            x = torch.from_numpy(img.mean(axis=-1)).view(-1)  # BORN
            a = torch.round(x / 255.0 * (len(self.clusters) - 1))  # BORN
        else:
            x = torch.from_numpy(img.astype(np.float32) / 127.5 - 1).view(-1, 3)
            a = ((x[:, None, :] - self.clusters[None]) ** 2).sum(-1).argmin(1)
        mask = (torch.rand(len(a)) < 0.4).long()
        return a, a, mask  # BORN


class Block(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.attn = nn.MultiheadAttention(n_embd, n_head, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 2 * n_embd), nn.GELU(), nn.Linear(2 * n_embd, n_embd))

    def forward(self, x):
        h = self.ln1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, vocab_size, block_size, n_embd=24, n_head=3, n_layer=2):
        super().__init__()
        self.tok_emb = nn.Linear(vocab_size, n_embd, bias=False)
        self.pos_emb = nn.Parameter(torch.zeros(1, block_size, n_embd))
        self.mask_emb = nn.Parameter(torch.zeros(1, 1, n_embd))
        self.blocks = nn.Sequential(*[Block(n_embd, n_head) for _ in range(n_layer)])
        self.head = nn.Linear(n_embd, vocab_size, bias=False)
        self.vocab_size = vocab_size

    def forward(self, idx, targets=None, masks=None):
        levels = torch.arange(self.vocab_size)
        token_embeddings = self.tok_emb((idx.unsqueeze(-1) == levels).float())
        masks = masks.unsqueeze(2)
        x = token_embeddings * (1 - masks) + self.mask_emb * masks + self.pos_emb
        logits = self.head(self.blocks(x))
        masked = masks.squeeze(2).reshape(-1) == 1
        loss = F.cross_entropy(logits.view(-1, self.vocab_size)[masked], targets.reshape(-1)[masked])  # BORN COLLIDES
        return logits, loss


class Trainer:
    def __init__(self, model, dataset, lr=3e-3):
        self.model, self.loader = model, DataLoader(dataset, batch_size=4)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95))

    def train(self, epochs):
        for epoch in range(epochs):
            for x, y, mask in self.loader:
                _, loss = self.model(x, y, mask)  # BORN
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
            print(f"epoch {epoch + 1}: train loss {loss.item():.3f} (chance {math.log(self.model.vocab_size):.2f})")


if __name__ == "__main__":
    torch.manual_seed(24)
    rng = np.random.default_rng(24)
    images = rng.integers(0, 256, (12, 6, 6, 3)).astype(np.uint8)
    clusters = torch.linspace(-1, 1, 16)[:, None].expand(-1, 3)
    train_dataset = ImageDataset(images, clusters, gray=True)
    Trainer(GPT(vocab_size=16, block_size=36), train_dataset).train(epochs=2)
