"""
title: a vision tower kept in float32; its features are scattered into bfloat16 embeddings
expect: collision
fix_at: 22, 35, 43, 57

After LLaVA-like models (huggingface/transformers: masked_scatter expected self and source to have same dtypes).
Right change: image_features.to(inputs_embeds.dtype) before masked_scatter.
"""
import torch
import torch.nn as nn

IMAGE = 3


class Vision(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, 4, stride=4)
        self.norm = nn.LayerNorm(dim)

    def forward(self, pixels):
        return self.norm(self.patch(pixels).flatten(2).transpose(1, 2))


class Vlm(nn.Module):
    def __init__(self, vocab=50, dim=16):
        super().__init__()
        self.vision = Vision(dim)
        self.embed = nn.Embedding(vocab, dim)
        self.layer = nn.TransformerEncoderLayer(dim, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    def merge(self, ids, pixels):
        embeds = self.embed(ids)
        feats = self.vision(pixels.to(self.vision.patch.weight.dtype)).flatten(0, 1)
        mask = (ids == IMAGE).unsqueeze(-1).expand_as(embeds)
        return embeds.masked_scatter(mask, feats)  # COLLIDES

    def forward(self, ids, pixels):
        return self.head(self.layer(self.merge(ids, pixels)))


def load(dtype, keep_in_fp32=("vision",)):
    model = Vlm()
    for name, child in model.named_children():
        child.to(torch.float32 if name in keep_in_fp32 else dtype)  # BORN
    return model.eval()


def prompt(gen, images=1, patches=4):
    text = torch.randint(4, 50, (images, 6), generator=gen)
    return torch.cat([text[:, :2], torch.full((images, patches), IMAGE), text[:, 2:]], 1)


torch.manual_seed(0)
gen = torch.Generator().manual_seed(0)
model = load(torch.bfloat16)
with torch.no_grad():
    logits = model(prompt(gen, 2), torch.rand(2, 3, 8, 8))
print("next", logits[:, -1].argmax(-1).tolist())
