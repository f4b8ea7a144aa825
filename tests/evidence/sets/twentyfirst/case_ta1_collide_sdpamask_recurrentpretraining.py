"""
title: depth-recurrent model hands the tokenizer's int64 attention mask to scaled dot product attention
expect: collision
thread: https://github.com/seal-rg/recurrent-pretraining/issues/23
fix_at: 37, 64

Expectation, written first: the padded batch carries the usual int64 attention mask of ones and zeros. The model
only adds dimensions to it and passes it on, and scaled_dot_product_attention takes bool or float masks, no long.
The mask must be made bool where the model prepares it.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class CharTokenizer:
    pad_token_id = 0

    def __call__(self, texts, padding="longest"):
        ids = [[ord(c) % 60 + 1 for c in t] for t in texts]
        longest = max(map(len, ids))
        input_ids = torch.tensor([[self.pad_token_id] * (longest - len(r)) + r for r in ids])
        attention_mask = torch.tensor([[0] * (longest - len(r)) + [1] * len(r) for r in ids])
        return {"input_ids": input_ids, "attention_mask": attention_mask}


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd, n_heads):
        super().__init__()
        self.n_heads, self.head_dim = n_heads, n_embd // n_heads
        self.Wqkv = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.proj = nn.Linear(n_embd, n_embd, bias=False)

    def forward(self, x, mask=None):
        B, S, E = x.shape
        q, k, v = self.Wqkv(x).view(B, S, 3, self.n_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)  # COLLIDES
        return self.proj(y.transpose(1, 2).reshape(B, S, E))


class SandwichBlock(nn.Module):
    def __init__(self, n_embd, n_heads):
        super().__init__()
        self.norm_1, self.norm_2 = nn.RMSNorm(n_embd), nn.RMSNorm(n_embd)
        self.attn = CausalSelfAttention(n_embd, n_heads)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 2 * n_embd), nn.SiLU(), nn.Linear(2 * n_embd, n_embd))

    def forward(self, x, mask):
        x = x + self.attn(self.norm_1(x), mask)
        return x + self.mlp(self.norm_2(x))


class RavenForCausalLM(nn.Module):
    def __init__(self, vocab=64, n_embd=32, n_heads=4):
        super().__init__()
        self.wte = nn.Embedding(vocab, n_embd)
        self.adapter = nn.Linear(2 * n_embd, n_embd)
        self.core_block = SandwichBlock(n_embd, n_heads)
        self.ln_f = nn.RMSNorm(n_embd)

    def prepare_mask(self, attention_mask, seq_len):
        if attention_mask is None:
            return None
        causal = torch.ones(seq_len, seq_len, dtype=torch.long).tril()
        return attention_mask[:, None, None, :] * causal[None, None]  # BORN

    def forward(self, input_ids, attention_mask=None, num_steps=3):
        embeds = self.wte(input_ids)
        mask = self.prepare_mask(attention_mask, input_ids.shape[1])
        state = torch.randn_like(embeds) * 0.02
        for _ in range(num_steps):
            state = self.core_block(self.adapter(torch.cat([state, embeds], dim=-1)), mask)
        return self.ln_f(state) @ self.wte.weight.T


if __name__ == "__main__":
    torch.manual_seed(0)
    inputs = CharTokenizer()(["what is 3 + 4?", "name a prime"], padding="longest")
    with torch.no_grad():
        logits = RavenForCausalLM()(**inputs)
    print("next token", logits[:, -1].argmax(-1).shape, bool(logits[:, -1].isfinite().all()))
