"""
title: the moving average of an fp16 model does not follow the weights
expect: silent:lost-update|precision-loss|weights-dtype|downcast
thread: https://github.com/OpenNMT/OpenNMT-py/pull/1294
measured: average went 0.07 of the way, rows of ones seen 16
widened: average went 0.33 of the way, rows of ones seen 16; innocent: average went 0.07 of the way, rows of ones seen 16
suspect: 65 exact (one-hot sources)

Expectation, written first: with average_decay 1e-4 the average is multiplied by 0.9999 and gets 1e-4 of the weights,
all in half: the change is far below half an ulp, so after 4000 steps the average has hardly left its start values. Remedy:
keep and update the average in float32. The one-hot input in half is exact.
"""
import torch
from torch import nn


class Opt:
    average_decay = 1e-4
    steps = 4000
    model_dtype = torch.float16


class Generator(nn.Module):
    def __init__(self, dim=16, vocab=16):
        super().__init__()
        self.proj = nn.Linear(dim, vocab, bias=False)

    def forward(self, x):
        return self.proj(x)


class Trainer:
    def __init__(self, model, opt):
        self.model, self.opt = model, opt
        self.moving_average = None

    def _update_average(self, step):
        if self.moving_average is None:
            self.moving_average = [p.detach().clone() for p in self.model.parameters()]  # BORN
            return
        decay = self.opt.average_decay
        for i, (avg, cpt) in enumerate(zip(self.moving_average, self.model.parameters())):
            self.moving_average[i] = (1 - decay) * avg + cpt.detach().to(avg.dtype) * decay  # BORN

    def train(self, target):
        for step in range(self.opt.steps):
            if step == 1:
                with torch.no_grad():
                    self.model.proj.weight.copy_(target)
            self._update_average(step)


def evaluate(weight, source):
    return (source.float() @ weight.float().T).argmax(dim=1)


def main():
    torch.manual_seed(1294)
    opt = Opt()
    model = Generator().to(opt.model_dtype)
    start = model.proj.weight.detach().float().clone()
    target = start + 0.25
    trainer = Trainer(model, opt)
    trainer.train(target)
    source = torch.eye(16).to(torch.float16)
    average = trainer.moving_average[0].float()
    way = ((average - start).mean() / (target - start).mean()).item()
    print(f"average went {way:.2f} of the way, rows of ones seen {int(evaluate(source, source).unique().numel())}")


main()
