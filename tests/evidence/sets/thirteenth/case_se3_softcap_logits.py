"""
title: a small language model trains under bfloat16 autocast with float32 softcapped logits
expect: clean
thread: https://github.com/karpathy/nanochat/pull/326
measured: loss 0.52 (float32: loss 0.52)

Expectation, written first: parameters, optimizer state and loss are float32, only the products are bfloat16 and the
logits are widened before the tanh; the run ends where a float32 run ends.
"""
import torch
import torch.nn.functional as F
from torch import nn

COMPUTE = torch.bfloat16


def norm(x):
    return F.rms_norm(x, (x.size(-1),))


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(norm(q), norm(k), v, is_causal=True)
        return self.proj(y.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc, self.proj = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        return self.proj(F.relu(self.fc(x)).square())


class GPT(nn.Module):
    def __init__(self, vocab=24, dim=32, heads=4, depth=2, length=16):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(nn.ModuleList([Attention(dim, heads), MLP(dim)]) for _ in range(depth))
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids, targets):
        x = norm(self.wte(ids) + self.wpe.weight[: ids.shape[1]])
        for attn, mlp in self.blocks:
            x = x + attn(norm(x))
            x = x + mlp(norm(x))
        softcap = 15.0
        logits = self.lm_head(norm(x)).float()
        logits = softcap * torch.tanh(logits / softcap)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def stream(gen, batch=16, length=16, vocab=24):
    start = torch.randint(vocab, (batch, 1), generator=gen)
    step = torch.randint(1, 4, (batch, 1), generator=gen)
    ids = (start + step * torch.arange(length + 1)) % vocab
    return ids[:, :-1], ids[:, 1:]


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    model = GPT()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.8, 0.95), weight_decay=0.0)
    for step in range(60):
        ids, targets = stream(gen)
        with torch.autocast("cpu", COMPUTE, enabled=COMPUTE is not torch.float32):
            loss = model(ids, targets)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
    print(f"loss {loss.item():.2f}")


main()
