"""
title: deformable aggregation as a custom autograd function: bf16 gradient meets the float32 weights saved for backward
expect: collision
thread: https://github.com/OpenGVLab/DCNv4/issues/24
fix_at: 31

Expectation, written first: the function computes in float32, returns the dtype of its input and saves its float32 copies for the backward pass. Under
bf16 autocast the input is bfloat16, so the gradient that arrives is bfloat16 and the matmul with the saved float32 tensors in backward is refused. The
gradient must be cast in backward, or the tensors must be saved in the dtype of the input.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Function


class DCNFunction(Function):
    @staticmethod
    def forward(ctx, value, weights):
        v = value.float()
        w = torch.softmax(weights.float(), dim=-1)
        ctx.in_dtypes = (value.dtype, weights.dtype)
        ctx.save_for_backward(v, w)  # BORN
        return torch.matmul(w, v).to(value.dtype)

    @staticmethod
    def backward(ctx, grad_output):
        v, w = ctx.saved_tensors
        grad_output = grad_output.contiguous()  # BORN
        grad_value = torch.matmul(w.transpose(1, 2), grad_output)  # BORN COLLIDES
        grad_attn = torch.matmul(grad_output, v.transpose(1, 2))
        grad_weights = w * (grad_attn - (grad_attn * w).sum(dim=-1, keepdim=True))
        return grad_value.to(ctx.in_dtypes[0]), grad_weights.to(ctx.in_dtypes[1])


class DCNLayer(nn.Module):
    def __init__(self, channels, tokens):
        super().__init__()
        self.value_proj = nn.Linear(channels, channels)
        self.offset_mask = nn.Linear(channels, tokens)
        self.output_proj = nn.Linear(channels, channels)

    def forward(self, x):
        value = self.value_proj(x)
        weights = self.offset_mask(x)
        return self.output_proj(DCNFunction.apply(value, weights))


class FlashInternImageBlock(nn.Module):
    def __init__(self, channels, tokens):
        super().__init__()
        self.norm1 = nn.LayerNorm(channels)
        self.dcn = DCNLayer(channels, tokens)
        self.norm2 = nn.LayerNorm(channels)
        self.mlp = nn.Sequential(nn.Linear(channels, 2 * channels), nn.GELU(), nn.Linear(2 * channels, channels))

    def forward(self, x):
        x = x + self.dcn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Classifier(nn.Module):
    def __init__(self, channels=16, tokens=16, classes=4):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, channels, 4, stride=4)
        self.blocks = nn.ModuleList(FlashInternImageBlock(channels, tokens) for _ in range(2))
        self.head = nn.Linear(channels, classes)

    def forward(self, images):
        x = self.patch_embed(images).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(dim=1))


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    images, labels = torch.rand(4, 3, 16, 16), torch.randint(0, 4, (4,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(images).float(), labels)
    loss.backward()  # COLLIDES
    optimizer.step()
    print("loss", loss.item())
