"""
title: validation latents take the dtype of the prompt embeddings of a text encoder that is trained in float32
expect: collision
fix_at: 52, 53

diffusers #9476, SimpleTuner #356: prepare_latents(dtype=prompt_embeds.dtype), and the VAE is bfloat16. The text encoder
is float32 on purpose (it is trained), so the mistake is the line that takes its dtype for the latents.
"""
import torch
import torch.nn.functional as F
from torch import nn


class TextEncoder(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed, self.proj = nn.Embedding(40, width), nn.Linear(width, width)

    def forward(self, ids):
        return self.proj(self.embed(ids))


class Denoiser(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.mid = nn.Conv2d(width, width, 3, padding=1)
        self.inp, self.text, self.out = nn.Conv2d(4, width, 1), nn.Linear(16, width), nn.Conv2d(width, 4, 1)

    @property
    def dtype(self):
        return self.inp.weight.dtype

    def forward(self, x, text):
        x, text = x.to(self.dtype), text.to(self.dtype)
        return self.out(self.mid(self.inp(x)) + self.text(text).mean(1)[:, :, None, None])


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.decoder = nn.Conv2d(4, 3, 3, padding=1)

    def decode(self, z):
        return self.decoder(z)  # COLLIDES


@torch.no_grad()
def validate(text_encoder, denoiser, vae, ids):
    prompt = text_encoder(ids)
    latents = torch.randn(1, 4, 8, 8, dtype=prompt.dtype)  # BORN
    for _ in range(2):
        latents = latents - 0.1 * denoiser(latents, prompt)
    return vae.decode(latents / 0.18)


torch.manual_seed(0)
text_encoder, denoiser, vae = TextEncoder(), Denoiser(), Vae()
for model in (text_encoder, denoiser, vae):
    model.requires_grad_(False).to(torch.bfloat16)
for p in text_encoder.proj.parameters():
    p.requires_grad_(True)
text_encoder.to(torch.float32)
optimizer = torch.optim.AdamW([p for p in text_encoder.parameters() if p.requires_grad], lr=1e-3)
ids = torch.randint(0, 40, (1, 5))
for _ in range(2):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.mse_loss(denoiser(torch.randn(1, 4, 8, 8), text_encoder(ids)).float(), torch.zeros(1, 4, 8, 8))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(validate(text_encoder, denoiser, vae, ids).shape)
