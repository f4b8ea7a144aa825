"""
title: pixel-adaptive convolution under autocast: bf16 gradient and fp32 weight meet in the hand-written backward
expect: collision
thread: https://github.com/NVlabs/pacnet/issues/27
fix_at: 16, 25, 27, 32

Expectation, written first: inside autocast the einsum of the custom function's forward answers in bfloat16 although it saved float32
weights. Its backward runs outside of autocast with a bfloat16 gradient, and the einsum with the saved float32 weight raises, for the
function is not declared with custom_fwd / custom_bwd.
"""
import torch
import torch.nn.functional as F
from torch import nn

class PacConv2dFn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, kernel, weight, bias, padding):  # BORN
        ctx.kernel_size, ctx.padding, ctx.input_size = weight.shape[-1], padding, input.shape[-2:]
        n, c, h, w = input.shape
        cols = F.unfold(input, ctx.kernel_size, padding=padding).view(n, c, -1, h * w)
        in_mul_k = cols * kernel.unsqueeze(1)
        weight_flat = weight.flatten(2)
        output = torch.einsum("nikp,oik->nop", in_mul_k, weight_flat)  # BORN
        ctx.save_for_backward(cols, kernel, in_mul_k, weight_flat)
        return output.view(n, -1, h, w) + bias.to(output.dtype).view(1, -1, 1, 1)

    @staticmethod
    def backward(ctx, grad_output):  # BORN
        cols, kernel, in_mul_k, weight_flat = ctx.saved_tensors
        n, o, h, w = grad_output.shape
        grad_flat = grad_output.reshape(n, o, h * w)  # BORN
        grad_in_mul_k = torch.einsum("nop,oik->nikp", grad_flat, weight_flat)  # COLLIDES
        grad_weight = torch.einsum("nop,nikp->oik", grad_flat, in_mul_k)
        grad_weight = grad_weight.view(o, -1, ctx.kernel_size, ctx.kernel_size)
        grad_cols = (grad_in_mul_k * kernel.unsqueeze(1)).flatten(1, 2)
        grad_input = F.fold(grad_cols, ctx.input_size, ctx.kernel_size, padding=ctx.padding)
        grad_kernel = (grad_in_mul_k * cols).sum(dim=1)
        return grad_input, grad_kernel, grad_weight, grad_flat.sum(dim=(0, 2)), None

class PacConv2d(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, padding=0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_channels, in_channels, kernel_size, kernel_size) * 0.1)
        self.bias = nn.Parameter(torch.zeros(out_channels))
        self.kernel_size, self.padding = kernel_size, padding

    def compute_kernel(self, guide):
        n, c, h, w = guide.shape
        cols = F.unfold(guide, self.kernel_size, padding=self.padding).view(n, c, -1, h * w)
        return torch.exp(-0.5 * (cols - guide.view(n, c, 1, h * w)).square().sum(dim=1))

    def forward(self, input, guide):
        return PacConv2dFn.apply(input, self.compute_kernel(guide), self.weight, self.bias, self.padding)

class PacFCN(nn.Module):
    def __init__(self, n_class=3):
        super().__init__()
        self.n_class = n_class
        self.pac = PacConv2d(n_class, n_class, 3, padding=1)
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, n_class, 1))

    def forward(self, image):
        scores = self.backbone(image)
        return scores + self.pac(F.softmax(scores.float(), dim=1), image)

def train(steps=4):
    torch.manual_seed(0)
    model = PacFCN()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    image = torch.rand(2, 3, 12, 12)
    target = (image[:, 0] > 0.5).long() + (image[:, 1] > 0.5).long()
    for _ in range(steps):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(image).float(), target)
        optimizer.zero_grad()
        loss.backward()  # COLLIDES
        optimizer.step()
    return loss.item()

if __name__ == "__main__":
    print(f"loss {train():.4f}")
