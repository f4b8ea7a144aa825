"""
title: perplexity of a quantized model is computed at the model's bfloat16, so close bit widths come out equal
expect: silent:precision-loss|downcast
thread: https://github.com/Xilinx/brevitas/pull/1458
measured: 8 bit: perplexity 99.000 ; 4 bit: perplexity 99.000 ; 3 bit: perplexity 99.000 ; 2 bit: perplexity 102.000
widened: 8 bit: perplexity 100.739 ; 4 bit: perplexity 100.790 ; 3 bit: perplexity 101.074 ; 2 bit: perplexity 104.629
innocent: 8 bit: perplexity 99.000 ; 4 bit: perplexity 99.000 ; 3 bit: perplexity 99.000 ; 2 bit: perplexity 102.000
suspect: 46 exact (labels stay under 128, signed bytes hold them)

Expectation, written first: compute_perplexity takes the cross entropy of bfloat16 logits and stacks and exponentiates it in bfloat16; near 4.6 the step
of the loss is a thirty-second and near 100 the step of the perplexity is a half, so models whose perplexities differ by a few tenths print the same number.
The labels are held as int8, which a larger vocabulary would overflow, but there are only 96 tokens.
"""
import torch
import torch.nn.functional as F
from torch import nn


class TinyLM(nn.Module):
    def __init__(self, vocab=96, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.fc = nn.Linear(dim, dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        return self.lm_head(torch.tanh(self.fc(self.embed(ids))))


def fake_quant(weight, bit_width):
    qmax = 2 ** (bit_width - 1) - 1
    scale = weight.abs().amax(1, keepdim=True) / qmax
    return (weight / scale).round().clamp(-qmax, qmax) * scale


def quantize_model(model, bit_width):
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.weight.copy_(fake_quant(module.weight, bit_width))
    return model


def get_dataset(n=16, seqlen=33, vocab=96):
    g = torch.Generator().manual_seed(1)
    return torch.randint(0, vocab, (n, seqlen), generator=g).to(torch.int8)


@torch.no_grad()
def compute_perplexity(model, data):
    nlls = []
    for sample in data.split(4):
        ids = sample.long()
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())  # BORN
        nlls.append(loss)
    return torch.exp(torch.stack(nlls).mean())


def build(dtype):
    torch.manual_seed(0)
    return TinyLM().to(dtype).eval()


def main():
    data = get_dataset()
    for bits in (8, 4, 3, 2):
        model = quantize_model(build(torch.float32), bits).to(torch.bfloat16)
        print(f"{bits} bit: perplexity {compute_perplexity(model, data).item():.3f}")


main()
