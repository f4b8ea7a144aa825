"""
title: half-precision transformer ranker with its attention softmax taken in float32
expect: clean
thread: https://github.com/facebookresearch/ParlAI/pull/2408
measured: best [0, 3, 0, 1] scores [0.52, 0.55, 0.56, 0.62]
suspect: 44 rounding-only: weights lie in [0, 1], half keeps them to its accuracy

Expectation, written first: the encoder runs in float16; the scores are masked with the smallest half number, the
softmax is computed in float32 and its result cast back to half. Probabilities of a few candidates fit half without
loss beyond its accuracy, layer norms and candidate scores are formed in float32. The ranks and scores are those of
the float32 model to three digits.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

MODEL_DTYPE = torch.float16


def neginf(dtype):
    return torch.finfo(dtype).min


class MultiHeadAttention(nn.Module):
    def __init__(self, n_heads, dim):
        super().__init__()
        self.n_heads, self.dim = n_heads, dim
        self.q_lin, self.k_lin, self.v_lin, self.out_lin = (nn.Linear(dim, dim) for _ in range(4))

    def prepare_head(self, tensor):
        bsz, seq_len, _ = tensor.size()
        return tensor.view(bsz, seq_len, self.n_heads, -1).transpose(1, 2).flatten(0, 1)

    def forward(self, query, mask):
        bsz, query_len, dim = query.size()
        q = self.prepare_head(self.q_lin(query)) / math.sqrt(dim // self.n_heads)
        k = self.prepare_head(self.k_lin(query))
        v = self.prepare_head(self.v_lin(query))
        dot_prod = q.bmm(k.transpose(1, 2))
        attn_mask = (mask == 0).view(bsz, 1, 1, -1).expand(bsz, self.n_heads, query_len, -1).flatten(0, 1)
        dot_prod.masked_fill_(attn_mask, neginf(dot_prod.dtype))
        attn_weights = F.softmax(dot_prod, dim=-1, dtype=torch.float32).type_as(query)
        attentioned = attn_weights.bmm(v).view(bsz, self.n_heads, query_len, -1)
        return self.out_lin(attentioned.transpose(1, 2).reshape(bsz, query_len, dim))


class TransformerEncoderLayer(nn.Module):
    def __init__(self, n_heads, dim, ffn):
        super().__init__()
        self.attention = MultiHeadAttention(n_heads, dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.lin1, self.lin2 = nn.Linear(dim, ffn), nn.Linear(ffn, dim)

    def norm(self, layer, x):
        return F.layer_norm(x.float(), layer.normalized_shape, layer.weight.float(), layer.bias.float()).type_as(x)

    def forward(self, x, mask):
        x = self.norm(self.norm1, x + self.attention(x, mask))
        return self.norm(self.norm2, x + self.lin2(F.relu(self.lin1(x)))) * mask.unsqueeze(-1).type_as(x)


class TransformerMemNet(nn.Module):
    def __init__(self, vocab=120, dim=32):
        super().__init__()
        self.embeddings = nn.Embedding(vocab, dim, padding_idx=0)
        self.layers = nn.ModuleList([TransformerEncoderLayer(4, dim, 64) for _ in range(2)])

    def encode(self, ids):
        mask = ids != 0
        x = self.embeddings(ids)
        for layer in self.layers:
            x = layer(x, mask)
        return x.float().sum(1) / mask.sum(1, keepdim=True).float()


if __name__ == "__main__":
    torch.manual_seed(0)
    model = TransformerMemNet().to(MODEL_DTYPE).eval()
    context, cands = torch.randint(1, 120, (4, 14)), torch.randint(1, 120, (6, 9))
    context[1, 9:], cands[2, 5:] = 0, 0
    with torch.no_grad():
        scores = F.normalize(model.encode(context), dim=-1) @ F.normalize(model.encode(cands), dim=-1).T
    print("best", scores.argmax(1).tolist(), "scores", [round(s, 2) for s in scores.max(1).values.tolist()])
