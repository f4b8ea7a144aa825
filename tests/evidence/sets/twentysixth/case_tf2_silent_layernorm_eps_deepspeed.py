"""
title: fused layer norm returns NaN for padding rows of zeros
expect: silent:underflow|downcast
thread: https://github.com/deepspeedai/DeepSpeed/issues/581
measured: NaN rows 16 of 48 / sentences without a prediction 3 of 4
widened: NaN rows 0 of 48 / sentences without a prediction 0 of 4; innocent: NaN rows 16 of 48 / sentences without a prediction 3 of 4
suspect: 54 exact (the mask is 0 or 1)

Expectation, written first: epsilon 1e-12 is added in float32, but the variance is then converted to float16, where 1e-12 is
0. For a constant row the variance is 0, its inverse root inf, and 0 times inf is NaN. Remedy: keep the variance in
float32 until after the inverse root. The mask in float16 is exact.
"""
import torch
from torch import nn


class FusedResidualLayerNorm(nn.Module):
    """Follows normalize_kernels.cu: sums in float, storage in half."""

    def __init__(self, hidden, epsilon=1e-12):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(hidden))
        self.beta = nn.Parameter(torch.zeros(hidden))
        self.epsilon = epsilon

    def forward(self, x, residual):
        vals_f = x.float() + residual.float()
        mean = vals_f.mean(-1, keepdim=True)
        variance = (vals_f - mean).square().mean(-1, keepdim=True) + self.epsilon
        variance = variance.to(x.dtype)  # BORN
        inv_std = torch.rsqrt(variance).float()
        return ((vals_f - mean) * inv_std * self.gamma + self.beta).to(x.dtype)


class TransformerLayer(nn.Module):
    def __init__(self, hidden, inter):
        super().__init__()
        self.inter = nn.Linear(hidden, inter, bias=False)
        self.output = nn.Linear(inter, hidden, bias=False)
        self.norm = FusedResidualLayerNorm(hidden)

    def forward(self, x):
        return self.norm(self.output(torch.relu(self.inter(x))), x)


class BertEncoder(nn.Module):
    def __init__(self, vocab, hidden, layers):
        super().__init__()
        self.embeddings = nn.Embedding(vocab, hidden, padding_idx=0)
        self.layer = nn.ModuleList(TransformerLayer(hidden, 2 * hidden) for _ in range(layers))
        self.classifier = nn.Linear(hidden, 2)

    def forward(self, input_ids):
        mask = (input_ids != 0).unsqueeze(-1).half()  # attention mask
        x = self.embeddings(input_ids)
        for layer in self.layer:
            x = layer(x)
        pooled = (x.float() * mask.float()).sum(1) / mask.float().sum(1)
        return x, self.classifier(pooled.to(x.dtype))


def collate(sentences):
    width = max(map(len, sentences))
    return torch.tensor([s + [0] * (width - len(s)) for s in sentences])


@torch.no_grad()
def main():
    torch.manual_seed(581)
    model = BertEncoder(vocab=100, hidden=32, layers=2).half().eval()
    generator = torch.Generator().manual_seed(2)
    lengths = [12, 9, 4, 7]
    sentences = [torch.randint(1, 100, (n,), generator=generator).tolist() for n in lengths]
    hidden, logits = model(collate(sentences))
    print(f"NaN rows {int(hidden.isnan().any(-1).sum())} of {hidden[..., 0].numel()}")
    print(f"sentences without a prediction {int(logits.isnan().any(-1).sum())} of {len(sentences)}")


if __name__ == "__main__":
    main()
