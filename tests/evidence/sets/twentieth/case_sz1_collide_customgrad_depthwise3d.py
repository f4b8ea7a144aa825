"""
title: the depthwise 3-D convolution trains without AMP, with autocast its own backward stops
expect: collision
thread: https://github.com/gungui98/Pytorch-Depthwise-Conv3d/issues/3

Expectation, written first: under autocast the layer is given the bf16 result of the convolution before it, while its weight is float32, and the
function's `custom_fwd` casts nothing. In the backward the buffer for the input's gradient is made like the bf16 input, the contributions are
float32, and `index_add_` wants one dtype. `cast_inputs`, the buffer's dtype or a cast of the contribution repairs it.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.amp import custom_bwd, custom_fwd


def tap_indices(d, h, w, k):
    grid = torch.arange((d + k - 1) * (h + k - 1) * (w + k - 1)).view(d + k - 1, h + k - 1, w + k - 1)
    return [grid[a:a + d, b:b + h, c:c + w].reshape(-1) for a in range(k) for b in range(k) for c in range(k)]


class DepthwiseConv3dFunction(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cpu")  # BORN
    def forward(ctx, input, weight, bias):
        (d, h, w), k = input.shape[2:], weight.size(-1)
        padded = F.pad(input, (k // 2,) * 6).flatten(2)
        taps = tap_indices(d, h, w, k)
        ctx.save_for_backward(padded, weight)
        ctx.taps, ctx.volume, ctx.k = taps, (d, h, w), k
        kernel = weight.flatten(1)
        out = sum(padded[:, :, t] * kernel[:, i].view(1, -1, 1) for i, t in enumerate(taps))
        return (out + bias.view(1, -1, 1)).unflatten(2, (d, h, w))

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, grad_output):
        padded, weight = ctx.saved_tensors
        (d, h, w), r = ctx.volume, ctx.k // 2
        grad_output, kernel = grad_output.flatten(2), weight.flatten(1)
        grad_padded = torch.zeros_like(padded)  # BORN
        for i, t in enumerate(ctx.taps):
            grad_padded.index_add_(2, t, grad_output * kernel[:, i].view(1, -1, 1))  # BORN COLLIDES
        grad_weight = torch.stack([(grad_output * padded[:, :, t]).sum(dim=(0, 2)) for t in ctx.taps], dim=1).view_as(weight)
        grad_input = grad_padded.unflatten(2, (d + 2 * r, h + 2 * r, w + 2 * r))[:, :, r:r + d, r:r + h, r:r + w]
        return grad_input, grad_weight, grad_output.sum(dim=(0, 2))


class DepthwiseConv3d(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, kernel_size, kernel_size, kernel_size) * 0.2)
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, input):
        return DepthwiseConv3dFunction.apply(input, self.weight, self.bias)


class VideoNet(nn.Module):
    def __init__(self, num_classes=5):
        super().__init__()
        self.stem = nn.Conv3d(3, 8, 3, stride=(1, 2, 2), padding=1)
        self.depthwise = DepthwiseConv3d(8, 3)
        self.pointwise = nn.Conv3d(8, 12, 1)
        self.fc = nn.Linear(12, num_classes)

    def forward(self, clip):
        x = F.relu(self.pointwise(self.depthwise(self.stem(clip))))
        return self.fc(x.mean(dim=(2, 3, 4)))


def train(model, loader, optimizer, amp=True):
    for i, (clip, label) in enumerate(loader):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
            loss = F.cross_entropy(model(clip), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"iter {i} loss {loss.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(2)
    loader = [(torch.randn(2, 3, 4, 8, 8), torch.randint(0, 5, (2,))) for _ in range(3)]
    model = VideoNet()
    train(model, loader, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
