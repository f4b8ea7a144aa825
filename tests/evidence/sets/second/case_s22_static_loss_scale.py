"""
title: the float16 loss is multiplied by a static loss scale of 65536, which float16 does not have
expect: silent:overflow
modes: diagnose

After deepspeedai/DeepSpeed#697 and NVIDIA/tacotron2#112 (the model does not learn, every step is skipped). The loss leaves
cross_entropy in float16, the scaled loss is inf, each gradient non-finite, each of the 12 steps skipped and no weight moves (repaired: none
is skipped and the loss falls by a third). Right: take the loss in float32 (logits.float()) before it is scaled.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(29)


class HalfTrainer:
    """float16 model, float32 masters, static scale."""

    def __init__(self, model, lr=0.05, scale=65536.0):
        self.model = model.half()
        self.masters = [p.detach().float() for p in self.model.parameters()]
        self.lr, self.scale = lr, scale
        self.skipped = 0

    def backward(self, loss):
        self.model.zero_grad(set_to_none=True)
        scaled = loss * self.scale  # BORN
        scaled.backward()

    @torch.no_grad()
    def step(self):
        grads = [p.grad.float() / self.scale for p in self.model.parameters()]
        if not all(g.isfinite().all() for g in grads):
            self.skipped += 1
            return
        for parameter, master, grad in zip(self.model.parameters(), self.masters, grads):
            master.sub_(grad, alpha=self.lr)
            parameter.copy_(master)


class Classifier(nn.Module):
    def __init__(self, width=16, classes=8):
        super().__init__()
        self.body = nn.Linear(width, 64)
        self.head = nn.Linear(64, classes)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


def batches(number, centres):
    for _ in range(number):
        labels = torch.randint(0, len(centres), (64,))
        yield (centres[labels] + 0.5 * torch.randn(64, centres.shape[1])).half(), labels


def main(steps=12):
    centres = torch.randn(8, 16)
    trainer = HalfTrainer(Classifier())
    first = last = None
    for x, labels in batches(steps, centres):
        logits = trainer.model(x)
        loss = F.cross_entropy(logits, labels)  # BORN
        trainer.backward(loss)
        trainer.step()
        last = loss.item()
        first = last if first is None else first
    print("loss", round(first, 3), "to", round(last, 3), "steps", steps, "skipped", trainer.skipped)


main()
