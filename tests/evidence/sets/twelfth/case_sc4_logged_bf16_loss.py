"""
title: the loss shown in the progress bar is added up in bf16
expect: clean
thread: https://github.com/pytorch/xla/pull/2425
measured: loss 0.1045 (nothing logged 0.1045), weights equal True, shown loss off by at most 0.6%

Expectation, written first: the sum covers ten steps and is thrown away after it is shown; with three digits it says
what the user wants to see, and the weights are those of a run that logs nothing, to the last bit.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel


@dataclass
class Arguments:
    logging_steps: int = 10
    max_steps: int = 120
    learning_rate: float = 2e-3
    log: bool = True


class ProgressBar:
    def __init__(self, every):
        self.every, self.lines = every, []
        self.running = torch.zeros((), dtype=torch.bfloat16)
        self.exact = 0.0

    def update(self, step, loss):
        self.running += loss.detach().to(self.running.dtype)
        self.exact += loss.item()
        if step % self.every == 0:
            self.lines.append((self.running.item() / self.every, self.exact / self.every))
            self.running.zero_()
            self.exact = 0.0


class Trainer:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(4)
        config = GPT2Config(
            vocab_size=32, n_positions=24, n_embd=32, n_layer=1, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )
        self.model = GPT2LMHeadModel(config)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.learning_rate)
        self.bar = ProgressBar(args.logging_steps)
        g = torch.Generator().manual_seed(4)
        rows = (torch.randint(0, 32, (256, 1), generator=g) + 5 * torch.arange(16)) % 32
        self.loader = DataLoader(TensorDataset(rows), batch_size=16, shuffle=True, generator=g)

    def train(self):
        stream = (b for _ in range(99) for b in self.loader)
        for step, (ids,) in zip(range(1, self.args.max_steps + 1), stream):
            logits = self.model(input_ids=ids).logits[:, :-1]
            loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if self.args.log:
                self.bar.update(step, loss)
        return loss.item()


ours, quiet = Trainer(Arguments()), Trainer(Arguments(log=False))
a, b = ours.train(), quiet.train()
equal = all(torch.equal(p, q) for p, q in zip(ours.model.parameters(), quiet.model.parameters()))
off = max(abs(shown - exact) / exact for shown, exact in ours.bar.lines)
print(f"loss {a:.4f} (nothing logged {b:.4f}), weights equal {equal}, shown loss off by at most {100 * off:.1f}%")
