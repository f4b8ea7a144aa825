"""
title: linear attention in half returns zeros on long sequences: the normalizer's sum is infinite
expect: silent:overflow
thread: https://github.com/idiap/fast-transformers/issues/32
measured: mean output on 256 positions 0.0687, on 6144 positions 0.0000
widened: mean output on 256 positions 0.0687, on 6144 positions 0.0643
innocent: mean output on 256 positions 0.0687, on 6144 positions 0.0000
suspect: line 24 harmless (a subnormal in half, but the sum is large)

Expectation, written first: keys are summed over the sequence and multiplied with the queries in the half of the layer;
with 6144 positions the product passes 65504, its inverse is 0 and so is every output, whatever the
values. The eps of 1e-6, nearly nothing in half, is the obvious suspect but does not matter.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def elu_feature_map(x):
    return F.elu(x) + 1


class LinearAttention(nn.Module):
    def __init__(self, feature_map=elu_feature_map, eps=1e-6):
        super().__init__()
        self.feature_map = feature_map
        self.eps = eps

    def forward(self, queries, keys, values):
        Q = self.feature_map(queries)
        K = self.feature_map(keys)
        KV = torch.einsum("nshd,nshm->nhmd", K, values)
        Z = 1 / (torch.einsum("nlhd,nhd->nlh", Q, K.sum(dim=1)) + self.eps)  # BORN
        return torch.einsum("nlhd,nhmd,nlh->nlhm", Q, KV, Z).contiguous()


class AttentionLayer(nn.Module):
    def __init__(self, d_model=32, n_heads=2):
        super().__init__()
        self.inner_attention = LinearAttention()
        self.query_projection = nn.Linear(d_model, d_model)
        self.key_projection = nn.Linear(d_model, d_model)
        self.value_projection = nn.Linear(d_model, d_model)
        self.out_projection = nn.Linear(d_model, d_model, bias=False)
        self.n_heads = n_heads

    def forward(self, x):
        n, length, _ = x.shape
        split = lambda y: y.view(n, length, self.n_heads, -1)
        queries, keys = split(self.query_projection(x)), split(self.key_projection(x))
        values = split(self.value_projection(x))
        new_values = self.inner_attention(queries, keys, values)  # BORN
        return self.out_projection(new_values.reshape(n, length, -1))


def output_size(layer, x):
    with torch.no_grad():
        return layer(x).float().abs().mean().item()


def main():
    torch.manual_seed(0)
    layer = AttentionLayer().half()
    layer.value_projection.bias.data.normal_(std=0.2)
    x = torch.randn(1, 6144, 32).half()
    short, long = output_size(layer, x[:, :256]), output_size(layer, x)
    print(f"mean output on 256 positions {short:.4f}, on 6144 positions {long:.4f}")


main()
