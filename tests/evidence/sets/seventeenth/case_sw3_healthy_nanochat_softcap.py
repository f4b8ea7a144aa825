"""
title: bf16 transformer whose logits are widened to fp32 before the softcap and the chunked loss
expect: clean
thread: https://github.com/karpathy/nanochat/pull/326
measured: loss dtype torch.float32 gap True gradient cosine 1.00
suspect: 51 intended

Expectation, written first: embedding and linears run in bfloat16 and the lm_head's bfloat16 logits are widened before tanh, log-softmax and
the sum of losses, so the mixture is the design: the loss agrees with the float32 model to bfloat16's accuracy.
"""
import copy

import torch
import torch.nn.functional as F
from torch import nn

def norm(x):
    return F.rms_norm(x, (x.size(-1),))

class CausalSelfAttention(nn.Module):
    def __init__(self, dim, n_head):
        super().__init__()
        self.n_head, self.qkv, self.proj = n_head, nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.n_head, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(norm(q), norm(k), v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, d))

class Block(nn.Module):
    def __init__(self, dim, n_head):
        super().__init__()
        self.attn = CausalSelfAttention(dim, n_head)
        self.fc, self.out = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        x = x + self.attn(norm(x))
        return x + self.out(F.relu(self.fc(norm(x))).square())

class GPT(nn.Module):
    def __init__(self, vocab=64, dim=32, n_head=4, n_layer=2, softcap=15.0):
        super().__init__()
        self.wte, self.blocks = nn.Embedding(vocab, dim), nn.ModuleList(Block(dim, n_head) for _ in range(n_layer))
        self.lm_head, self.softcap = nn.Linear(dim, vocab, bias=False), softcap

    def logits(self, idx):
        x = norm(self.wte(idx))
        for block in self.blocks:
            x = block(x)
        logits = self.lm_head(norm(x)).float()
        return self.softcap * torch.tanh(logits / self.softcap)

    def forward(self, idx, targets, chunk=64):
        flat, targets = self.logits(idx).flatten(0, 1), targets.flatten()
        total = flat.new_zeros(())
        for logits, target in zip(flat.split(chunk), targets.split(chunk)):
            total = total + F.cross_entropy(logits, target, reduction="sum")
        return total / targets.numel()

def main():
    torch.manual_seed(0)
    reference = GPT()
    model = copy.deepcopy(reference).to(torch.bfloat16)
    idx = torch.randint(0, 64, (4, 33))
    loss32, loss16 = reference(idx[:, :-1], idx[:, 1:]), model(idx[:, :-1], idx[:, 1:])
    loss32.backward()
    loss16.backward()
    cosine = F.cosine_similarity(reference.lm_head.weight.grad.flatten(), model.lm_head.weight.grad.float().flatten(), dim=0)
    print(f"loss dtype {loss16.dtype} gap {abs(loss32.item() - loss16.item()) < 0.02} gradient cosine {cosine.item():.2f}")

if __name__ == "__main__":
    main()
