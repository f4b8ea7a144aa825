"""
title: post-training int8 weights per output channel, dequantised on the fly in a float16 server
expect: clean
thread: https://github.com/sgl-project/mini-sglang/pull/57
measured: tokens [[37, 81, 18, 67, 17, 36, 21, 31], [1, 88, 82, 48, 27, 80, 6, 37]] mean top score 1.40
suspect: 24 deliberate: symmetric int8 with one float32 scale per channel, rounded and clamped to its range

Expectation, written first: linear weights are stored as int8 with a float32 scale per output channel, norms and
embeddings are kept; the forward multiplies code and scale in float32 and casts the product to the activations'
float16. The greedy tokens and the top scores equal those of the same int8 weights served in float32.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

SERVE_DTYPE = torch.float16

SKIP = ("embed_tokens", "norm")


def quantize_weight(weight):
    absmax = weight.float().abs().amax(dim=1, keepdim=True)
    scale = torch.clamp(absmax, min=1e-12) / 127.0
    codes = torch.round(weight.float() / scale).clamp_(-127, 127).to(torch.int8)
    return codes, scale


def dequantize_weight(codes, scale, dtype):
    return (codes.float() * scale).to(dtype)


class QuantLinear(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.register_buffer("weight", torch.zeros(out_features, in_features, dtype=torch.int8))
        self.register_buffer("weight_scale", torch.ones(out_features, 1))

    def load(self, weight):
        self.weight, self.weight_scale = quantize_weight(weight)
        return self

    def forward(self, x):
        return F.linear(x, dequantize_weight(self.weight, self.weight_scale, x.dtype))


class DecoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.input_norm, self.post_norm = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv_proj, self.o_proj = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.up_proj, self.down_proj = nn.Linear(dim, 2 * dim, bias=False), nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv_proj(self.input_norm(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.o_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, d))
        return x + self.down_proj(F.silu(self.up_proj(self.post_norm(x))))


class CausalLM(nn.Module):
    def __init__(self, vocab=90, dim=48, layers=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.layers = nn.Sequential(*[DecoderLayer(dim, 4) for _ in range(layers)])
        self.norm, self.lm_head = nn.RMSNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        return self.lm_head(self.norm(self.layers(self.embed_tokens(ids)))).float()


def apply_quantization(model):
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and not any(s in name for s in SKIP):
            parent, _, leaf = name.rpartition(".")
            packed = QuantLinear(module.in_features, module.out_features).load(module.weight.data)
            setattr(model.get_submodule(parent), leaf, packed)
    return model


if __name__ == "__main__":
    torch.manual_seed(0)
    model = apply_quantization(CausalLM().to(torch.float16).to(SERVE_DTYPE).eval())
    ids, scores = torch.randint(0, 90, (2, 6)), []
    with torch.inference_mode():
        for _ in range(8):
            top = model(ids)[:, -1].max(-1)
            ids, scores = torch.cat([ids, top.indices[:, None]], dim=1), scores + top.values.tolist()
    print("tokens", ids[:, 6:].tolist(), "mean top score", f"{sum(scores) / len(scores):.2f}")
