"""
title: Latents are float after the SDE step while the transformer is half
expect: collision
thread: https://github.com/yifan123/flow_grpo/issues/147
fix_at: the call of the transformer could cast its hidden_states

Expectation, written first: sde_step_with_logprob computes in float32 on purpose and returns the sample so. The
pipeline does not cast it back, so the first step runs with the half latents of the start and the second
one hands float latents to the half transformer; its patch convolution raises.
"""
import math

import torch
import torch.nn as nn


class PatchEmbed(nn.Module):
    def __init__(self, in_channels, dim, patch):
        super().__init__()
        self.proj = nn.Conv2d(in_channels, dim, patch, stride=patch)

    def forward(self, latent):
        return self.proj(latent).flatten(2).transpose(1, 2)  # COLLIDES


class SD3Transformer(nn.Module):
    def __init__(self, in_channels=4, dim=32, text_dim=16, patch=2):
        super().__init__()
        self.patch, self.in_channels = patch, in_channels
        self.pos_embed = PatchEmbed(in_channels, dim, patch)
        self.context_embedder = nn.Linear(text_dim, dim)
        self.time_embed = nn.Linear(1, dim)
        self.norm_out = nn.LayerNorm(dim)
        self.proj_out = nn.Linear(dim, patch * patch * in_channels)

    @property
    def dtype(self):
        return self.proj_out.weight.dtype

    def forward(self, hidden_states, timestep, encoder_hidden_states):
        b, c, h, w = hidden_states.shape
        x = self.pos_embed(hidden_states)
        x = x + self.time_embed(timestep[:, None].to(self.dtype) / 1000)[:, None]
        x = x + self.context_embedder(encoder_hidden_states).mean(dim=1, keepdim=True)
        x = self.proj_out(self.norm_out(x))
        x = x.view(b, h // self.patch, w // self.patch, self.patch, self.patch, c)
        return x.permute(0, 5, 1, 3, 2, 4).reshape(b, c, h, w)


def sde_step_with_logprob(sigmas, model_output, step_index, sample, noise_level=0.7):
    model_output = model_output.float()
    sample = sample.float()  # BORN
    sigma, sigma_prev = sigmas[step_index], sigmas[step_index + 1]
    dt = sigma_prev - sigma
    std_dev_t = math.sqrt(sigma / max(1 - sigma, 0.05)) * noise_level
    mean = sample * (1 + std_dev_t ** 2 / (2 * sigma) * dt)
    mean = mean + model_output * (1 + std_dev_t ** 2 * (1 - sigma) / (2 * sigma)) * dt
    noise = torch.randn(model_output.shape)
    prev_sample = mean + std_dev_t * math.sqrt(-dt) * noise  # BORN
    log_prob = -((prev_sample.detach() - mean) ** 2) / (2 * std_dev_t ** 2 * -dt) - math.log(std_dev_t * math.sqrt(-dt))
    return prev_sample, log_prob.mean(dim=(1, 2, 3))  # BORN


@torch.no_grad()
def pipeline_with_logprob(transformer, prompt_embeds, num_inference_steps=4, size=8):
    sigmas = torch.linspace(1.0, 0.2, num_inference_steps + 1).tolist()
    latents = torch.randn(len(prompt_embeds), transformer.in_channels, size, size).to(prompt_embeds.dtype)
    all_log_probs = []
    for i in range(num_inference_steps):
        timestep = torch.full((len(latents),), sigmas[i] * 1000)
        noise_pred = transformer(hidden_states=latents, timestep=timestep, encoder_hidden_states=prompt_embeds)
        latents, log_prob = sde_step_with_logprob(sigmas, noise_pred, i, latents)  # BORN
        all_log_probs.append(log_prob)
    return latents, torch.stack(all_log_probs, dim=1)


if __name__ == "__main__":
    torch.manual_seed(147)
    inference_dtype = torch.float16
    transformer = SD3Transformer().eval().to(inference_dtype)
    prompt_embeds = torch.randn(2, 5, 16).to(inference_dtype)
    latents, log_probs = pipeline_with_logprob(transformer, prompt_embeds)
    print("latents", round(latents.abs().mean().item(), 3), "log probs", log_probs.mean(dim=0).tolist())
