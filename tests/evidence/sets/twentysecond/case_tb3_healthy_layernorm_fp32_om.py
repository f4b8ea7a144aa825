"""
title: bfloat16 transformer whose LayerNorms stay in float32 and return to the stream's dtype
expect: clean
thread: https://github.com/dingo-actual/om/issues/11
measured: norm dtypes {torch.float32} | bf16 loss 4.34 fp32 loss 4.34
suspect: 21 norm-is-wider

Expectation, written first: the blocks are bfloat16, every norm upcasts its input, works with float32 weights and casts the
result back. Apart from the usual bfloat16 rounding the probabilities are those of the float32 model.
"""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class FP32LayerNorm(nn.LayerNorm):
    def forward(self, x):
        out = F.layer_norm(x.float(), self.normalized_shape, self.weight, self.bias, self.eps)
        return out.to(x.dtype)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm_attn = FP32LayerNorm(dim)
        self.norm_mlp = FP32LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm_attn(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attn = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attn.transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(self.norm_mlp(x))


class OmLLM(nn.Module):
    def __init__(self, vocab_size=64, dim=32, heads=4, layers=3):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm_out = FP32LayerNorm(dim)
        self.head = nn.Linear(dim, vocab_size, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm_out(x))


def to_mixed(model, dtype):
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            module.to(dtype)
    return model


@torch.no_grad()
def token_loss(model, tokens):
    logits = model(tokens[:, :-1]).float()
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1)).item()


def main():
    torch.manual_seed(0)
    reference = OmLLM().eval()
    mixed = to_mixed(copy.deepcopy(reference), torch.bfloat16)
    tokens = torch.randint(0, 64, (16, 24))
    norms = {p.dtype for m in mixed.modules() if isinstance(m, FP32LayerNorm) for p in m.parameters()}
    print("norm dtypes", norms)
    print(f"bf16 loss {token_loss(mixed, tokens):.2f} fp32 loss {token_loss(reference, tokens):.2f}")


if __name__ == "__main__":
    main()
