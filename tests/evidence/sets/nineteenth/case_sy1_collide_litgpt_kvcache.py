"""
title: generate with the KV cache: index_copy_ got self Float and source BFloat16
expect: collision
thread: https://github.com/Lightning-AI/litgpt/issues/57
fix_at: 27, 52 (the caller of build_kv_caches; a cast of the unpacked cache)

Expectation, written first: the model's weights are bfloat16, the KV cache is allocated with torch.zeros and no dtype, so it is float32.
index_copy of the new bfloat16 key into the float32 cache is refused. The cache must be allocated in the dtype of the keys.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.attn = nn.Linear(n_embd, 3 * n_embd)
        self.proj = nn.Linear(n_embd, n_embd)
        self.n_head = n_head

    def forward(self, x, mask, kv_cache=None, input_pos=None):
        B, T, C = x.size()
        q, k, v = self.attn(x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in (q, k, v))
        if kv_cache is not None:
            cache_k, cache_v = kv_cache
            k = cache_k.index_copy(2, input_pos, k)  # COLLIDES
            v = cache_v.index_copy(2, input_pos, v)
            kv_cache = k, v
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.proj(y.transpose(1, 2).reshape(B, T, C)), kv_cache


class Parrot(nn.Module):
    def __init__(self, vocab=64, n_layer=2, n_embd=32, n_head=4, block_size=32):
        super().__init__()
        self.lm_head = nn.Linear(n_embd, vocab, bias=False)
        self.wte = nn.Embedding(vocab, n_embd)
        self.h = nn.ModuleList(CausalSelfAttention(n_embd, n_head) for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(n_embd)
        self.block_size, self.n_head, self.head_size = block_size, n_head, n_embd // n_head
        self.kv_caches = []

    def build_kv_caches(self, batch_size, max_seq_length, device):
        shape = (batch_size, self.n_head, max_seq_length, self.head_size)
        return [(torch.zeros(shape, device=device), torch.zeros(shape, device=device)) for _ in self.h]  # BORN

    def forward(self, idx, max_seq_length, input_pos=None):
        mask = torch.ones(self.block_size, self.block_size, dtype=torch.bool).tril()
        if not self.kv_caches:
            self.kv_caches = self.build_kv_caches(idx.size(0), max_seq_length, idx.device)
        mask = mask[input_pos][:, :max_seq_length]
        x = self.wte(idx)
        for i, block in enumerate(self.h):
            y, self.kv_caches[i] = block(x, mask, self.kv_caches[i], input_pos)
            x = x + y
        return self.lm_head(self.ln_f(x))


@torch.no_grad()
def generate(model, idx, max_returned_tokens, max_seq_length):
    input_pos = torch.arange(0, idx.size(0))
    while idx.size(0) < max_returned_tokens:
        logits = model(idx[input_pos].view(1, -1), max_seq_length, input_pos)
        idx_next = logits[0, -1].argmax(dim=-1, keepdim=True)
        idx = torch.cat((idx, idx_next))
        input_pos = input_pos[-1:] + 1
    return idx


def main():
    torch.manual_seed(1234)
    model = Parrot().to(dtype=torch.bfloat16).eval()
    out = generate(model, torch.tensor([5, 17, 2, 40]), max_returned_tokens=12, max_seq_length=12)
    print(out.tolist())


if __name__ == "__main__":
    main()
