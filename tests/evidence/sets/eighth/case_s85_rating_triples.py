"""
title: matrix factorisation from triples of user, item and rating
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/PorkShoulderHolder/python-libmf/issues/13
measured: accounts 31 of 240, error 1.043, mean bias 1.17
widened: accounts 240 of 240, error 0.077, mean bias 1.01

Expectation, written first: ids and rating are joined in one tensor; the mixture of
int64 columns and a float32 column is promoted to float32, so account numbers beyond 2**24 are
merged. BORN is the line that stacks them (the promotion); a float64 rating column there, or
separate tensors, keeps the accounts apart. The half factors are a usual compression.
"""
import torch
from torch import nn


class Shop:
    def __init__(self, accounts, items, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.accounts = 90_000_000 + torch.arange(accounts)
        self.items = items
        self.taste = torch.rand(accounts, generator=self.gen) * 4 + 1

    def log(self, n):
        who = torch.randint(0, len(self.accounts), (n,), generator=self.gen)
        what = torch.randint(0, self.items, (n,), generator=self.gen)
        return self.accounts[who], what, self.taste[who]


class Triples:
    def __init__(self, users, items, ratings):
        self.data = torch.stack([users, items, ratings], dim=1)  # BORN

    def users(self):
        return torch.unique(self.data[:, 0].long(), return_inverse=True)


class Factors(nn.Module):
    def __init__(self, users, items, rank=4):
        super().__init__()
        self.u, self.v = nn.Embedding(users, rank), nn.Embedding(items, rank)
        self.bias = nn.Embedding(users, 1)

    def forward(self, u, i):
        return (self.u(u) * self.v(i)).sum(1) + self.bias(u)[:, 0]

    def export(self):
        return self.bias.weight.detach()[:, 0].to(torch.float16)


def main():
    torch.manual_seed(0)
    triples = Triples(*Shop(accounts=240, items=20, seed=0).log(6000))
    names, rows = triples.users()
    model = Factors(len(names), 20)
    opt = torch.optim.Adam(model.parameters(), 3e-2)
    items, rating = triples.data[:, 1].long(), triples.data[:, 2].float()
    for _ in range(150):
        loss = nn.functional.mse_loss(model(rows, items), rating)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("accounts %d of 240, error %.3f, mean bias %.2f"
          % (len(names), loss.sqrt().item(), model.export().float().mean().item()))


if __name__ == "__main__":
    main()
