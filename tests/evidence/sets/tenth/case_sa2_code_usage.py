"""
title: the running usage of a codebook lives in an integer tensor
expect: silent:lost-update|precision-loss|downcast|integer-truncation
thread: https://github.com/yinboc/liif/issues/2
measured: resets 2827, error of the last batches 0.394
widened: resets 12, error of the last batches 0.205

Expectation, written first: the moving average is written back into int64 and cut each time;
codes with a small share stay at zero, look dead and are reset every time.
"""
import torch


class Codebook:
    def __init__(self, k=32, dim=8, decay=0.95):
        gen = torch.Generator().manual_seed(0)
        self.codes = torch.randn(k, dim, generator=gen)
        self.usage = torch.bincount(torch.arange(k), minlength=k) * 8  # BORN
        self.decay, self.resets = decay, 0

    def assign(self, x):
        return torch.cdist(x, self.codes).argmin(-1)

    def update(self, x):
        idx = self.assign(x)
        hits = torch.bincount(idx, minlength=len(self.codes))
        self.usage[:] = self.decay * self.usage + (1 - self.decay) * hits
        for c in hits.nonzero().flatten().tolist():
            self.codes[c] += 0.2 * (x[idx == c].mean(0) - self.codes[c])
        dead = self.usage < 1
        self.codes[dead] = x[: int(dead.sum())]
        self.resets += int(dead.sum())
        return (x - self.codes[self.assign(x)]).pow(2).mean().item()


def main():
    gen = torch.Generator().manual_seed(1)
    centres = torch.randn(32, 8, generator=gen) * 2
    book, errors = Codebook(), []
    for _ in range(400):
        x = centres[torch.randint(0, 32, (256,), generator=gen)] + 0.3 * torch.randn(256, 8, generator=gen)
        errors.append(book.update(x))
    print(f"resets {book.resets}, error of the last batches {sum(errors[-50:]) / 50:.3f}")


main()
