"""
title: translation on CPU with dynamic int8 quantization of the Linear layers
expect: clean
thread: https://github.com/OpenNMT/OpenNMT-py/pull/1905
measured: train loss 0.000; token accuracy fp32 1.000 int8 1.000
suspect: 45 calibrated (int8 weights with scales per tensor, activations quantised on the fly, for inference only)

Expectation, written first: the model is trained in float32, then torch.ao's dynamic quantization turns the Linear weights into qint8 for the
translator. Activations stay float32 between the layers. The greedy translations of the quantised model are those of the float32 model.
"""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, BOS = 0, 1


class NMTModel(nn.Module):
    def __init__(self, vocab=24, dim=48, max_len=16):
        super().__init__()
        self.src_emb, self.tgt_emb = nn.Embedding(vocab, dim), nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(max_len, dim)
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))
        self.generator = nn.Linear(dim, vocab)

    def encode(self, src):
        return self.src_emb(src) + self.pos(torch.arange(src.size(1)))

    def decode(self, tgt, memory):
        h = self.tgt_emb(tgt) + self.pos(torch.arange(tgt.size(1)))
        h = h + F.scaled_dot_product_attention(self.q(h), self.k(memory), self.v(memory))
        return self.generator(h + self.ffn(h))

    def forward(self, src, tgt):
        return self.decode(tgt, self.encode(src))


class Translator:
    def __init__(self, model, int8=False):
        self.model = model.eval()
        if int8:
            self.model = torch.ao.quantization.quantize_dynamic(self.model, {nn.Linear}, dtype=torch.qint8)

    @torch.no_grad()
    def translate_batch(self, src):
        memory = self.model.encode(src)
        tgt = torch.full((src.size(0), 1), BOS)
        for _ in range(src.size(1)):
            log_probs = F.log_softmax(self.model.decode(tgt, memory)[:, -1], dim=-1)
            tgt = torch.cat([tgt, log_probs.argmax(-1, keepdim=True)], dim=1)
        return tgt[:, 1:]


def make_batch(table, n, generator):
    src = torch.randint(2, 24, (n, 6), generator=generator)
    out = table[src]
    return src, torch.cat([torch.full((n, 1), BOS), out[:, :-1]], dim=1), out


def main():
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(5)
    table = torch.cat([torch.tensor([0, 1]), 2 + torch.randperm(22, generator=g)])
    model = NMTModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(400):
        src, tgt_in, tgt_out = make_batch(table, 48, g)
        loss = F.cross_entropy(model(src, tgt_in).flatten(0, 1), tgt_out.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    src, _, gold = make_batch(table, 64, g)
    fp32 = Translator(copy.deepcopy(model)).translate_batch(src)
    int8 = Translator(copy.deepcopy(model), int8=True).translate_batch(src)
    print(f"train loss {loss.item():.3f}")
    print(f"token accuracy fp32 {(fp32 == gold).float().mean():.3f} int8 {(int8 == gold).float().mean():.3f}")


if __name__ == "__main__":
    main()
