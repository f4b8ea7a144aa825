"""
title: cos and sin of the rotary table kept in bf16 do not move the validation loss
expect: clean
thread: https://github.com/KellerJordan/modded-nanogpt/issues/39
measured: val_loss 0.15  (with the suspect widened: val_loss 0.15)
suspect: 28 phases-float32

Expectation, written first: The table of the rotary embedding is cast to bf16, which looks like the well-known loss of positions. The phases themselves are computed in float32, so all positions stay
distinct, and a cosine with three digits in an attention over 64 tokens changes the scores by less than the noise of a step; the losses agree to two digits.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Rotary(nn.Module):
    def __init__(self, dim, base=10000):
        super().__init__()
        self.inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim))
        self.seq_len_cached = None

    def forward(self, x):
        seq_len = x.shape[1]
        if seq_len != self.seq_len_cached:
            t = torch.arange(seq_len).type_as(self.inv_freq)
            freqs = torch.outer(t, self.inv_freq)
            self.seq_len_cached = seq_len
            self.cos_cached = freqs.cos().bfloat16()
            self.sin_cached = freqs.sin().bfloat16()
        return self.cos_cached[None, :, None, :], self.sin_cached[None, :, None, :]


def apply_rotary_emb(x, cos, sin):
    x1, x2 = x.chunk(2, dim=3)
    return torch.cat([x1 * cos + x2 * sin, x2 * cos - x1 * sin], 3).type_as(x)


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd=32, n_head=2):
        super().__init__()
        self.n_head = n_head
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=False)
        self.rotary = Rotary(n_embd // n_head)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).view(B, T, 3, self.n_head, C // self.n_head).unbind(2)
        cos, sin = self.rotary(q)
        q, k = apply_rotary_emb(q, cos, sin), apply_rotary_emb(k, cos, sin)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


class GPT(nn.Module):
    def __init__(self, vocab_size=24, n_embd=32):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.attn = CausalSelfAttention(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)

    def forward(self, idx, targets):
        x = self.wte(idx)
        x = x + self.attn(F.rms_norm(x, (x.size(-1),)))
        logits = self.lm_head(F.rms_norm(x, (x.size(-1),)))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def get_batch(generator, size=8, length=64):
    idx = torch.randint(0, 24, (size, length), generator=generator)
    return idx, idx.roll(1, dims=1)


def main():
    torch.manual_seed(0)
    model = GPT()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    train_gen, val_gen = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    for step in range(150):
        loss = model(*get_batch(train_gen))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        val = sum(model(*get_batch(val_gen)).item() for _ in range(8)) / 8
    print(f"val_loss {val:.2f}")


if __name__ == "__main__":
    main()
