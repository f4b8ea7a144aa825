"""
title: a fused LoRA function casts its adapters in forward and forgets to in backward
expect: collision
thread: https://github.com/unslothai/unsloth/pull/4918
fix_at: 20, 32, 37, 40

Expectation, written first: the adapters are float32 and are cast to the activation's bfloat16 on the way forward;
backward multiplies the bfloat16 gradient by the float32 adapter that was saved and is refused there.
"""
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class PeftArgs:
    r: int = 4
    target_modules: tuple = ("gate_proj", "up_proj", "down_proj")
    adapter_dtype: torch.dtype = torch.float32  # BORN


def matmul_lora(X, W, A, B, s):
    out = X @ W.t()
    return out + (X @ A.to(X.dtype).t()) @ B.to(X.dtype).t() * s


class LoRA_W(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, W, A, B, s):
        ctx.s = s
        ctx.save_for_backward(X, W, A, B)
        return matmul_lora(X, W, A, B, s)

    @staticmethod
    def backward(ctx, dY):
        X, W, A, B = ctx.saved_tensors
        shape = X.shape
        dY, X = dY.reshape(-1, dY.shape[-1]), X.reshape(-1, X.shape[-1])
        dYB = dY @ B  # COLLIDES
        d_A = (dYB.t() @ X) * ctx.s
        d_B = (dY.t() @ (X @ A.t())) * ctx.s
        dX = dY @ W + (dYB @ A) * ctx.s
        return dX.reshape(shape), None, d_A, d_B, None


class LoraLinear(nn.Module):
    def __init__(self, base, args):
        super().__init__()
        self.weight, self.s = base.weight.requires_grad_(False), 2.0
        self.lora_A = nn.Parameter((torch.randn(args.r, base.in_features) * 0.05).to(args.adapter_dtype))
        self.lora_B = nn.Parameter((torch.randn(base.out_features, args.r) * 0.05).to(args.adapter_dtype))

    def forward(self, x):
        return LoRA_W.apply(x, self.weight, self.lora_A, self.lora_B, self.s)


class SwiGLU(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(dim, hidden, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return x + self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class TinyLM(nn.Module):
    def __init__(self, vocab=48, dim=24):
        super().__init__()
        self.embed, self.layers = nn.Embedding(vocab, dim), nn.ModuleList(SwiGLU(dim, 40) for _ in range(2))
        self.norm, self.lm_head = nn.RMSNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def get_peft_model(model, args):
    model.requires_grad_(False)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if name in args.target_modules:
                setattr(parent, name, LoraLinear(child, args))
    return model


class SFTTrainer:
    def __init__(self, model, rows, lr=1e-2, batch_size=4):
        self.model = model
        self.optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr)
        self.loader = torch.utils.data.DataLoader(rows, batch_size)

    def train(self):
        for ids in self.loader:
            logits = self.model(ids[:, :-1]).float()
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.item()


torch.manual_seed(3407)
model = get_peft_model(TinyLM().to(torch.bfloat16), PeftArgs())
rows = torch.randint(0, 48, (12, 9))
print(f"loss {SFTTrainer(model, rows).train():.3f}")
