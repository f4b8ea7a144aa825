"""
title: SFT with LoRA on a float16 base: the adapters are float16 too and the GradScaler refuses to unscale their gradients
expect: collision
thread: https://github.com/mst272/LLM-Dojo/issues/11
fix_at:

Expectation, written first: the base model is loaded in float16 and the adapter copies the dtype of the layer it wraps, so the trainable parameters and
their gradients are half. Training runs with fp16 mixed precision, and GradScaler.unscale_ refuses half gradients. Either the adapter is created in
float32 or the base is not loaded in float16.
"""
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class SFTArguments:
    torch_dtype: str = "float16"  # BORN
    lora_rank: int = 4
    lora_alpha: int = 8
    max_grad_norm: float = 1.0
    learning_rate: float = 2e-4


class TinyCausalLM(nn.Module):
    def __init__(self, vocab=64, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.q_proj = nn.Linear(dim, dim, bias=False)
        self.v_proj = nn.Linear(dim, dim, bias=False)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, input_ids):
        h = self.embed(input_ids)
        h = h + torch.tanh(self.q_proj(h)) * self.v_proj(h)
        return self.lm_head(h)


class LoraLinear(nn.Module):
    def __init__(self, base, r, alpha):
        super().__init__()
        self.base = base
        dtype = base.weight.dtype  # BORN
        self.lora_A = nn.Parameter(torch.randn(r, base.in_features, dtype=dtype) * 0.02)  # BORN
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r, dtype=dtype))  # BORN
        self.scaling = alpha / r

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.lora_A), self.lora_B) * self.scaling


def create_model(args):
    model = TinyCausalLM().to(getattr(torch, args.torch_dtype))  # BORN
    model.requires_grad_(False)
    for name in ("q_proj", "v_proj"):
        setattr(model, name, LoraLinear(getattr(model, name), args.lora_rank, args.lora_alpha))
    return model


class SFTTrainer:
    def __init__(self, model, args):
        self.model, self.args = model, args
        self.params = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.params, lr=args.learning_rate)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)

    def training_step(self, input_ids):
        with torch.autocast("cpu", dtype=torch.float16):
            logits = self.model(input_ids)
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), input_ids[:, 1:].flatten())
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)  # COLLIDES
        torch.nn.utils.clip_grad_norm_(self.params, self.args.max_grad_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        return loss.item()


if __name__ == "__main__":
    torch.manual_seed(42)
    sft_args = SFTArguments()
    trainer = SFTTrainer(create_model(sft_args), sft_args)
    for step in range(3):
        print(step, trainer.training_step(torch.randint(0, 64, (2, 12))))
