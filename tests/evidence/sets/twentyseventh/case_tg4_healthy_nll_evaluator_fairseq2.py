"""
title: the NLL evaluator runs the model in bfloat16 and accumulates the loss in float64
expect: clean
thread: https://github.com/facebookresearch/fairseq2/pull/837
measured: torch.bfloat16: nll 4.73 ppl 113  torch.float32: nll 4.73 ppl 113
suspect: 62 negligible (the rounding errors of the logits average out over thousands of tokens)

Expectation, written first: weights and activations are bfloat16, but the logits are widened before the log-softmax and
the sums are double. Single logits are off by a few thousandths, the mean over 8000 tokens by about one thousandth; with
two decimals bfloat16 and float32 print the same.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class DecoderModel(nn.Module):
    def __init__(self, vocab=96, dim=48):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 96), nn.GELU(), nn.Linear(96, dim))
        self.norm = nn.LayerNorm(dim)
        self.final_proj = nn.Linear(dim, vocab, bias=False)

    def forward(self, seqs):
        x = self.embed(seqs)
        x = self.norm(x + self.ffn(x))
        return self.final_proj(x)


class MetricBag:
    def __init__(self):
        self.nll = torch.zeros((), dtype=torch.float64)
        self.num_targets = torch.zeros((), dtype=torch.int64)

    def update(self, nll, num_targets):
        self.nll += nll.detach()
        self.num_targets += num_targets

    def compute(self):
        nll = (self.nll / self.num_targets).item()
        return nll, 2.0 ** (nll / 0.6931471805599453)


class InstructionNLLEvalUnit:
    def __init__(self, model):
        self.model = model
        self.bag = MetricBag()

    def __call__(self, seqs):
        logits = self.model(seqs[:, :-1])
        targets = seqs[:, 1:]
        lprobs = F.log_softmax(logits, dim=-1, dtype=torch.float32)
        nll = -lprobs.gather(2, targets.unsqueeze(2)).squeeze(2)
        self.bag.update(nll.double().sum(), targets.numel())


@torch.no_grad()
def evaluate(dtype):
    torch.manual_seed(837)
    model = DecoderModel()
    model = model.to(dtype).eval()
    unit = InstructionNLLEvalUnit(model)
    generator = torch.Generator().manual_seed(1)
    for _ in range(8):
        unit(torch.randint(0, 96, (32, 33), generator=generator))
    return unit.bag.compute()


def main():
    for dtype in (torch.bfloat16, torch.float32):
        nll, ppl = evaluate(dtype)
        print(f"{dtype}: nll {nll:.2f} ppl {ppl:.0f}", end="  ")
    print()


main()
