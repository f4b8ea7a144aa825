"""
title: T5 loaded in half precision keeps its wo projections in fp32 and casts around them
expect: clean
thread: https://github.com/huggingface/transformers/pull/20683
measured: torch.float16 finite True close True wo torch.float32
suspect: 49 guarded

Expectation, written first: wo stays in float32 because its products leave the range of half, the layer widens its input for wo and
the block clamps before it narrows the sum again. All outputs are finite and near the float32 model's.
"""
import copy

import torch
from torch import nn

class T5LayerNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, hidden_states):
        variance = hidden_states.to(torch.float32).pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.eps)
        if self.weight.dtype in (torch.float16, torch.bfloat16):
            hidden_states = hidden_states.to(self.weight.dtype)
        return self.weight * hidden_states

class T5DenseGatedActDense(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.wi_0, self.wi_1 = nn.Linear(d_model, d_ff, bias=False), nn.Linear(d_model, d_ff, bias=False)
        self.wo = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, hidden_states):
        hidden_states = nn.functional.gelu(self.wi_0(hidden_states), approximate="tanh") * self.wi_1(hidden_states)
        if hidden_states.dtype != self.wo.weight.dtype:
            hidden_states = hidden_states.to(self.wo.weight.dtype)
        return self.wo(hidden_states)

class T5LayerFF(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.layer_norm, self.DenseReluDense = T5LayerNorm(d_model), T5DenseGatedActDense(d_model, d_ff)

    def forward(self, hidden_states):
        dtype = hidden_states.dtype
        output = hidden_states + self.DenseReluDense(self.layer_norm(hidden_states))
        limit = torch.finfo(dtype).max - 1000
        return output.clamp(-limit, limit).to(dtype)

class T5Stack(nn.Module):
    _keep_in_fp32_modules = ["wo"]

    def __init__(self, vocab=64, d_model=32, d_ff=64, layers=3):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, d_model)
        self.block = nn.ModuleList(T5LayerFF(d_model, d_ff) for _ in range(layers))
        self.final_layer_norm = T5LayerNorm(d_model)

    def cast(self, dtype):
        for name, param in self.named_parameters():
            keep = any(part in name.split(".") for part in self._keep_in_fp32_modules)
            param.data = param.data.to(torch.float32 if keep else dtype)
        return self

    @torch.no_grad()
    def forward(self, input_ids):
        hidden_states = self.embed_tokens(input_ids)
        for block in self.block:
            hidden_states = block(hidden_states)
        return self.final_layer_norm(hidden_states)

def main():
    torch.manual_seed(0)
    reference = T5Stack()
    half = copy.deepcopy(reference).cast(torch.float16)
    ids = torch.randint(0, 64, (2, 10))
    out32, out16 = reference(ids), half(ids)
    gap = (out32 - out16.float()).abs().max().item()
    print(f"{out16.dtype} finite {bool(out16.isfinite().all())} close {gap < 0.02} wo {half.block[0].DenseReluDense.wo.weight.dtype}")

if __name__ == "__main__":
    main()
