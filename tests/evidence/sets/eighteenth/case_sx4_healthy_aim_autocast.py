"""
title: training under bfloat16 autocast with a small learning rate on float32 weights
expect: clean
thread: https://github.com/hp-l33/AiM/issues/10
measured: loss 3.56 -> 0.01
suspect: line 44 harmless (weights, gradients and momentum are float32)

Expectation, written first: with bf16=True only the forward matmuls run in bfloat16; weights, gradients as the optimizer
sees them and its momentum are float32, so small steps are kept and the loss goes down as without autocast.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class TrainingArguments:
    def __init__(self, learning_rate=4e-4, bf16=True, max_steps=60, batch_size=64):
        self.learning_rate = learning_rate
        self.bf16 = bf16
        self.max_steps = max_steps
        self.batch_size = batch_size


class AiM(nn.Module):
    def __init__(self, vocab=32, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mixer = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        h = self.embed(tokens)
        h = h + F.silu(self.mixer(h))
        return self.head(self.norm(h))


class Trainer:
    def __init__(self, model, args, sampler):
        self.model, self.args, self.sampler = model, args, sampler
        self.momentum = [torch.zeros_like(p) for p in model.parameters()]

    def compute_loss(self, tokens):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = self.model(tokens[:, :-1])
        return F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())

    @torch.no_grad()
    def update(self):
        for p, m in zip(self.model.parameters(), self.momentum):
            m.mul_(0.9).add_(p.grad)
            p.sub_(self.args.learning_rate * m)
            p.grad = None

    def train(self):
        losses = []
        for _ in range(self.args.max_steps):
            loss = self.compute_loss(self.sampler(self.args.batch_size))
            loss.backward()
            self.update()
            losses.append(loss.item())
        return losses


def token_chain(vocab=32, length=9):
    follow = torch.randperm(vocab)

    def sample(batch):
        tokens = [torch.randint(0, vocab, (batch,))]
        for _ in range(length - 1):
            tokens.append(follow[tokens[-1]])
        return torch.stack(tokens, dim=1)
    return sample


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    losses = Trainer(AiM(), TrainingArguments(learning_rate=0.05), token_chain()).train()
    print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}")


main()
