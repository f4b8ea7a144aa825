"""
title: the evaluation loss moves in steps of a quarter and early stopping ends the run
expect: silent:downcast|precision-loss
thread: https://github.com/Modalities/modalities/pull/464
measured: rounds 3 losses [34.0, 34.0, 34.0] fall 0.00
widened: rounds 12 losses [34.13, 34.06, 34.01, 33.95] fall 0.67; innocent: rounds 3 losses [34.0, 34.0, 34.0] fall 0.00
suspect: 64 exact (the vocabulary has 128 entries)

Expectation, written first: the cross entropy of bfloat16 logits is a bfloat16 scalar. At a loss above 32 its grid is
0.25, so the progress of 0.1 or less a round is invisible, the run looks flat and stops after the patience. With the
logits as float32 the loss falls each round. The token ids as int16 are exact.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn import CrossEntropyLoss


class MixedPrecisionPolicy:
    param_dtype = torch.bfloat16


class CLMCrossEntropyLoss:
    def __init__(self):
        self.loss_fun = CrossEntropyLoss(reduction="mean")

    def __call__(self, logits, labels):
        shift_logits = logits[:, :-1].contiguous()  # BORN
        shift_labels = labels[:, 1:].contiguous().long()
        return self.loss_fun(shift_logits.view(-1, shift_logits.size(-1)), shift_labels.view(-1))  # BORN


class GPT(nn.Module):
    def __init__(self, policy, vocab=128, dim=32):
        super().__init__()
        self.policy = policy
        self.wte = nn.Embedding(vocab, dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, input_ids):
        dtype = self.policy.param_dtype
        x = F.embedding(input_ids.long(), self.wte.weight.to(dtype))
        return F.linear(x, self.lm_head.weight.to(dtype))


class EarlyStopping:
    def __init__(self, patience):
        self.best, self.patience, self.bad = float("inf"), patience, 0

    def __call__(self, loss):
        self.bad = 0 if loss < self.best else self.bad + 1
        self.best = min(self.best, loss)
        return self.bad >= self.patience


def main():
    torch.manual_seed(464)
    model = GPT(MixedPrecisionPolicy())
    with torch.no_grad():
        model.lm_head.weight.normal_(std=2.2)
    loss_fun = CLMCrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    tokens = (torch.arange(64 * 33).view(64, 33) * 7) % 128
    input_ids = tokens.to(torch.int16)
    stopping = EarlyStopping(patience=2)
    history = []
    for round_ in range(12):
        loss = loss_fun(model(input_ids), input_ids)
        history.append(loss.item())
        if stopping(history[-1]):
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rounds {len(history)} losses {[round(v, 2) for v in history[:4]]} fall {history[0] - history[-1]:.2f}")


main()
