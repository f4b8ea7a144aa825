"""
title: a clamp at one minus a millionth does nothing in bfloat16 and the consistency loss sends NaN through the encoder
expect: silent:precision-loss|downcast|underflow
thread: https://github.com/fastino-ai/GLiNER2/pull/155
measured: span loss 1.2696, pair loss 0.4499 ; non-finite gradient entries 816 of 816
widened: span loss 1.2696, pair loss 0.4505 ; non-finite gradient entries 0 of 816
innocent: span loss 1.2696, pair loss 0.4499 ; non-finite gradient entries 816 of 816
suspect: 49 exact (a mask of zeros and ones)

Expectation, written first: the head's probabilities are bfloat16, where 1 - 1e-6 is exactly 1, so the clamp lets a saturated probability pass and
log1p(-1) is -inf. The forward stays finite, because 1 - exp(-inf) is one, but the derivative at the masked entry is zero times infinity and
every gradient becomes NaN. The mask in float16 holds zero and one only.
"""
import torch
from torch import nn


class SpanPairHead(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.encoder = nn.Linear(dim, dim)
        self.start = nn.Linear(dim, dim)
        self.end = nn.Linear(dim, dim)

    def forward(self, tokens):
        h = torch.tanh(self.encoder(tokens))
        return torch.einsum("bid,bjd->bij", self.start(h), self.end(h))


def marginal_pair_consistency_loss(probabilities, marginal, mask):
    b, n, _ = probabilities.shape
    safe = probabilities.clamp(max=1.0 - 1e-6)  # BORN
    log_survival = torch.log1p(-safe).masked_fill(mask == 0, 0.0)
    start_index = torch.arange(n).repeat_interleave(n).expand(b, -1)
    total = torch.zeros(b, n, dtype=log_survival.dtype)
    total = total.scatter_add(1, start_index, log_survival.flatten(1))
    implied = 1.0 - torch.exp(total)
    return (implied - marginal).pow(2).mean()


def make_batch():
    g = torch.Generator().manual_seed(2)
    tokens = torch.randn(2, 6, 16, generator=g)
    marginal = torch.randint(0, 2, (2, 6), generator=g).float()
    length = torch.tensor([6, 6])
    pos = torch.arange(6)
    upper = pos[None, :, None] <= pos[None, None, :]
    inside = (pos[None, :] < length[:, None])[:, None, :]
    mask = (upper & inside).to(torch.float16)
    return tokens, marginal, mask


def main():
    torch.manual_seed(4)
    model = SpanPairHead().to(torch.bfloat16)
    with torch.no_grad():
        model.start.weight.mul_(9.0)
    tokens, marginal, mask = make_batch()
    scores = model(tokens.to(torch.bfloat16))
    probabilities = torch.sigmoid(scores)  # BORN
    pair_loss = marginal_pair_consistency_loss(probabilities, marginal, mask)
    span_loss = nn.functional.softplus(-scores.float()).mean()
    (span_loss + 0.1 * pair_loss).backward()
    bad = sum(int((~torch.isfinite(p.grad)).sum()) for p in model.parameters())
    total = sum(p.numel() for p in model.parameters())
    print(f"span loss {float(span_loss.detach()):.4f}, pair loss {float(pair_loss.detach()):.4f}")
    print(f"non-finite gradient entries {bad} of {total}")


main()
