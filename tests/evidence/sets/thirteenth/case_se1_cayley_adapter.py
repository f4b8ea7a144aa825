"""
title: an orthogonal adapter network is trained wholly in bfloat16
expect: collision
thread: https://github.com/KohakuBlueleaf/LyCORIS/issues/123
fix_at: 19, 25, 34, 38, 39, 40, 41, 82

Expectation, written first: with full_bf16 the network's blocks are bfloat16, and the Cayley transform inverts a
matrix built of them; linalg.inv does not take low precision.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Args:
    full_bf16: bool = True
    learning_rate: float = 5e-3
    steps: int = 6


def prepare_dtype(args):
    return torch.bfloat16 if args.full_bf16 else torch.float32  # BORN


class DiagOFTModule(nn.Module):
    def __init__(self, org, block_size=4, constraint=0.5):
        super().__init__()
        self.org = [org]
        self.block_size, self.blocks = block_size, org.out_features // block_size
        self.constraint = constraint
        self.oft_blocks = nn.Parameter(torch.zeros(self.blocks, block_size, block_size))
        self.register_buffer("I", torch.eye(block_size))

    def get_r(self):
        q = self.oft_blocks - self.oft_blocks.transpose(1, 2)
        norm = torch.linalg.vector_norm(q) + 1e-5
        normed_q = q * (norm.clamp(max=self.constraint) / norm)
        return (self.I + normed_q) @ (self.I - normed_q).inverse()  # COLLIDES

    def make_weight(self, weight):
        blocks = weight.unflatten(0, (self.blocks, self.block_size))
        return torch.einsum("knm,knp->kmp", self.get_r().to(weight.dtype), blocks).flatten(0, 1)

    def forward(self, x):
        org = self.org[0]
        return F.linear(x, self.make_weight(org.weight), org.bias)

    def apply_to(self):
        self.org[0].forward = self.forward


class LycorisNetwork(nn.Module):
    def __init__(self, unet):
        super().__init__()
        linears = [m for m in unet.modules() if isinstance(m, nn.Linear)]
        self.loras = nn.ModuleList(DiagOFTModule(m) for m in linears)

    def apply_to(self):
        for lora in self.loras:
            lora.apply_to()


class UNet(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.down, self.mid, self.up = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        h = F.silu(self.down(x))
        return self.up(h + F.silu(self.mid(h)))


class NetworkTrainer:
    def __init__(self, args):
        self.args, self.weight_dtype = args, prepare_dtype(args)
        self.unet = UNet().requires_grad_(False).to(self.weight_dtype)
        self.network = LycorisNetwork(self.unet)
        self.network.apply_to()
        self.network.to(self.weight_dtype)  # BORN

    def train(self):
        opt = torch.optim.AdamW(self.network.parameters(), lr=self.args.learning_rate)
        gen = torch.Generator().manual_seed(4)
        for _ in range(self.args.steps):
            x = torch.randn(32, 16, generator=gen).to(self.weight_dtype)
            loss = F.mse_loss(self.unet(x).float(), x.roll(1, -1).float())
            opt.zero_grad()
            loss.backward()
            opt.step()
        return loss.item()


torch.manual_seed(0)
print(f"loss {NetworkTrainer(Args()).train():.3f}")
