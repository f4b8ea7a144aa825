"""
title: A protein language model runs in half on the embeddings task
expect: clean
thread: https://github.com/facebookresearch/esm/issues/259
measured: p1 norm 3.73 loglik -3.54 / p2 norm 3.40 loglik -3.34 / p3 norm 3.78 loglik -3.55 / cosine ['0.86', '0.87']
suspect: 71 range

Expectation, written first: The model was trained in half and is run in half; its activations are of the
order of one, layer norm and softmax are computed wider inside. The sequence representations differ from
float64 in the fourth digit, the printed norms, similarities and log-likelihoods agree to two decimals.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

ALPHABET = "LAGVSERTIDPKQNFYMHWC"


class BatchConverter:
    def __call__(self, data):
        labels, strs = zip(*data)
        width = max(map(len, strs)) + 1
        tokens = torch.full((len(strs), width), 21)
        for i, s in enumerate(strs):
            tokens[i, 0] = 20
            tokens[i, 1:len(s) + 1] = torch.tensor([ALPHABET.index(c) for c in s])
        return labels, strs, tokens


class TransformerLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x, pad):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        w = (q / math.sqrt(q.shape[-1])) @ k.transpose(-1, -2)
        w = w.masked_fill(pad[:, None, None], float("-inf"))
        w = F.softmax(w, dim=-1, dtype=torch.float32).type_as(x)
        x = x + self.out((w @ v).transpose(1, 2).reshape(b, t, d))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class ESM2(nn.Module):
    def __init__(self, dim=64, heads=4, layers=3):
        super().__init__()
        self.embed_tokens = nn.Embedding(22, dim, padding_idx=21)
        self.layers = nn.ModuleList(TransformerLayer(dim, heads) for _ in range(layers))
        self.emb_layer_norm_after = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, 22)

    def forward(self, tokens):
        pad = tokens.eq(21)
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, pad)
        x = self.emb_layer_norm_after(x)
        return {"logits": self.lm_head(x), "representations": x}


@torch.no_grad()
def main():
    torch.manual_seed(22)
    model = ESM2().eval()
    model = model.half()
    data = [("p1", "MKTVRQERLKSIVRILERSKEPVSG"), ("p2", "KALTARQQEVFDLIRDHISQTGMPP"), ("p3", "MKTLRQEKLKSIV")]
    labels, strs, tokens = BatchConverter()(data)
    out = model(tokens)
    reps = torch.stack([out["representations"][i, 1:len(s) + 1].float().mean(0) for i, s in enumerate(strs)])
    logp = out["logits"].float().log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
    for i, s in enumerate(strs):
        print(labels[i], f"norm {reps[i].norm():.2f}", f"loglik {logp[i, 1:len(s) + 1].mean():.2f}")
    print("cosine", [f"{x:.2f}" for x in F.cosine_similarity(reps[:1], reps[1:])])


if __name__ == "__main__":
    main()
