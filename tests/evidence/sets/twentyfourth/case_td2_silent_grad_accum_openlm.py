"""
title: accumulated gradients are far smaller than those of the full batch
expect: silent:lost-update|precision-loss|gradient-dtype
thread: https://github.com/mlfoundations/open_lm/issues/171
measured: accumulated norm / full-batch norm 0.435
widened: accumulated norm / full-batch norm 1.018; innocent: accumulated norm / full-batch norm 0.435
suspect: 38 exact (1/1024 is a power of two)

Expectation, written first: the model is in bfloat16 and the micro-batch gradients are added to buffers like the
parameters, so in bfloat16; after about 256 similar terms each further one is less than half an ulp and is dropped.
Remedy: float32 buffers. The bfloat16 scale of 1/1024 is exact.
"""
import torch
from torch import nn
import torch.nn.functional as F


class TinyLM(nn.Module):
    def __init__(self, vocab=32, dim=16):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.output = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        return self.output(self.tok_embeddings(tokens))


class TrainArgs:
    accum_freq = 1024
    precision = torch.bfloat16  # BORN
    lr = 1e-2


class GradAccumulator:
    def __init__(self, model, accum_freq):
        self.params = [p for p in model.parameters() if p.requires_grad]
        self.buffers = [torch.zeros_like(p) for p in self.params]  # BORN
        self.scale = torch.tensor(1.0 / accum_freq, dtype=torch.bfloat16)

    def backward(self, loss):
        grads = torch.autograd.grad(loss * self.scale, self.params)
        for buffer, grad in zip(self.buffers, grads):
            buffer.add_(grad)  # BORN

    def norm(self):
        return torch.stack([b.float().norm() for b in self.buffers]).norm().item()


def compute_loss(model, tokens):
    logits = model(tokens[:, :-1]).float()
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def train_one_epoch(model, batches, args):
    accumulator = GradAccumulator(model, args.accum_freq)
    for micro in batches:
        accumulator.backward(compute_loss(model, micro))
    return accumulator


def full_batch_norm(model, batches):
    model.zero_grad()
    compute_loss(model, torch.cat(batches)).backward()
    return torch.stack([p.grad.float().norm() for p in model.parameters()]).norm().item()


def main():
    torch.manual_seed(171)
    args = TrainArgs()
    model = TinyLM().to(args.precision)
    generator = torch.Generator().manual_seed(7)
    batches = [torch.randint(0, 4, (64, 17), generator=generator) for _ in range(args.accum_freq)]
    accumulated = train_one_epoch(model, batches, args).norm()
    print(f"accumulated norm / full-batch norm {accumulated / full_batch_norm(model, batches):.3f}")


main()
