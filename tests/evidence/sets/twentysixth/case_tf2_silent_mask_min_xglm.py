"""
title: left-padded batch gives NaN hidden states in float16
expect: silent:overflow
thread: https://github.com/huggingface/transformers/pull/18057
measured: tokens 8 NaN share 0.00 last norm 4.0 / tokens 4 NaN share 1.00 last norm nan
widened: tokens 8 NaN share 0.00 last norm 4.0 / tokens 4 NaN share 0.00 last norm 4.0; innocent: tokens 8 NaN share 0.00 last norm 4.0 / tokens 4 NaN share 1.00 last norm nan
suspect: 60 exact (positions of a dozen tokens fit int8)

Expectation, written first: the mask holds finfo(float16).min and the scores are near -30, so their sum is below -65504 and
becomes -inf. In a row of a pad token every key is masked, the row is all -inf and softmax gives NaN, which the next
layer spreads over the sequence. Remedy: add mask and softmax in float32 (or clamp to finfo.min). The int8 positions are exact.
"""
import torch
from torch import nn


def _expand_mask(mask, dtype):
    tgt_len = mask.shape[1]
    causal = torch.ones(tgt_len, tgt_len, dtype=torch.bool).tril()
    allowed = causal & mask[:, None, :].bool()
    return torch.zeros(allowed.shape, dtype=dtype).masked_fill(~allowed, torch.finfo(dtype).min)  # BORN


class XGLMAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.scaling = dim ** -0.5
        self.q_proj, self.k_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.v_proj, self.out_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        nn.init.constant_(self.q_proj.bias, 3.0)
        nn.init.constant_(self.k_proj.bias, -3.0)

    def forward(self, hidden_states, attention_mask):
        query_states = self.q_proj(hidden_states) * self.scaling
        key_states, value_states = self.k_proj(hidden_states), self.v_proj(hidden_states)
        attn_weights = torch.bmm(query_states, key_states.transpose(1, 2)) + attention_mask  # BORN
        attn_probs = torch.softmax(attn_weights, dim=-1).to(hidden_states.dtype)
        return self.out_proj(torch.bmm(attn_probs, value_states))


class XGLMDecoderLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.self_attn = XGLMAttention(dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, hidden_states, attention_mask):
        return hidden_states + self.self_attn(self.norm(hidden_states), attention_mask)


class XGLMModel(nn.Module):
    def __init__(self, vocab=50, dim=16, layers=2, max_positions=32):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim, padding_idx=1)
        self.embed_positions = nn.Embedding(max_positions, dim)
        self.layers = nn.ModuleList(XGLMDecoderLayer(dim) for _ in range(layers))
        self.layer_norm = nn.LayerNorm(dim)

    def forward(self, input_ids, attention_mask):
        positions = (attention_mask.cumsum(-1) - 1).clamp(min=0).to(torch.int8)
        hidden = self.embed_tokens(input_ids) + self.embed_positions(positions.int())
        mask = _expand_mask(attention_mask, hidden.dtype)  # BORN
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return self.layer_norm(hidden)


def pad_left(sequences, pad_id=1):
    width = max(map(len, sequences))
    ids = torch.tensor([[pad_id] * (width - len(s)) + s for s in sequences])
    mask = torch.tensor([[0] * (width - len(s)) + [1] * len(s) for s in sequences])
    return ids, mask


@torch.no_grad()
def main():
    torch.manual_seed(18057)
    model = XGLMModel().to(torch.float16).eval()  # BORN
    ids, mask = pad_left([[5, 9, 12, 7, 33, 20, 4, 8], [6, 30, 14, 41]])
    hidden = model(ids, mask)
    for row, m in zip(hidden, mask):
        real = row[m.bool()]
        print(f"tokens {len(real)} NaN share {real.isnan().float().mean():.2f} last norm {real[-1].float().norm():.1f}")


if __name__ == "__main__":
    main()
