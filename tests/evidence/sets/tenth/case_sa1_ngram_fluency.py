"""
title: the diagonal filter of a soft BLEU loss is float32, the language model's half logits are convolved with it
expect: collision
thread: https://github.com/Yu-Fangxu/COLD-Attack/issues/20

Expectation, written first: the identity filter that sums along diagonals is made in the
default dtype inside the loss; the soft match matrix is half because decoding runs in half.
"""
import torch
from torch import nn
import torch.nn.functional as F


class TinyLM(nn.Module):
    def __init__(self, vocab=60, dim=24):
        super().__init__()
        self.table = nn.Embedding(vocab, dim)
        self.head = nn.Linear(dim, vocab)

    def forward(self, probs):
        return self.head(probs @ self.table.weight)


def soft_match(logits, targets):
    return logits.softmax(-1)[:, :, targets]


class NgramLoss:
    def __init__(self, orders=(1, 2, 3)):
        self.filters = [self.diagonal(n) for n in orders]

    @staticmethod
    def diagonal(n):
        return torch.eye(n).view(1, 1, n, n)  # BORN

    def __call__(self, logits, targets):
        match = soft_match(logits, targets).unsqueeze(1)
        loss = 0.0
        for filt in self.filters:
            n = filt.shape[-1]
            term = F.conv2d(match, filt) / n  # COLLIDES
            loss = loss - term.flatten(1).amax(-1).mean()
        return loss


def decode(steps=5):
    torch.manual_seed(0)
    lm = TinyLM().half().requires_grad_(False)
    keywords = torch.tensor([3, 17, 29, 41])
    y = torch.randn(2, 10, 60, dtype=torch.float16, requires_grad=True)
    bleu = NgramLoss()
    for _ in range(steps):
        logits = lm(y.softmax(-1))
        loss = bleu(logits + y, keywords)
        (grad,) = torch.autograd.grad(loss, y)
        y = (y - 0.5 * grad).detach().requires_grad_(True)
    return loss.item()


print(f"fluency loss {decode():.3f}")
