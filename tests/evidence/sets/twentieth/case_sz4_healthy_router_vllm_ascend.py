"""
title: a MoE router keeps its weight in bfloat16 because the checkpoint had it so, and multiplies with float32 accumulation
expect: clean
thread: https://github.com/vllm-project/vllm-ascend/pull/17068
measured: tokens routed alike 1.000 ; busiest expert 39, weights sum to 1.0000
suspect: 27 exact (the weight was bfloat16 in the checkpoint)

Expectation, written first: the loader widens the gate's weight to float32 and the fast path narrows it again; the values came from bfloat16, so
nothing is lost, and the product is accumulated and stored in float32. The chosen experts equal those of a float64 product.
"""
import torch
from torch import nn


class GateLinear(nn.Module):
    def __init__(self, hidden, experts):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, hidden), requires_grad=False)
        self.origin_dtype = None

    def weight_loader(self, loaded):
        self.origin_dtype = loaded.dtype
        self.weight.copy_(loaded)

    def process_weights_after_loading(self):
        if self.origin_dtype == torch.bfloat16:
            self.weight.data = self.weight.data.to(torch.bfloat16)

    def forward(self, x):
        return x.float() @ self.weight.float().t()


class FusedMoE(nn.Module):
    def __init__(self, hidden, experts, top_k):
        super().__init__()
        self.gate = GateLinear(hidden, experts)
        self.top_k = top_k

    def select_experts(self, x):
        scores = torch.softmax(self.gate(x), dim=-1, dtype=torch.float32)
        weights, ids = scores.topk(self.top_k, dim=-1)
        return weights / weights.sum(-1, keepdim=True), ids


def make_checkpoint(hidden, experts):
    g = torch.Generator().manual_seed(4)
    return {"gate.weight": (torch.randn(experts, hidden, generator=g) / hidden ** 0.5).to(torch.bfloat16)}


def load(model, checkpoint):
    model.gate.weight_loader(checkpoint["gate.weight"])
    model.gate.process_weights_after_loading()
    return model


@torch.no_grad()
def main():
    torch.manual_seed(9)
    hidden, experts, top_k = 128, 32, 4
    checkpoint = make_checkpoint(hidden, experts)
    moe = load(FusedMoE(hidden, experts, top_k), checkpoint)
    x = torch.randn(200, hidden).to(torch.bfloat16)
    weights, ids = moe.select_experts(x)
    exact = x.double() @ checkpoint["gate.weight"].double().t()
    _, want = exact.topk(top_k, dim=-1)
    agree = (ids.sort(-1).values == want.sort(-1).values).all(-1).float().mean()
    load_per_expert = torch.bincount(ids.flatten(), minlength=experts)
    print(f"tokens routed alike {agree.item():.3f}")
    print(f"busiest expert {int(load_per_expert.max())}, weights sum to {weights.sum(-1).mean().item():.4f}")


main()
