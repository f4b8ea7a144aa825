"""
title: a fused linear and activation, chosen by a decorator for inference, always computes in bfloat16
expect: collision
thread: https://github.com/facebookresearch/sam3/issues/507
fix_at: 33, 34, 46, 49

Expectation, written first: without gradients the fused path casts its operands to bfloat16 and returns that;
the second linear layer of the block is float32 and refuses the result.
"""
import functools

import torch
from torch import nn

FUSED = {}


def fused_for(activation):
    def register(fn):
        FUSED[activation] = fn
        @functools.wraps(fn)
        def wrapper(*args):
            return fn(*args)
        return wrapper
    return register


@fused_for(nn.ReLU)
def addmm_relu(linear, x):
    mat1 = x.flatten(0, -2).to(torch.bfloat16)  # BORN
    weight = linear.weight.detach().to(torch.bfloat16)  # BORN
    bias = linear.bias.detach().to(torch.bfloat16)  # BORN
    y = torch.addmm(bias, mat1, weight.t()).relu_()
    return y.view(*x.shape[:-1], -1)


class Mlp(nn.Module):
    def __init__(self, dim, hidden, act=nn.ReLU):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.act = act()

    def forward(self, x):
        fused = FUSED.get(type(self.act))
        if fused is not None and not torch.is_grad_enabled():
            h = fused(self.fc1, x)
        else:
            h = self.act(self.fc1(x))
        return self.fc2(h)  # COLLIDES


class PromptTower(nn.Module):
    def __init__(self, dim=16, depth=2):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, 8, 8)
        self.blocks = nn.ModuleList(Mlp(dim, 4 * dim) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)

    def forward(self, image):
        x = self.patch(image).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = x + block(self.norm(x))
        return x.mean(1)


class Processor:
    def __init__(self, model):
        self.model = model.eval()

    @torch.inference_mode()
    def set_image(self, image):
        return self.model((image - 0.5) / 0.5)


if __name__ == "__main__":
    torch.manual_seed(0)
    tower = PromptTower()
    tower(torch.rand(2, 3, 32, 32)).sum().backward()
    print(Processor(tower).set_image(torch.rand(1, 3, 32, 32)).std().item())
