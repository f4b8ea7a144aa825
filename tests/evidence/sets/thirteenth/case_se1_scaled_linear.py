"""
title: a linear layer with float8 scaling in the forward pass and none in the backward pass
expect: collision
thread: https://github.com/pytorch/ao/issues/4616
fix_at: 35, 43, 46, 49, 59, 61, 91

Expectation, written first: under autocast the layer's output and its gradient are bfloat16, but the weight saved for
the backward pass is the float32 master; with scaling disabled there it meets the gradient as it is.
"""
import enum

import torch
import torch.nn.functional as F
from torch import nn


class ScalingType(enum.Enum):
    DYNAMIC = "dynamic"
    DISABLED = "disabled"


E4M3_MAX = torch.finfo(torch.float8_e4m3fn).max


def hp_tensor_to_float8_dynamic(x, out_dtype):
    """rounded to float8 with one scale, and back in the dtype of the product"""
    scale = E4M3_MAX / x.abs().amax().float().clamp(min=1e-12)
    low = (x.float() * scale).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)
    return (low.float() / scale).to(out_dtype)


class matmul_with_hp_or_float8_args(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_hp, weight_hp_t, backward_scaling):
        ctx.save_for_backward(input_hp, weight_hp_t)  # BORN
        ctx.backward_scaling = backward_scaling
        x = hp_tensor_to_float8_dynamic(input_hp, input_hp.dtype)
        w = hp_tensor_to_float8_dynamic(weight_hp_t, input_hp.dtype)
        return torch.mm(x.flatten(0, -2), w).unflatten(0, input_hp.shape[:-1])

    @staticmethod
    def backward(ctx, grad_output):
        input_hp, weight_hp_t = ctx.saved_tensors
        grad = grad_output.flatten(0, -2)
        if ctx.backward_scaling is ScalingType.DISABLED:
            weight_t = weight_hp_t  # BORN
        else:
            weight_t = hp_tensor_to_float8_dynamic(weight_hp_t, grad.dtype)
        grad_input = torch.mm(grad, weight_t.t())  # COLLIDES
        grad_weight_t = torch.mm(input_hp.flatten(0, -2).t(), grad)
        return grad_input.unflatten(0, grad_output.shape[:-1]), grad_weight_t, None


class Float8Linear(nn.Linear):
    backward_scaling = ScalingType.DISABLED

    def forward(self, x):
        if torch.is_autocast_enabled("cpu"):
            x = x.to(torch.get_autocast_dtype("cpu"))
        with torch.autocast("cpu", enabled=False):
            out = matmul_with_hp_or_float8_args.apply(x, self.weight.t(), self.backward_scaling)
        return out if self.bias is None else out + self.bias.to(out.dtype)


def convert_to_float8_training(model):
    for name, child in model.named_children():
        if isinstance(child, nn.Linear):
            new = Float8Linear(child.in_features, child.out_features, child.bias is not None)
            new.load_state_dict(child.state_dict())
            setattr(model, name, new)
        else:
            convert_to_float8_training(child)
    return model


class MLP(nn.Module):
    def __init__(self, dim=16, hidden=32):
        super().__init__()
        self.w1, self.w2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return self.norm(x + self.w2(F.gelu(self.w1(x))))


def train(model, steps=8):
    gen = torch.Generator().manual_seed(3)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        x = torch.randn(4, 6, 16, generator=gen)
        with torch.autocast("cpu", torch.bfloat16):
            out = model(x)
        loss = F.mse_loss(out.float(), x.roll(1, -1))
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


torch.manual_seed(0)
model = convert_to_float8_training(nn.Sequential(MLP(), MLP()))
print(f"loss {train(model):.3f}")
