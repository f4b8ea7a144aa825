"""
title: a text encoder stored in bfloat16 runs in float16 on a card that has no bfloat16
expect: collision
thread: https://github.com/Comfy-Org/ComfyUI/issues/8118
fix_at: 34, 61, 64, 65, 69, 71, 78, 79

Expectation, written first: layers cast their stored weights to the compute dtype, float16; the padding mask takes its
dtype from the stored weights and stays bfloat16, which the attention refuses beside a float16 query.
"""
import torch
import torch.nn.functional as F
from torch import nn


class ManualCast:
    """layers whose weights stay as stored and are cast at the call"""

    class Linear(nn.Linear):
        def forward(self, x):
            bias = None if self.bias is None else self.bias.to(x.dtype)
            return F.linear(x, self.weight.to(x.dtype), bias)

    class LayerNorm(nn.LayerNorm):
        def forward(self, x):
            return F.layer_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)

    class Embedding(nn.Embedding):
        def forward(self, ids, out_dtype):
            return super().forward(ids).to(out_dtype)


def optimized_attention(q, k, v, heads, mask):
    q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # COLLIDES
    return out.transpose(1, 2).flatten(2)


class Layer(nn.Module):
    def __init__(self, dim, heads, ops):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = ops.LayerNorm(dim), ops.LayerNorm(dim)
        self.qkv, self.proj = ops.Linear(dim, 3 * dim), ops.Linear(dim, dim)
        self.fc1, self.fc2 = ops.Linear(dim, 2 * dim), ops.Linear(2 * dim, dim)

    def forward(self, x, mask):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        x = x + self.proj(optimized_attention(q, k, v, self.heads, mask))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class TextModel(nn.Module):
    def __init__(self, vocab=60, dim=32, heads=4, layers=2, ops=ManualCast):
        super().__init__()
        self.token_embedding = ops.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim, heads, ops) for _ in range(layers))
        self.final_norm = ops.LayerNorm(dim)

    @property
    def dtype(self):
        return self.token_embedding.weight.dtype

    def build_mask(self, attention_mask):
        mask = 1.0 - attention_mask.to(self.dtype)[:, None, None, :]  # BORN
        return mask.masked_fill(mask.bool(), torch.finfo(self.dtype).min)

    def forward(self, ids, attention_mask, compute_dtype):
        x = self.token_embedding(ids, out_dtype=compute_dtype)
        mask = self.build_mask(attention_mask)
        for layer in self.layers:
            x = layer(x, mask)
        return self.final_norm(x)


class ClipLoader:
    def __init__(self, supports_bf16):
        torch.manual_seed(0)
        self.compute_dtype = torch.bfloat16 if supports_bf16 else torch.float16
        self.model = TextModel().to(torch.bfloat16).eval()

    @torch.no_grad()
    def encode(self, prompts):
        length = max(map(len, prompts))
        ids = torch.tensor([p + [0] * (length - len(p)) for p in prompts])
        out = self.model(ids, (ids != 0).long(), self.compute_dtype)
        return out[:, 0].float()


if __name__ == "__main__":
    clip = ClipLoader(supports_bf16=False)
    pooled = clip.encode([[5, 9, 12, 30], [7, 8], [41, 2, 3]])
    print(f"pooled norm {pooled.norm(dim=-1).mean().item():.2f}")
