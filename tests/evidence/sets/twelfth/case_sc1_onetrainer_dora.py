"""
title: DoRA with bfloat16 weights: the magnitude vector is float32 and the recomposed weight follows it
expect: collision
thread: https://github.com/Nerogar/OneTrainer/issues/1479
fix_at: 46, 47, 52, 55, 56

Expectation, written first: the column norms are taken in float32 and kept so; magnitude times direction is float32,
and the linear function refuses this weight for a bfloat16 input.
"""
from argparse import Namespace

import torch
import torch.nn.functional as F
from torch import nn


class LoRAModule(nn.Module):
    def __init__(self, prefix, orig, rank, alpha):
        super().__init__()
        self.prefix, self.orig = prefix, [orig]
        self.lora_down = nn.Linear(orig.in_features, rank, bias=False)
        self.lora_up = nn.Linear(rank, orig.out_features, bias=False)
        nn.init.zeros_(self.lora_up.weight)
        self.scale = alpha / rank

    @property
    def orig_module(self):
        return self.orig[0]

    def make_weight(self):
        return self.lora_up.weight @ self.lora_down.weight

    def forward(self, x):
        orig = self.orig_module
        return F.linear(x, orig.weight, orig.bias) + self.scale * self.lora_up(self.lora_down(x))


class DoRAModule(LoRAModule):
    def __init__(self, prefix, orig, rank, alpha, train_dtype):
        super().__init__(prefix, orig, rank, alpha)
        self.train_dtype = train_dtype
        self.to(train_dtype)
        self.initialize_magnitude()

    def initialize_magnitude(self):
        norm = self.orig_module.weight.detach().float().norm(dim=1, keepdim=True)  # BORN
        self.dora_scale = nn.Parameter(norm)

    def recompose(self):
        weight = self.orig_module.weight + self.scale * self.make_weight()
        norm = weight.detach().norm(dim=1, keepdim=True) + torch.finfo(weight.dtype).eps
        return self.dora_scale * (weight / norm)

    def forward(self, x):
        weight = self.recompose()
        return F.linear(x, weight, self.orig_module.bias)  # COLLIDES


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.to_q, self.to_v, self.to_out = nn.LayerNorm(dim), *(nn.Linear(dim, dim) for _ in range(3))

    def forward(self, x):
        h = self.norm(x)
        gate = torch.softmax(self.to_q(h).float(), dim=-1).to(x.dtype)
        return x + self.to_out(gate * self.to_v(h))


class LoRAModuleWrapper:
    def __init__(self, model, config):
        kind = {"DORA": DoRAModule, "LORA": LoRAModule}[config.peft_type]
        dtype = {"BFLOAT_16": torch.bfloat16, "FLOAT_32": torch.float32}[config.lora_weight_dtype]
        self.modules = []
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear) and name.endswith(tuple(config.layer_filter)):
                extra = (dtype,) if kind is DoRAModule else ()
                self.modules.append(kind(name, module, config.rank, config.alpha, *extra))

    def parameters(self):
        return [p for m in self.modules for p in m.parameters()]


class GenericTrainer:
    def __init__(self, config):
        torch.manual_seed(config.seed)
        self.config = config
        self.model = nn.Sequential(*(Block(16) for _ in range(2))).to(torch.bfloat16).requires_grad_(False)
        self.peft = LoRAModuleWrapper(self.model, config)
        for m in self.peft.modules:
            m.orig_module.forward = m.forward
        self.optimizer = torch.optim.SGD(self.peft.parameters(), lr=config.learning_rate)

    def train(self, steps):
        for _ in range(steps):
            latent = torch.randn(4, 6, 16).to(torch.bfloat16)
            noise = torch.randn_like(latent)
            predicted = self.model(0.7 * latent + 0.7 * noise)
            loss = F.mse_loss(predicted.float(), (noise - latent).float())
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.item()


config = Namespace(
    peft_type="DORA", lora_weight_dtype="BFLOAT_16", rank=4, alpha=4.0, layer_filter=["to_q", "to_v"],
    learning_rate=0.1, seed=0,
)
print(f"loss {GenericTrainer(config).train(steps=3):.2f}")
