"""
title: The encoder's attn_mask is filled with -1e8 in fp16
expect: collision
thread: https://github.com/facebookresearch/fairseq/issues/3575
fix_at: the line that casts the mask to the activations' dtype

Expectation, written first: The encoder layer turns a 0/1 attention mask into an additive one by filling it
with -1e8. In fp16 mode the mask is half like the activations, and masked_fill raises because -1e8 cannot
be represented in half.
"""
import math

import torch
import torch.nn as nn


class MultiheadAttention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def shape(self, x):
        t, b, _ = x.shape
        return x.view(t, b * self.num_heads, self.head_dim).transpose(0, 1)

    def forward(self, x, attn_mask=None):
        t, b, d = x.shape
        q, k, v = self.shape(self.q_proj(x)), self.shape(self.k_proj(x)), self.shape(self.v_proj(x))
        weights = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(self.head_dim)
        if attn_mask is not None:
            weights = weights + attn_mask.unsqueeze(0)
        probs = torch.softmax(weights, dim=-1, dtype=torch.float32).type_as(weights)
        return self.out_proj(torch.bmm(probs, v).transpose(0, 1).reshape(t, b, d))


class TransformerEncoderLayer(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.self_attn = MultiheadAttention(embed_dim, num_heads)
        self.self_attn_layer_norm = nn.LayerNorm(embed_dim)
        self.fc1 = nn.Linear(embed_dim, embed_dim * 2)
        self.fc2 = nn.Linear(embed_dim * 2, embed_dim)
        self.final_layer_norm = nn.LayerNorm(embed_dim)

    def forward(self, x, attn_mask=None):
        if attn_mask is not None:
            attn_mask = attn_mask.masked_fill(attn_mask.to(torch.bool), -1e8)  # BORN COLLIDES
        x = self.self_attn_layer_norm(x + self.self_attn(x, attn_mask=attn_mask))
        return self.final_layer_norm(x + self.fc2(torch.relu(self.fc1(x))))


class LocalEncoder(nn.Module):
    def __init__(self, vocab, embed_dim=32, num_heads=4, layers=2, window=3):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, embed_dim)
        self.layers = nn.ModuleList(TransformerEncoderLayer(embed_dim, num_heads) for _ in range(layers))
        self.window = window

    def forward(self, src_tokens):
        x = self.embed_tokens(src_tokens).transpose(0, 1)
        pos = torch.arange(x.size(0))
        attn_mask = ((pos[:, None] - pos[None]).abs() > self.window).to(x)
        for layer in self.layers:
            x = layer(x, attn_mask=attn_mask)
        return x


@torch.no_grad()
def main():
    torch.manual_seed(9)
    src = torch.randint(0, 50, (2, 12))
    encoder = LocalEncoder(50).eval()
    print("fp32", round(encoder(src).abs().mean().item(), 4))
    encoder = encoder.half()
    print("fp16", round(encoder(src).float().abs().mean().item(), 4))


if __name__ == "__main__":
    main()
