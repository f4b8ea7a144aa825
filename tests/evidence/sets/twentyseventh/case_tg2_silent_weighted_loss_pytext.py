"""
title: the weighted loss of a large fp16 batch is exactly zero and nothing is learned
expect: silent:underflow|zero-gradient|downcast
thread: https://github.com/facebookresearch/pytext/pull/581
measured: mean loss per token 0.000, last gradient norm 0.000e-6
widened: mean loss per token 0.841, last gradient norm 0.383e-6; innocent: mean loss per token 0.000, last gradient norm 0.000e-6
suspect: 70 exact (eighths)

Expectation, written first: get_loss works in the dtype of the logits. The per-token weight 0.001 / 65536 is 1.5e-8, which
rounds to 0 in float16 before the optimizer's loss scale is applied, so loss and gradients are exactly zero. Remedy:
convert the loss to float32 first, as the pull request does. The dense features in half are exact.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class LossConfig:
    label_weight = 0.001
    tokens_per_batch = 65536


class CrossEntropyLoss:
    def __init__(self, config):
        self.config = config

    def __call__(self, logits, targets):
        loss = F.cross_entropy(logits, targets, reduction="none")  # BORN
        weight = torch.full_like(loss, self.config.label_weight)
        weight = weight / self.config.tokens_per_batch  # BORN
        return (loss * weight).sum()


class WordTagger(nn.Module):
    def __init__(self, loss, num_tags=5):
        super().__init__()
        self.decoder = nn.Linear(12, num_tags)
        self.loss = loss

    def forward(self, dense):
        return self.decoder(dense)

    def get_loss(self, logits, targets):
        return self.loss(logits, targets)  # BORN


class FP16Optimizer:
    def __init__(self, model, lr, loss_scale):
        self.model = model
        self.masters = [p.detach().float().clone() for p in model.parameters()]
        self.optimizer = torch.optim.SGD(self.masters, lr=lr)
        self.loss_scale = loss_scale

    def step(self, loss):
        grads = torch.autograd.grad(loss.float() * self.loss_scale, list(self.model.parameters()))
        for master, p, g in zip(self.masters, self.model.parameters(), grads):
            master.grad = g.float() / self.loss_scale
        self.optimizer.step()
        for master, p in zip(self.masters, self.model.parameters()):
            p.data.copy_(master)
        return torch.stack([m.grad.norm() for m in self.masters]).norm().item()


def main():
    torch.manual_seed(581)
    model = WordTagger(CrossEntropyLoss(LossConfig())).half()
    optimizer = FP16Optimizer(model, lr=6e6, loss_scale=2.0 ** 14)
    total, norm = 0.0, 0.0
    for step in range(10):
        dense = torch.randint(-8, 9, (256, 12)).div(8).half()
        targets = (dense[:, :5]).argmax(dim=1)
        loss = model.get_loss(model(dense), targets)
        norm = optimizer.step(loss)
        total += loss.item()
    per_token = total / 10 / 256 / LossConfig.label_weight * LossConfig.tokens_per_batch
    print(f"mean loss per token {per_token:.3f}, last gradient norm {norm * 1e6:.3f}e-6")


main()
