"""
title: an orthogonal adapter inverts its Cayley factor after the whole network went to bfloat16
expect: collision
thread: https://github.com/KohakuBlueleaf/LyCORIS/issues/123
fix_at: 30, 31, 64, 65, 73, 85, 86

Expectation, written first: with full_bf16 the trainer casts the network to bfloat16, blocks and identity included;
the rotation is (I + Q)(I - Q)^-1 and the inverse has no low precision kernel.
"""
import argparse

import torch
import torch.nn.functional as F
from torch import nn


class DiagOFT(nn.Module):
    def __init__(self, name, org, block_size=4):
        super().__init__()
        self.name, self.org_forward, self.org = name, org.forward, [org]
        self.blocks = org.out_features // block_size
        self.block_size = block_size
        self.oft_blocks = nn.Parameter(torch.zeros(self.blocks, block_size, block_size))
        self.register_buffer("eye", torch.eye(block_size))

    def apply_to(self):
        self.org[0].forward = self.forward

    def get_r(self):
        q = self.oft_blocks - self.oft_blocks.mT
        return (self.eye + q) @ (self.eye - q).inverse()  # COLLIDES

    def make_weight(self):
        r = self.get_r()
        weight = self.org[0].weight.view(self.blocks, self.block_size, -1)
        return torch.bmm(r.to(weight.dtype), weight).flatten(0, 1)

    def forward(self, x):
        return F.linear(x, self.make_weight(), self.org[0].bias)


class Network(nn.Module):
    def __init__(self, unet):
        super().__init__()
        found = [(n, m) for n, m in unet.named_modules() if isinstance(m, nn.Linear) and "to_" in n]
        self.loras = nn.ModuleList(DiagOFT(n, m) for n, m in found)

    def apply_to(self):
        for lora in self.loras:
            lora.apply_to()
        return self


class Attention(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.to_q, self.to_k, self.to_v = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x):
        return x + F.scaled_dot_product_attention(self.to_q(x), self.to_k(x), self.to_v(x))


def prepare_dtype(args):
    weight = {"no": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[args.mixed_precision]
    return weight, weight if args.full_bf16 else torch.float32  # BORN


def train(args):
    torch.manual_seed(0)
    weight_dtype, network_dtype = prepare_dtype(args)
    unet = Attention().requires_grad_(False).to(weight_dtype)
    network = Network(unet).apply_to()
    network.to(network_dtype)  # BORN
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    latents = torch.randn(2, 6, 16, dtype=weight_dtype)
    for _ in range(3):
        loss = (unet(latents) - latents.flip(1)).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"loss {loss.item():.4f}")


parser = argparse.ArgumentParser()
parser.add_argument("--mixed_precision", default="bf16")
parser.add_argument("--full_bf16", action="store_true", default=True)  # BORN
train(parser.parse_args([]))
