"""
title: Diag-OFT with full bf16 training: linalg.inv: Low precision dtypes not supported
expect: collision
thread: https://github.com/KohakuBlueleaf/LyCORIS/issues/123
fix_at: 51, 52, 71 (where full_bf16 is asked; the forward, which must cast if the blocks stay float32)

Expectation, written first: with full_bf16 the trainer casts the whole network, OFT blocks too, to bfloat16; the Cayley transform in get_r
then inverts a bfloat16 matrix, which linalg does not support. Either the inverse is computed in float32 and cast back, or the blocks are kept
out of the cast.
"""
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F


class DiagOFTModule(nn.Module):
    def __init__(self, lora_name, org_module, multiplier=1.0, num_blocks=4, constrain=1e-3):
        super().__init__()
        self.lora_name = lora_name
        out_dim = org_module.out_features
        self.block_size, self.block_num = out_dim // num_blocks, num_blocks
        self.multiplier = multiplier
        self.register_buffer("constrain", torch.tensor(constrain * out_dim))
        self.register_buffer("I", torch.eye(self.block_size))
        self.oft_blocks = nn.Parameter(torch.zeros(self.block_num, self.block_size, self.block_size))
        nn.init.normal_(self.oft_blocks, std=1e-2)
        self.org_module = [org_module]
        self.org_forward = org_module.forward

    def apply_to(self):
        self.org_module[0].forward = self.forward

    def get_r(self):
        q = self.oft_blocks - self.oft_blocks.transpose(1, 2)
        norm_q = torch.norm(q.flatten())
        new_norm_q = torch.clamp(norm_q, max=self.constrain)
        normed_q = q * ((new_norm_q + 1e-8) / (norm_q + 1e-8))
        r = (self.I + normed_q) @ (self.I - normed_q).inverse()  # BORN COLLIDES
        return r

    def make_weight(self, scale=1.0):
        r = self.get_r()
        org_weight = self.org_module[0].weight
        r = r * scale + (1 - scale) * self.I
        weight = org_weight.view(self.block_num, self.block_size, -1).to(r)
        return torch.einsum("knm,kmq->knq", r, weight).reshape(org_weight.shape)

    def forward(self, x):
        weight = self.make_weight(self.multiplier)
        return F.linear(x, weight, self.org_module[0].bias)


class LycorisNetwork(nn.Module):
    def __init__(self, unet):
        super().__init__()
        self.unet_loras = nn.ModuleList(
            DiagOFTModule(f"lycoris_{name}", m) for name, m in unet.named_modules() if isinstance(m, nn.Linear)
        )
        for lora in self.unet_loras:
            lora.apply_to()


def train(args):
    torch.manual_seed(args.seed)
    unet = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16)).requires_grad_(False)
    network = LycorisNetwork(unet)
    weight_dtype = torch.bfloat16 if args.mixed_precision == "bf16" else torch.float32
    unet.to(weight_dtype)
    if args.full_bf16:
        network.to(weight_dtype)  # BORN
    optimizer = torch.optim.AdamW(network.parameters(), lr=args.learning_rate)
    for step in range(args.max_train_steps):
        latents = torch.randn(4, 16).to(weight_dtype)
        noise = torch.randn_like(latents)
        pred = unet(latents + noise)
        loss = F.mse_loss(pred.float(), noise.float())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, round(loss.item(), 4))


if __name__ == "__main__":
    train(SimpleNamespace(mixed_precision="bf16", full_bf16=True, learning_rate=1e-3, max_train_steps=2, seed=42))
