"""
title: the image projector runs under autocast, its bfloat16 features are merged into float32 token embeddings
expect: collision
fix_at: 47

After https://github.com/huggingface/transformers/pull/47691 and issue 47672: embeddings are not on autocast's list and stay float32, the
projector's last linear gives bfloat16, masked_scatter wants one dtype.
Right: cast the projected features to the embeddings' dtype where they leave the projector.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(3)
IMAGE_TOKEN, VOCAB = 63, 64


class Projector(nn.Module):
    def __init__(self, vision_dim, dim):
        super().__init__()
        self.norm = nn.LayerNorm(vision_dim)
        self.up = nn.Linear(vision_dim, dim)
        self.down = nn.Linear(dim, dim)

    def forward(self, patches):
        h = F.gelu(self.up(self.norm(patches)))
        return self.down(h)  # BORN


class TinyVLM(nn.Module):
    def __init__(self, dim=32, vision_dim=24):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.vision = nn.Conv2d(3, vision_dim, 4, stride=4)
        self.projector = Projector(vision_dim, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 64, batch_first=True, dropout=0.0)
        self.decoder = nn.TransformerEncoder(layer, 1)
        self.head = nn.Linear(dim, VOCAB)

    def merge(self, ids, features):
        embeds = self.embed(ids)
        where = (ids == IMAGE_TOKEN).unsqueeze(-1).expand_as(embeds)
        return embeds.masked_scatter(where, features.flatten(0, 1))  # COLLIDES

    def forward(self, ids, pixels):
        patches = self.vision(pixels).flatten(2).transpose(1, 2)
        features = self.projector(patches)
        return self.head(self.decoder(self.merge(ids, features)))


def batches(n, batch=2, text=6, patches=4):
    for _ in range(n):
        ids = torch.randint(0, VOCAB - 1, (batch, patches + text))
        ids[:, :patches] = IMAGE_TOKEN
        yield ids, torch.rand(batch, 3, 8, 8)


model = TinyVLM()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step, (ids, pixels) in enumerate(batches(3)):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(ids, pixels)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 3))
