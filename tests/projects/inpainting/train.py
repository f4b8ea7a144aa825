"""Fine-tunes adapters on a small inpainting diffusion model in half precision."""
import numpy as np
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
from torch import nn
from transformers import CLIPTextConfig, CLIPTextModel

import pictures

WEIGHTS = torch.float16
SCALE = 1024  # of the loss: AdamW squares gradients, and float16 ends at 6e-08


class LoRA(nn.Module):
    """A low-rank addition to a frozen projection; its first matrix is frozen, too (LoRA-FA)."""

    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False).requires_grad_(False)
        self.up = nn.Linear(rank, base.out_features, bias=False).to(base.weight.dtype)
        nn.init.normal_(self.up.weight, std=0.01)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def attach(unet):
    for module in list(unet.modules()):
        if hasattr(module, "to_q") and not isinstance(module.to_q, LoRA):
            module.to_q = LoRA(module.to_q)
    return [p for name, p in unet.named_parameters() if ".up." in name and "to_q" in name]


def load():
    torch.manual_seed(0)
    vae = AutoencoderKL(
        in_channels=3, out_channels=3, latent_channels=4, block_out_channels=(16, 32), layers_per_block=1,
        norm_num_groups=8, down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    )
    unet = UNet2DConditionModel(
        sample_size=8, in_channels=9, out_channels=4, block_out_channels=(16, 32), layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=16, attention_head_dim=8, norm_num_groups=8,
    )
    text = CLIPTextModel(CLIPTextConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=8,
    ))
    vae.requires_grad_(False)
    unet.requires_grad_(False)
    text.requires_grad_(False)
    return vae.to(WEIGHTS), unet.to(WEIGHTS), text.to(WEIGHTS)


class Judge(nn.Module):
    """Tells the style of the text, and how good the picture will be."""

    def __init__(self, width=16):
        super().__init__()
        self.memory = nn.GRU(width, width, batch_first=True)
        self.style = nn.Linear(width, 4)
        self.score = nn.Linear(width, 1)

    def forward(self, states):
        start = torch.zeros(1, len(states), states.shape[-1])
        _, last = self.memory(states, start)
        return self.style(last[0]), self.score(last[0]).squeeze(-1)


def whiten(states):
    """Removes what all tokens have in common."""
    flat = states.flatten(0, 1)
    flat = flat - flat.mean(dim=0)
    covariance = flat.t() @ flat / len(flat)
    factor = torch.linalg.cholesky(covariance + torch.eye(len(covariance), dtype=states.dtype))
    return states @ factor


def emphasise(states):
    weights = torch.linspace(1.0, 0.8, states.shape[1])
    return states * weights[:, None]


def remember(bank, rows, states):
    bank[rows] = states.mean(dim=1)
    return bank


def attend(states, ids):
    scores = states @ states.transpose(1, 2)
    scores = scores.masked_fill((ids == 0)[:, None], -1e9)
    return scores.softmax(dim=-1) @ states


def widen(parameters):
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.data = parameter.grad.data.to(torch.float32)


def main():
    vae, unet, text = load()
    trainable = attach(unet)
    judge = Judge().to(WEIGHTS)
    scheduler = DDPMScheduler(num_train_timesteps=100)
    optimizer = torch.optim.AdamW([*trainable, *judge.parameters()], lr=1e-3, betas=(0.9, 0.9), eps=1e-4, foreach=True)
    generator = np.random.default_rng(0)
    bank = torch.zeros(8, 16)
    for step in range(2):
        batch = pictures.batch(generator)
        with torch.no_grad():
            latents = vae.encode(batch["pictures"]).latent_dist.mean
            states = text(input_ids=batch["ids"]).last_hidden_state
            states = attend(states, batch["ids"])
            bank = remember(bank, torch.arange(2) + 2 * step, states)
            states = whiten(states)
        noise = torch.randn_like(latents)
        timesteps = torch.randint(0, 100, (len(latents),))
        noisy = scheduler.add_noise(latents, noise, timesteps)
        sample = torch.cat([noisy, batch["masks"], latents], dim=1)
        predicted = unet(sample, timesteps, encoder_hidden_states=emphasise(states)).sample
        style, score = judge(states)
        loss = F.mse_loss(predicted.float(), noise.float())
        loss = loss + F.cross_entropy(style.float(), batch["styles"])
        loss = loss + F.huber_loss(score.float(), batch["scores"])
        optimizer.zero_grad()
        (loss * SCALE).backward()
        widen([*trainable, *judge.parameters()])
        optimizer.step()
        print("loss", round(loss.item(), 3), bank.dtype)


if __name__ == "__main__":
    main()
