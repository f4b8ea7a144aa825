"""
title: protein language model in bfloat16 whose RMSNorm computes in float32 and returns the dtype of its input
expect: clean
thread: https://github.com/chandar-lab/AMPLIFY/pull/22
measured: norm error 0.0078 (one bfloat16 rounding of values up to about 3); loss fp32 3.62 bf16 3.62
suspect: 26 boundary

Expectation, written first: the norm takes bfloat16 activations to float32, squares and averages them there, and casts the result back. The cast back is
one rounding at the boundary to a bfloat16 layer, and the variance loses nothing. The losses of the bf16 and the fp32 model agree to two digits.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        output = self._norm(x.float()).type_as(x)
        return output * self.weight


class EncoderBlock(nn.Module):
    def __init__(self, dim, heads, hidden):
        super().__init__()
        self.heads = heads
        self.attention_norm = RMSNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)
        self.ffn_norm = RMSNorm(dim)
        self.w12 = nn.Linear(dim, 2 * hidden, bias=False)
        self.w3 = nn.Linear(hidden, dim, bias=False)

    def forward(self, x, bias):
        b, n, c = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attn = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = x + self.wo(attn.transpose(1, 2).reshape(b, n, c))
        gate, up = self.w12(self.ffn_norm(x)).chunk(2, dim=-1)
        return x + self.w3(F.silu(gate) * up)


class AMPLIFY(nn.Module):
    def __init__(self, vocab=27, dim=32, layers=3):
        super().__init__()
        self.encoder = nn.Embedding(vocab, dim, padding_idx=0)
        self.blocks = nn.ModuleList(EncoderBlock(dim, 4, 48) for _ in range(layers))
        self.layer_norm_2 = RMSNorm(dim)
        self.decoder = nn.Linear(dim, vocab)

    def forward(self, src, pad_mask):
        x = self.encoder(src)
        bias = torch.where(pad_mask, 0.0, float("-inf")).to(x.dtype)[:, None, None, :]
        for block in self.blocks:
            x = block(x, bias)
        return self.decoder(self.layer_norm_2(x)), x


def main():
    torch.manual_seed(0)
    src = torch.randint(3, 27, (4, 20))
    src[2, 14:] = 0
    pad_mask, labels = src != 0, src.masked_fill(src == 0, -100)
    masked = torch.where(torch.rand(src.shape) < 0.15, torch.full_like(src, 2), src).masked_fill(src == 0, 0)
    model = AMPLIFY().eval()
    with torch.no_grad():
        losses = []
        for dtype in (torch.float32, torch.bfloat16):
            model = model.to(dtype)
            logits, hidden = model(masked, pad_mask)
            losses.append(F.cross_entropy(logits.float().transpose(1, 2), labels, ignore_index=-100).item())
        exact = model.layer_norm_2._norm(hidden.double())
        print("norm error", round((model.layer_norm_2(hidden).double() - exact).abs().max().item(), 4))
    print("loss fp32 %.2f bf16 %.2f" % tuple(losses))


if __name__ == "__main__":
    main()
