"""
title: a hand-written backward of a LoRA product multiplies a bfloat16 gradient with float32 adapter weights
expect: collision
thread: https://github.com/unslothai/unsloth/issues/320
fix_at: 21, 27, 30, 31, 32, 33, 34, 46, 71, 78

Expectation, written first: the preparation for k-bit training raised the adapters to float32; the forward of the
fused function casts them to the dtype of x, its backward uses them as they were saved. Cause: the preparation that
raises, or the save_for_backward that keeps the uncast adapters (the product in backward is where it shows and where
a cast would do as well).
"""
import torch
import torch.nn.functional as F
from torch import nn


class FusedLoRA(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, A, B, scale):
        a, b = A.to(x.dtype), B.to(x.dtype)
        ctx.save_for_backward(x, weight, A, B)  # BORN
        ctx.scale = scale
        return x @ weight.t() + scale * ((x @ a.t()) @ b.t())

    @staticmethod
    def backward(ctx, dY):
        x, weight, A, B = ctx.saved_tensors
        shape = x.shape
        x, dY = x.reshape(-1, shape[-1]), dY.reshape(-1, dY.shape[-1])
        dH = ctx.scale * (dY @ B)  # COLLIDES
        dA = dH.t() @ x
        dB = ctx.scale * (dY.t() @ (x @ A.t()))
        dX = dY @ weight + dH @ A
        return dX.reshape(shape), None, dA, dB, None


class LoRAProjection(nn.Module):
    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base, self.scale = base, alpha / rank
        dtype = base.weight.dtype
        self.lora_A = nn.Parameter(torch.randn(rank, base.in_features, dtype=dtype) / rank)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank, dtype=dtype))

    def forward(self, x):
        return FusedLoRA.apply(x, self.base.weight, self.lora_A, self.lora_B, self.scale)


class MLP(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return x + self.down(F.silu(self.up(x)))


def get_peft_model(model, names, rank=4, alpha=8):
    model.requires_grad_(False)
    for block in model:
        for name in names:
            setattr(block, name, LoRAProjection(getattr(block, name), rank, alpha))
    return model


def prepare_for_training(model):
    for name, param in model.named_parameters():
        param.requires_grad_("lora_" in name)
        if param.requires_grad:
            param.data = param.data.to(torch.float32)  # BORN
    return model


def main():
    torch.manual_seed(0)
    model = nn.Sequential(MLP(24, 48), MLP(24, 48)).to(torch.bfloat16)
    model = prepare_for_training(get_peft_model(model, ["up", "down"]))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    x = torch.randn(4, 10, 24).to(torch.bfloat16)
    for step in range(4):
        loss = (model(x) - x.flip(-1)).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, f"{loss.item():.2f}")


main()
