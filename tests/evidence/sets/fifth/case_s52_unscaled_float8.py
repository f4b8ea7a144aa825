"""
title: small weights are stored as float8 without a scale, most of them are below its smallest step
expect: silent:underflow|downcast|precision-loss|round-trip
needs: transformers
fix_at: 23, 31

After https://github.com/kohya-ss/musubi-tuner/issues/236 and https://github.com/webmachinelearning/webnn/pull/938.
Right: a scale per row; or no float8 for such weights.
"""
import torch
import torch.nn.functional as F
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(202)


class Stored(nn.Module):
    """A linear layer at one byte a weight, widened for the product."""

    def __init__(self, linear):
        super().__init__()
        self.register_buffer("weight", self.pack(linear.weight.detach()))
        self.bias = linear.bias

    @staticmethod
    def pack(weight):
        return weight.to(torch.float8_e4m3fn)  # BORN

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype), self.bias)


def shrink(model, skip=("lm_head",)):
    for name, module in list(model.named_modules()):
        for child, layer in list(module.named_children()):
            if isinstance(layer, nn.Linear) and child not in skip:
                setattr(module, child, Stored(layer))
    return model


def build():
    config = LlamaConfig(vocab_size=80, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.02)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for layer in model.model.layers:
            for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj, layer.self_attn.o_proj,
                               layer.mlp.gate_proj, layer.mlp.up_proj, layer.mlp.down_proj):
                projection.weight.mul_(0.08)
            layer.input_layernorm.weight.fill_(10.0)
            layer.post_attention_layernorm.weight.fill_(10.0)
    return model.to(torch.bfloat16)


@torch.no_grad()
def main():
    model = build()
    ids = torch.randint(0, 80, (4, 24))
    start = model.model.norm(model.model.embed_tokens(ids)).float()
    before = model.model(ids).last_hidden_state.float()
    weights = [m.weight.float() for m in model.model.modules() if isinstance(m, nn.Linear)]
    shrink(model)
    after = model.model(ids).last_hidden_state.float()
    kept = [m.weight.float() for m in model.model.modules() if isinstance(m, Stored)]
    zero = torch.cat([(k == 0).flatten() for k in kept]).float().mean().item()
    error = sum((k - w).norm() ** 2 for k, w in zip(kept, weights)) ** 0.5 / sum(w.norm() ** 2 for w in weights) ** 0.5
    print("weights that became zero", round(zero, 3), "their error", round(error.item(), 3),
          "error of what the layers add", round(((after - before).norm() / (before - start).norm()).item(), 4))


main()
