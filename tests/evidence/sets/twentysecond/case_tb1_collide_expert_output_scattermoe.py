"""
title: an MoE layer under a local autocast hands bfloat16 to a float32 linear: mat1 and mat2 must have the same dtype
expect: collision
thread: https://github.com/shawntan/scattermoe/issues/17
fix_at: 50, 63, 64

Expectation, written first: only the forward of the MoE wrapper is decorated with a bfloat16 autocast, and its result leaves
that region as bfloat16. The output projection outside the region has float32 weights and refuses it.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class ParallelLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, expert_weights, expert_idxs):
        ctx.save_for_backward(x, expert_weights, expert_idxs)
        return torch.bmm(x.unsqueeze(1), expert_weights[expert_idxs]).squeeze(1)

    @staticmethod
    def backward(ctx, grad_out):
        x, expert_weights, expert_idxs = ctx.saved_tensors
        grad_out = grad_out.float()
        d_x = torch.bmm(grad_out.unsqueeze(1), expert_weights[expert_idxs].transpose(1, 2)).squeeze(1)
        d_weights = torch.zeros_like(expert_weights)
        d_weights.index_add_(0, expert_idxs, x.float().unsqueeze(2) * grad_out.unsqueeze(1))
        return d_x.to(x.dtype), d_weights, None


class ParallelExperts(nn.Module):
    def __init__(self, num_experts, input_size, output_size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(num_experts, input_size, output_size) * input_size ** -0.5)

    def forward(self, inputs, expert_idxs):
        return ParallelLinear.apply(inputs, self.weight, expert_idxs)


class MyMLP(nn.Module):
    def __init__(self, n_experts, d_model, mlp_ratio=4):
        super().__init__()
        self.experts = ParallelExperts(n_experts, d_model, d_model * mlp_ratio)
        self.output_experts = ParallelExperts(n_experts, d_model * mlp_ratio, d_model)

    @torch.autocast(device_type="cpu", dtype=torch.bfloat16)  # BORN
    def forward(self, x, e):
        h = self.experts(x, e)
        h = F.relu(h).square()
        v = self.output_experts(h, e)
        return v  # BORN


class Classifier(nn.Module):
    def __init__(self, d_model=16, n_experts=4, n_classes=5):
        super().__init__()
        self.router = nn.Linear(d_model, n_experts)
        self.mlp = MyMLP(n_experts, d_model)
        self.out = nn.Linear(d_model, n_classes)

    def forward(self, x):
        expert_idxs = self.router(x).argmax(dim=-1)
        y = self.mlp(x, expert_idxs)
        return self.out(y)  # COLLIDES


def main():
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(3):
        x, target = torch.randn(32, 16), torch.randint(0, 5, (32,))
        loss = F.cross_entropy(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
