"""
title: the integrate-and-fire predictor gives tokens whose weights do not add up to one on long audio
expect: silent:precision-loss|downcast
thread: https://github.com/modelscope/FunASR/pull/1811
measured: 668 tokens; weight error: first 50 tokens 0.005, last 50 0.094
widened: 668 tokens; weight error: first 50 tokens 0.000, last 50 0.000; innocent: 668 tokens; weight error: first 50 tokens 0.005, last 50 0.094
suspect: 37 exact (zeros and ones)

Expectation, written first: the firing positions come from the running sum of the weights alpha. In half-precision
inference the running sum passes 256 after a few hundred tokens, where float16 steps by 0.25, so the fraction that belongs
to the old and the new token is wrong and a token's weights no longer add up to 1. Remedy: sum in float32 or float64.
"""
import torch
import torch.nn as nn


def cif_v1(hidden, alphas, threshold):
    """weights of frame t for the token that ends there and for the one that starts there"""
    csum = torch.cumsum(alphas, dim=1)  # BORN
    fired = torch.floor(csum / threshold)
    before = torch.nn.functional.pad(fired, (1, 0))[:, :-1]
    fires = fired > before
    remainder = csum - fired * threshold
    cur = torch.where(fires, alphas - remainder, alphas)
    carry = torch.where(fires, remainder, torch.zeros_like(remainder))
    return before.long(), fired.long(), cur.float(), carry.float()


class CifPredictorV2(nn.Module):
    def __init__(self, idim, threshold=1.0):
        super().__init__()
        self.cif_output = nn.Linear(idim, 1)
        self.threshold = threshold

    def forward(self, hidden, lengths):
        alphas = torch.sigmoid(self.cif_output(hidden)).squeeze(-1)  # BORN
        mask = (torch.arange(hidden.shape[1]) < lengths.unsqueeze(1)).half()
        alphas = alphas * mask.to(alphas.dtype)
        return alphas, cif_v1(hidden, alphas, self.threshold)


def acoustic_weights(index, index_next, cur, carry, num_tokens):
    totals = torch.zeros(cur.shape[0], num_tokens + 1)
    totals.scatter_add_(1, index, cur)
    totals.scatter_add_(1, index_next, carry)
    return totals[:, :num_tokens]


@torch.no_grad()
def main():
    torch.manual_seed(1811)
    predictor = CifPredictorV2(16).eval().half()  # BORN
    predictor.cif_output.bias.fill_(-1.0)
    encoder_out = torch.randn(1, 2400, 16).half()  # BORN
    alphas, (index, index_next, cur, carry) = predictor(encoder_out, torch.tensor([2380]))
    num_tokens = int(index_next.max())
    totals = acoustic_weights(index, index_next, cur, carry, num_tokens)
    error = (totals - 1).abs()
    print(f"{num_tokens} tokens; weight error: first 50 tokens {error[0, :50].mean():.3f}, last 50 {error[0, -50:].mean():.3f}")


main()
