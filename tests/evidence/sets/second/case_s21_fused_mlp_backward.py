"""
title: a memory-saving autograd function keeps its float32 activation for a backward pass that runs in bfloat16
expect: collision
fix_at: 21

After unslothai/unsloth#212 and #7020 (fast_lora's backward: "expected mat1 and mat2 to have the same dtype"). The activation is
computed in float32 for accuracy, is narrowed for the product, but the wide one is saved; the incoming gradient is bfloat16.
Right: narrow the activation once, use and save the narrow one (or cast it in the backward pass).
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(5)


class SiluLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        hidden = F.silu(x.float())  # BORN
        ctx.save_for_backward(x, hidden, weight)
        return hidden.to(weight.dtype) @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, hidden, weight = ctx.saved_tensors
        rows = grad.reshape(-1, grad.shape[-1])
        grad_weight = rows.t() @ hidden.reshape(-1, hidden.shape[-1])  # COLLIDES
        grad_hidden = grad @ weight
        gate = torch.sigmoid(x.float())
        slope = gate * (1 + x.float() * (1 - gate))
        return (grad_hidden.float() * slope).to(x.dtype), grad_weight


class Mlp(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Parameter(torch.randn(dim, 2 * dim) / dim)

    def forward(self, x):
        return SiluLinear.apply(self.up(x), self.down)


class Net(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.mlps = nn.ModuleList(Mlp(dim) for _ in range(2))
        self.head = nn.Linear(dim, 4)

    def forward(self, x):
        for mlp in self.mlps:
            x = x + mlp(x)
        return self.head(x)


def main():
    model = Net().to(torch.bfloat16)
    masters = [p.detach().float() for p in model.parameters()]
    for step in range(3):
        x = torch.randn(6, 5, 16, dtype=torch.bfloat16)
        target = torch.randint(0, 4, (6, 5))
        logits = model(x).float()
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter, master in zip(model.parameters(), masters):
                master.sub_(parameter.grad.float(), alpha=0.05)
                parameter.copy_(master)
        print(step, round(loss.item(), 3))


main()
