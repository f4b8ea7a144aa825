"""
title: KV cache allocated in the default bf16 while quantized linears answer in fp32
expect: collision
thread: https://github.com/pytorch/torchchat/issues/596
fix_at: 36, 37, 47

Expectation, written first: the dynamic-quantized linear layers dequantize to float32 and answer in float32 whatever the model dtype,
and the generator asks setup_caches for its default bfloat16 cache. The keys written by index into that cache have the other dtype and
index_put refuses.
"""
import torch
import torch.nn.functional as F
from torch import nn

class WeightOnlyInt8Linear(nn.Module):
    def __init__(self, linear, groupsize=8):
        super().__init__()
        w = linear.weight.detach().float()
        self.shape, self.groupsize = w.shape, groupsize
        groups = w.reshape(-1, groupsize)
        scales = groups.abs().amax(dim=1, keepdim=True).clamp(min=1e-6) / 127
        self.register_buffer("weight", (groups / scales).round().clamp(-128, 127).to(torch.int8))
        self.register_buffer("scales", scales)
    def forward(self, x):
        w_dq = (self.weight * self.scales).reshape(self.shape)
        return F.linear(x.float(), w_dq)  # BORN

class KVCache(nn.Module):
    def __init__(self, max_batch_size, max_seq_length, n_heads, head_dim, dtype=torch.bfloat16):  # BORN
        super().__init__()
        cache_shape = (max_batch_size, n_heads, max_seq_length, head_dim)
        self.register_buffer("k_cache", torch.zeros(cache_shape, dtype=dtype))  # BORN
        self.register_buffer("v_cache", torch.zeros(cache_shape, dtype=dtype))  # BORN
    def update(self, input_pos, k_val, v_val):
        k_out, v_out = self.k_cache, self.v_cache
        k_out[:, :, input_pos] = k_val  # COLLIDES
        v_out[:, :, input_pos] = v_val
        return k_out, v_out

class Attention(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.wqkv, self.wo = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.n_heads, self.head_dim, self.kv_cache = n_heads, dim // n_heads, None
    def forward(self, x, mask, input_pos):
        b, s, d = x.shape
        q, k, v = (t.view(b, s, self.n_heads, self.head_dim).transpose(1, 2) for t in self.wqkv(x).chunk(3, dim=-1))
        k, v = self.kv_cache.update(input_pos, k, v)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.wo(y.transpose(1, 2).reshape(b, s, d))

class Transformer(nn.Module):
    def __init__(self, vocab=32, dim=16, n_heads=2, n_layers=2):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Attention(dim, n_heads) for _ in range(n_layers))
        self.output = nn.Linear(dim, vocab, bias=False)
    def setup_caches(self, max_batch_size, max_seq_length):
        for layer in self.layers:
            layer.kv_cache = KVCache(max_batch_size, max_seq_length, layer.n_heads, layer.head_dim)  # BORN
        self.causal_mask = torch.tril(torch.ones(max_seq_length, max_seq_length, dtype=torch.bool))
    def forward(self, idx, input_pos):
        x = self.tok_embeddings(idx)
        for layer in self.layers:
            x = x + layer(x, self.causal_mask[input_pos], input_pos)
        return self.output(x)

def quantize_linears(module):
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, WeightOnlyInt8Linear(child))
        else:
            quantize_linears(child)

@torch.no_grad()
def generate(model, prompt, max_new_tokens):
    model.setup_caches(1, len(prompt) + max_new_tokens)  # BORN
    seq, pos = prompt.clone(), torch.arange(len(prompt))
    for _ in range(max_new_tokens):
        logits = model(seq[pos].unsqueeze(0), pos)
        seq = torch.cat([seq, logits[0, -1].argmax().view(1)])
        pos = torch.tensor([len(seq) - 1])
    return seq

if __name__ == "__main__":
    torch.manual_seed(0)
    model = Transformer()
    quantize_linears(model)
    print(generate(model, torch.tensor([3, 7, 1, 9]), 8).tolist())
