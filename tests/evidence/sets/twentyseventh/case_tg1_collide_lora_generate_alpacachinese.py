"""
title: Generating with a float32 LoRA on a half base model
expect: collision
thread: https://github.com/A-baoYang/alpaca-7b-chinese/issues/4
fix_at: generate under autocast

Expectation, written first: the base model is loaded in float16 and the adapters are created afterwards as plain
linear layers, that is in float32. Training ran under autocast and did not notice; generation does not, and
the first lora_A gets half hidden states and raises.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class LlamaAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q_proj = nn.Linear(dim, dim, bias=False)
        self.k_proj = nn.Linear(dim, dim, bias=False)
        self.v_proj = nn.Linear(dim, dim, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        scores = q @ k.transpose(1, 2) / math.sqrt(q.size(-1))
        mask = torch.ones(x.size(1), x.size(1), dtype=torch.bool).triu(1)
        probs = scores.masked_fill(mask, float("-inf")).softmax(dim=-1, dtype=torch.float32).to(q.dtype)
        return self.o_proj(probs @ v)


class LlamaForCausalLM(nn.Module):
    def __init__(self, vocab=50, dim=32, layers=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(LlamaAttention(dim) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, input_ids):
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = x + layer(x)
        return self.lm_head(self.norm(x))

    @torch.no_grad()
    def generate(self, input_ids, max_new_tokens):
        for _ in range(max_new_tokens):
            next_token = self(input_ids)[:, -1].float().argmax(dim=-1, keepdim=True)
            input_ids = torch.cat([input_ids, next_token], dim=1)
        return input_ids


class LoraLinear(nn.Module):
    def __init__(self, base_layer, r, lora_alpha):
        super().__init__()
        self.base_layer = base_layer
        self.lora_A = nn.Linear(base_layer.in_features, r, bias=False)  # BORN
        self.lora_B = nn.Linear(r, base_layer.out_features, bias=False)  # BORN
        self.scaling = lora_alpha / r

    def forward(self, x):
        return self.base_layer(x) + self.lora_B(self.lora_A(x)) * self.scaling  # COLLIDES


def get_peft_model(model, target_modules, r=4, lora_alpha=8):
    for module in model.modules():
        for name in target_modules:
            if isinstance(getattr(module, name, None), nn.Linear):
                setattr(module, name, LoraLinear(getattr(module, name), r, lora_alpha))  # BORN
    return model


def load_adapter(model, state_dict):
    missing = model.load_state_dict(state_dict, strict=False)
    assert not missing.unexpected_keys
    return model


def main():
    torch.manual_seed(4)
    base = LlamaForCausalLM().half()
    model = get_peft_model(base, ["q_proj", "v_proj"])  # BORN
    adapter = {k: 0.05 * torch.randn_like(v) for k, v in model.state_dict().items() if "lora_" in k}
    model = load_adapter(model, adapter).eval()
    prompt = torch.tensor([[1, 17, 23, 9]])
    print("output", model.generate(prompt, max_new_tokens=6).tolist())


if __name__ == "__main__":
    main()
