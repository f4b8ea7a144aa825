"""
title: INT8 linear with a hard-wired bfloat16 compute dtype in a half-precision diffusion block
expect: collision
thread: https://github.com/BobJohnson24/ComfyUI-INT8-Fast/issues/78
fix_at: 45

Expectation, written first: the loader runs the model in float16 (cards without bfloat16), the INT8 layer
dequantises its weight to compute_dtype, which its constructor sets to bfloat16. F.linear gets half activations and
a bfloat16 weight and raises. The compute dtype must follow the model's or the activation's dtype.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def quantize_int8(weight):
    scale = weight.float().abs().amax(dim=1, keepdim=True).clamp(min=1e-30) / 127.0
    return torch.round(weight.float() / scale).clamp(-128, 127).to(torch.int8), scale


class Int8TensorwiseLinear(nn.Module):
    def __init__(self, linear, small_batch=64):
        super().__init__()
        qweight, scale = quantize_int8(linear.weight.data)
        self.register_buffer("weight", qweight)
        self.register_buffer("weight_scale", scale)
        self.bias = linear.bias
        self.small_batch = small_batch
        self.compute_dtype = torch.bfloat16  # BORN

    def dequantized(self):
        return (self.weight.float() * self.weight_scale).to(self.compute_dtype)  # BORN

    def dynamic_int8(self, x):
        x_scale = x.float().abs().amax(dim=-1, keepdim=True).clamp(min=1e-30) / 127.0
        xq = torch.round(x.float() / x_scale).clamp(-128, 127)
        acc = xq @ self.weight.float().t()
        out = (acc * x_scale * self.weight_scale.t()).to(x.dtype)
        return out if self.bias is None else out + self.bias.to(x.dtype)

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1]).shape[0]
        if tokens > self.small_batch:
            return self.dynamic_int8(x)
        weight = self.dequantized()
        bias = None if self.bias is None else self.bias.to(weight.dtype)
        return F.linear(x, weight, bias)  # BORN COLLIDES


class DiTBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim, elementwise_affine=False)
        self.mlp_in = nn.Linear(dim, 2 * dim)
        self.mlp_out = nn.Linear(2 * dim, dim)
        self.modulation = nn.Linear(dim, 2 * dim)

    def forward(self, x, temb):
        shift, scale = self.modulation(F.silu(temb)).unsqueeze(1).chunk(2, dim=-1)
        h = self.norm(x) * (1 + scale) + shift
        return x + self.mlp_out(F.gelu(self.mlp_in(h)))


def load_int8(model, dtype, excluded=()):
    model.to(dtype)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and name not in excluded:
                setattr(parent, name, Int8TensorwiseLinear(child))
    return model.eval()


if __name__ == "__main__":
    torch.manual_seed(0)
    model = load_int8(nn.ModuleList([DiTBlock(32) for _ in range(2)]), dtype=torch.float16)
    latents = torch.randn(1, 100, 32, dtype=torch.float16)
    temb = torch.randn(1, 32, dtype=torch.float16)
    with torch.no_grad():
        for block in model:
            latents = block(latents, temb)
    print("latent std", f"{latents.float().std().item():.3f}")
