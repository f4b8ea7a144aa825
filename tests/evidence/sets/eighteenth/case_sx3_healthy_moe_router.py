"""
title: Ernie MoE routes in float32 with autocast off inside a bfloat16 model
expect: clean
thread: https://github.com/huggingface/transformers/pull/39585
measured: routing exact: True, logits torch.float32, hidden torch.bfloat16
suspect: 41 weights-only

Expectation, written first: router weight and correction bias are kept float32 in the bfloat16 model. The router leaves
autocast, widens the hidden states and picks the experts from float32 probabilities; only the normalised weights are
rounded to the hidden dtype for the mix. The chosen experts are those of an exact computation and every dtype fits.
"""
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Ernie4_5_MoeConfig:
    hidden_size: int = 32
    moe_intermediate_size: int = 24
    moe_num_experts: int = 8
    moe_k: int = 2


class TopKRouter(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.top_k, self.norm_min = config.moe_k, 1e-12
        self.weight = nn.Parameter(torch.randn(config.moe_num_experts, config.hidden_size, dtype=torch.float32) * 0.3)
        self.e_score_correction_bias = nn.Parameter(torch.zeros(config.moe_num_experts), requires_grad=False)

    def forward(self, hidden_states):
        with torch.autocast(hidden_states.device.type, enabled=False):
            router_logits = F.linear(hidden_states.float(), self.weight.float())
            routing_weights = F.softmax(router_logits, dim=1, dtype=torch.float)
            _, selected_experts = torch.topk(routing_weights + self.e_score_correction_bias, self.top_k, dim=-1)
            routing_weights = torch.gather(routing_weights, dim=-1, index=selected_experts)
            routing_weights = routing_weights / routing_weights.sum(-1, keepdim=True).clamp(min=self.norm_min)
        routing_weights = routing_weights.to(hidden_states.dtype)
        return router_logits, selected_experts, routing_weights


class MoeMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        d, m = config.hidden_size, config.moe_intermediate_size
        self.gate_proj, self.up_proj, self.down_proj = nn.Linear(d, m), nn.Linear(d, m), nn.Linear(m, d)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class SparseMoeBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate = TopKRouter(config)
        self.experts = nn.ModuleList(MoeMLP(config) for _ in range(config.moe_num_experts))

    def forward(self, hidden_states):
        flat = hidden_states.flatten(0, 1)
        router_logits, selected, weights = self.gate(flat)
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            token, slot = torch.where(selected == i)
            current = expert(flat[token]) * weights[token, slot, None]
            out.index_add_(0, token, current.to(flat.dtype))
        return out.view_as(hidden_states), router_logits, selected


def keep_in_fp32(model, dtype, names=("gate.weight", "e_score_correction_bias")):
    for name, param in model.named_parameters():
        param.data = param.data.to(torch.float32 if name.endswith(names) else dtype)
    return model


if __name__ == "__main__":
    torch.manual_seed(0)
    config = Ernie4_5_MoeConfig()
    blocks = keep_in_fp32(nn.ModuleList(SparseMoeBlock(config) for _ in range(2)), torch.bfloat16)
    h = torch.randn(2, 16, config.hidden_size).to(torch.bfloat16)
    agree = True
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        for block in blocks:
            exact = h.flatten(0, 1).double() @ block.gate.weight.double().T
            out, logits, selected = block(h)
            agree &= torch.equal(exact.topk(config.moe_k, -1).indices, selected)
            h = h + out
    print(f"routing exact: {agree}, logits {logits.dtype}, hidden {h.dtype}")
