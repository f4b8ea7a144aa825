"""
title: the correction bias of a mixture of experts is allocated in bfloat16 when the model is quantised
expect: silent:precision-loss|downcast
thread: https://github.com/sgl-project/sglang/pull/31213
measured: tokens with the right experts 52%, experts in use 60
widened: tokens with the right experts 99%, experts in use 59

Expectation, written first: the biases lie close together at about 7, where bfloat16 has steps of 1/32, so that a few
values remain of them and other experts are chosen. The hidden states are rounded to bfloat16 too, which shifts the
gate's logits by far less than the spread of the scores and changes next to nothing.
"""
import torch
from torch import nn


class MoEGate(nn.Module):
    def __init__(self, width, experts, quantised):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, width))
        if quantised:
            bias = torch.empty(experts, dtype=torch.bfloat16)  # BORN
        else:
            bias = torch.empty(experts)
        self.e_score_correction_bias = nn.Parameter(bias, requires_grad=False)

    def forward(self, hidden):
        return hidden @ self.weight.T


def load(gate, checkpoint):
    with torch.no_grad():
        for name, value in checkpoint.items():
            gate.get_parameter(name).copy_(value)
    return gate


def noaux_topk(logits, bias, k):
    scores = logits.sigmoid()
    chosen = (scores + bias.float()).topk(k, -1).indices
    weights = scores.gather(-1, chosen)
    return chosen, weights / weights.sum(-1, keepdim=True)


def checkpoint(width, experts, gen):
    weight = torch.randn(experts, width, generator=gen) * 0.3 / width**0.5
    bias = 6.82 + 0.25 * torch.rand(experts, generator=gen)
    return {"weight": weight, "e_score_correction_bias": bias}


def main():
    gen = torch.Generator().manual_seed(0)
    state = checkpoint(64, 64, gen)
    gate = load(MoEGate(64, 64, quantised=True), state)
    same = tokens = 0
    load_per_expert = torch.zeros(64, dtype=torch.int64)
    for _ in range(4):
        hidden = torch.randn(256, 64, generator=gen)
        logits = gate(hidden.to(torch.bfloat16).float())
        chosen, _ = noaux_topk(logits, gate.e_score_correction_bias, 8)
        exact, _ = noaux_topk(hidden.double() @ state["weight"].double().T, state["e_score_correction_bias"], 8)
        same += (chosen.sort(-1).values == exact.sort(-1).values).all(-1).sum().item()
        tokens += len(hidden)
        load_per_expert += torch.bincount(chosen.flatten(), minlength=64)
    print(f"tokens with the right experts {100 * same / tokens:.0f}%, experts in use {(load_per_expert > 0).sum().item()}")


main()
