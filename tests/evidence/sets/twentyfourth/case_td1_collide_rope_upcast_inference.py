"""
title: Rotary tables in float lift query and key, the value stays half
expect: collision
thread: https://github.com/xorbitsai/inference/issues/3064
fix_at: the scaled_dot_product_attention line (cast of query and key there)

Expectation, written first: The model is loaded in half. The rotary cos and sin are computed in float32
and never cast back, so query and key are promoted to float32 in the rotation while the value stays
half; scaled_dot_product_attention refuses the mixture.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


def apply_rotary_pos_emb(q, k, cos, sin):
    q_embed = (q * cos) + (rotate_half(q) * sin)  # BORN
    k_embed = (k * cos) + (rotate_half(k) * sin)  # BORN
    return q_embed, k_embed


class RotaryEmbedding(nn.Module):
    def __init__(self, dim, base=10000.0):
        super().__init__()
        self.inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim))

    def forward(self, position_ids):
        freqs = position_ids[:, None, :, None].float() * self.inv_freq
        emb = torch.cat((freqs, freqs), dim=-1)
        return emb.cos(), emb.sin()  # BORN


class SdpaAttention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.qkv_proj = nn.Linear(hidden, hidden * 3)
        self.o_proj = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        q, k, v = self.qkv_proj(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = apply_rotary_pos_emb(q, k, cos, sin)  # BORN
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # COLLIDES
        return self.o_proj(out.transpose(1, 2).reshape(b, t, d))


class CausalLM(nn.Module):
    def __init__(self, vocab=64, hidden=32, heads=4):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, hidden)
        self.rotary_emb = RotaryEmbedding(hidden // heads)
        self.layers = nn.ModuleList(SdpaAttention(hidden, heads) for _ in range(2))
        self.lm_head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, input_ids, position_ids):
        x = self.embed_tokens(input_ids)
        cos, sin = self.rotary_emb(position_ids)  # BORN
        for layer in self.layers:
            x = x + layer(x, cos, sin)
        return self.lm_head(x)


class BatchScheduler:
    def __init__(self, model):
        self.model = model

    @torch.no_grad()
    def batch_inference_one_step(self, reqs):
        width = max(len(r) for r in reqs)
        ids = torch.tensor([[0] * (width - len(r)) + r for r in reqs])
        pos = torch.stack([torch.arange(width) - (width - len(r)) for r in reqs]).clamp(min=0)
        return self.model(ids, pos)[:, -1].argmax(-1).tolist()


def main():
    reqs = [[5, 7, 9], [3, 4, 8, 21, 40]]
    for torch_dtype in (torch.float32, torch.float16):
        torch.manual_seed(12)
        model = CausalLM().to(torch_dtype).eval()
        print(torch_dtype, BatchScheduler(model).batch_inference_one_step(reqs))


if __name__ == "__main__":
    main()
