"""
title: masked mean pooling sums in float32 and returns the dtype of the encoder, the retrieval is unharmed
expect: clean
thread: https://github.com/HKUDS/LightRAG/pull/3675
measured: found own document 1.00 | mean top score 0.831 | same hits without padding True ; in full float32/without the suspect: found own document 1.00 | mean top score 0.831 | same hits without padding True
suspect: line 44, rounds a mean once

Expectation, written first: hf_embed adds up the masked hidden states in float32, divides by the token count and casts the mean back to
float16. The cast at the end looks like a loss but it rounds numbers near one once; the hits are those of float32. Nothing to report.
"""
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, vocab=200, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.proj = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, input_ids, attention_mask):
        h = self.norm(self.embed(input_ids) + torch.tanh(self.proj(self.embed(input_ids))))
        return h


def tokenize(texts, pad=0):
    n = max(len(t) for t in texts)
    ids = torch.full((len(texts), n), pad)
    mask = torch.zeros(len(texts), n, dtype=torch.long)
    for i, t in enumerate(texts):
        ids[i, :len(t)] = torch.tensor(t)
        mask[i, :len(t)] = 1
    return ids, mask


@torch.no_grad()
def hf_embed(texts, model):
    ids, mask = tokenize(texts)
    hidden = model(ids, mask)
    weights = mask.unsqueeze(-1).to(torch.float32)
    summed = (hidden.to(torch.float32) * weights).sum(dim=1)
    counts = weights.sum(dim=1).clamp_min(1)
    return (summed / counts).to(hidden.dtype)


def cosine_top(query, docs, k=3):
    q = nn.functional.normalize(query.float(), dim=-1)
    d = nn.functional.normalize(docs.float(), dim=-1)
    scores = q @ d.T
    return scores.topk(k, dim=-1)


torch.manual_seed(0)
model = Encoder().half().eval()
g = torch.Generator().manual_seed(1)
docs = [torch.randint(1, 200, (int(torch.randint(6, 40, (1,), generator=g)),), generator=g).tolist() for _ in range(60)]
queries = [d[: len(d) * 2 // 3] for d in docs[:20]]
doc_vec = hf_embed(docs, model)
hits = cosine_top(hf_embed(queries, model), doc_vec)
alone = torch.cat([hf_embed([q], model) for q in queries])
print("found own document %.2f" % (hits.indices[:, 0] == torch.arange(20)).float().mean())
print("mean top score %.3f" % hits.values[:, 0].mean())
print("same hits without padding", bool((cosine_top(alone, doc_vec).indices[:, 0] == hits.indices[:, 0]).all()))
