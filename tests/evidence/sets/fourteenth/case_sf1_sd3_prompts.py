"""
title: the prompt embeddings of an SD3 training script stay float32 while the transformer is in bfloat16
expect: collision
thread: https://github.com/huggingface/diffusers/issues/11050
fix_at: 29, 32, 38, 48, 55

Expectation, written first: latents, noise and transformer are cast to the weight dtype; the embeddings come from
float32 text encoders and are passed on as they are; a linear layer of the bfloat16 transformer refuses them.
"""
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, SD3Transformer2DModel
from torch import nn


class TextEncoder(nn.Module):
    def __init__(self, vocab=50, width=32, pooled=16):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.mix = nn.Linear(width, width)
        self.pool = nn.Linear(width, pooled)

    def forward(self, ids):
        h = torch.tanh(self.mix(self.tokens(ids)))
        return h, self.pool(h.mean(1))


def compute_text_embeddings(ids, encoders):
    with torch.no_grad():
        outs = [encoder(ids) for encoder in encoders]  # BORN
        prompt_embeds = torch.cat([h for h, _ in outs], dim=1)
        pooled_prompt_embeds = torch.cat([p for _, p in outs], dim=-1)
    return prompt_embeds, pooled_prompt_embeds


class Trainer:
    def __init__(self, mixed_precision):
        self.weight_dtype = {"no": torch.float32, "bf16": torch.bfloat16}[mixed_precision]
        self.encoders = [TextEncoder().requires_grad_(False) for _ in range(2)]  # BORN
        self.transformer = SD3Transformer2DModel(
            sample_size=8, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=4,
            joint_attention_dim=32, caption_projection_dim=32, pooled_projection_dim=32, out_channels=4,
        )
        self.transformer.to(dtype=self.weight_dtype)
        self.scheduler = FlowMatchEulerDiscreteScheduler()
        self.opt = torch.optim.AdamW(self.transformer.parameters(), lr=1e-3)

    def step(self, batch):
        prompt_embeds, pooled = compute_text_embeddings(batch["ids"], self.encoders)
        latents = batch["latents"].to(dtype=self.weight_dtype)
        noise = torch.randn_like(latents)
        index = torch.randint(0, 1000, (len(latents),))
        timesteps = self.scheduler.timesteps[index]
        sigmas = self.scheduler.sigmas[index].to(self.weight_dtype).view(-1, 1, 1, 1)
        noisy = (1 - sigmas) * latents + sigmas * noise
        pred = self.transformer(  # COLLIDES
            hidden_states=noisy, timestep=timesteps, encoder_hidden_states=prompt_embeds, pooled_projections=pooled
        ).sample
        loss = (pred.float() - (noise - latents).float()).square().mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


def main():
    torch.manual_seed(30)
    trainer = Trainer("bf16")
    batch = {"ids": torch.randint(0, 50, (2, 5)), "latents": torch.randn(2, 4, 8, 8)}
    print("losses", [round(trainer.step(batch), 3) for _ in range(2)])


main()
