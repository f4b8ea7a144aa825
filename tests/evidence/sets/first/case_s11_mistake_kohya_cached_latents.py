"""
title: latents cached on disk come back as FloatTensor while everything else is full_bf16
expect: collision
needs: diffusers
fix_at: 121

After kohya-ss/musubi-tuner#164 and kohya-ss/sd-scripts#2364/#407 (Input type (float) and bias type (struct c10::BFloat16) should
be the same, in training from a cache). UNet, LoRA and text outputs are bfloat16 and there is no autocast; the dataset makes
float32 tensors of the arrays and the loop forgets to cast the latents (it does cast the text), so the UNet takes float32 for
its time embedding too. Right change: cast the latents to weight_dtype.
"""
import math
import os
import tempfile

import numpy as np
import torch
from diffusers import DDPMScheduler, UNet2DConditionModel
from torch import nn
from torch.utils.data import DataLoader, Dataset


class LoRAModule(nn.Module):
    """replaces forward method of the original Linear, instead of replacing the original Linear module."""

    def __init__(self, lora_name, org_module, multiplier=1.0, lora_dim=4, alpha=4):
        super().__init__()
        self.lora_name, self.multiplier, self.scale = lora_name, multiplier, alpha / lora_dim
        self.lora_down = nn.Linear(org_module.in_features, lora_dim, bias=False)
        self.lora_up = nn.Linear(lora_dim, org_module.out_features, bias=False)
        nn.init.kaiming_uniform_(self.lora_down.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_up.weight)
        self.org_module = org_module

    def apply_to(self):
        self.org_forward = self.org_module.forward
        self.org_module.forward = self.forward
        del self.org_module

    def forward(self, x):
        return self.org_forward(x) + self.lora_up(self.lora_down(x)) * self.multiplier * self.scale


class LoRANetwork(nn.Module):
    TARGET = ("Attention", "FeedForward")

    def __init__(self, unet, rank=4, alpha=4):
        super().__init__()
        self.unet_loras = nn.ModuleList()
        for name, module in unet.named_modules():
            if module.__class__.__name__ in self.TARGET:
                for child_name, child in module.named_modules():
                    if child.__class__.__name__ == "Linear":
                        lora_name = f"lora_unet.{name}.{child_name}".replace(".", "_")
                        self.unet_loras.append(LoRAModule(lora_name, child, lora_dim=rank, alpha=alpha))

    def apply_to(self):
        for lora in self.unet_loras:
            lora.apply_to()

    def prepare_optimizer_params(self, lr):
        return [{"params": list(self.unet_loras.parameters()), "lr": lr}]


class CachedDataset(Dataset):
    """Latents and text encoder outputs were cached to disk by an earlier pass (--cache_latents_to_disk)."""

    def __init__(self, folder, n):
        self.paths = [os.path.join(folder, f"{i:04d}.npz") for i in range(n)]

    def write(self, rng):
        for path in self.paths:
            np.savez(path, latents=rng.standard_normal((4, 8, 8)).astype(np.float32),
                     text=rng.standard_normal((5, 16)).astype(np.float32))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        npz = np.load(self.paths[index])
        latents = torch.FloatTensor(npz["latents"])  # BORN
        return {"latents": latents, "text_encoder_outputs": torch.from_numpy(npz["text"])}


class NetworkTrainer:
    def __init__(self, args):
        self.args = args
        self.weight_dtype = torch.bfloat16

    def load_target_model(self):
        unet = UNet2DConditionModel(
            sample_size=8, block_out_channels=(16, 32), norm_num_groups=8, layers_per_block=1, cross_attention_dim=16,
            attention_head_dim=4, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"))
        return unet.requires_grad_(False).to(self.weight_dtype)

    def get_noisy_latents(self, scheduler, latents):
        noise = torch.randn_like(latents)
        timesteps = torch.randint(0, scheduler.config.num_train_timesteps, (latents.shape[0],))
        return noise, scheduler.add_noise(latents, noise, timesteps), timesteps

    def call_unet(self, unet, noisy_latents, timesteps, text):
        return unet(noisy_latents, timesteps, text).sample  # COLLIDES

    def train(self):
        args = self.args
        torch.manual_seed(args["seed"])
        unet = self.load_target_model()
        network = LoRANetwork(unet, args["network_dim"], args["network_alpha"])
        network.apply_to()
        network.to(self.weight_dtype)  # --full_bf16
        optimizer = torch.optim.AdamW(network.prepare_optimizer_params(args["learning_rate"]))
        scheduler = DDPMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear")
        with tempfile.TemporaryDirectory() as folder:
            dataset = CachedDataset(folder, 8)
            dataset.write(np.random.default_rng(3))
            unet.train()
            for epoch in range(args["max_train_epochs"]):
                total = 0.0
                for batch in DataLoader(dataset, batch_size=2, shuffle=True):
                    latents = batch["latents"] * 0.18215
                    text = batch["text_encoder_outputs"].to(self.weight_dtype)
                    noise, noisy_latents, timesteps = self.get_noisy_latents(scheduler, latents)
                    noise_pred = self.call_unet(unet, noisy_latents, timesteps, text)
                    loss = nn.functional.mse_loss(noise_pred.float(), noise.float())
                    loss.backward()
                    nn.utils.clip_grad_norm_(network.parameters(), args["max_grad_norm"])
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
                    total += loss.item()
                print(f"epoch {epoch + 1}: finite {math.isfinite(total)}")


if __name__ == "__main__":
    NetworkTrainer(dict(seed=5, network_dim=4, network_alpha=4, learning_rate=1e-3, max_train_epochs=3, max_grad_norm=1.0)).train()
