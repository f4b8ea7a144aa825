"""
title: a table model with category embeddings read from one float matrix
expect: collision
thread: https://github.com/pytorch/pytorch/issues/116598
fix_at: 27

Expectation, written first: category codes and numbers are read into one float32
matrix, and the codes are sliced from it without a cast, so the embedding gets float indices:
Expected tensor for argument #1 'indices' to have scalar type Long or Int.
BORN is the line that makes the whole row block float32; codes must be kept as integers (a
.long() at the slice is the usual small patch).
"""
import torch
from torch import nn


ROWS = [
    (0, 3, 39.0, 40.0, 0), (1, 1, 50.0, 13.0, 0), (2, 0, 38.0, 40.0, 0), (2, 2, 53.0, 40.0, 0),
    (1, 3, 28.0, 40.0, 1), (0, 2, 37.0, 45.0, 1), (2, 1, 49.0, 16.0, 0), (1, 0, 52.0, 45.0, 1),
    (0, 3, 31.0, 50.0, 1), (1, 2, 42.0, 40.0, 1),
]


class IncomeTable:
    def __init__(self, rows):
        table = torch.tensor(rows, dtype=torch.float32)  # BORN
        self.codes = table[:, :2]
        self.numbers = table[:, 2:4].float() / 50.0
        self.labels = table[:, 4].float()

    def batches(self, size):
        for i in range(0, len(self.labels), size):
            s = slice(i, i + size)
            yield self.codes[s], self.numbers[s], self.labels[s]


class IncomeModel(nn.Module):
    def __init__(self, cards=(3, 4), dim=4):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(c, dim) for c in cards)
        self.net = nn.Sequential(nn.Linear(dim * len(cards) + 2, 16), nn.ReLU(), nn.Linear(16, 1))

    def embed(self, codes):
        parts = []
        for i, table in enumerate(self.tables):
            parts.append(table(codes[:, i]))  # COLLIDES
        return torch.cat(parts, dim=1)

    def forward(self, codes, numbers):
        return self.net(torch.cat([self.embed(codes), numbers], dim=1)).squeeze(1)


def train(model, data, epochs=40):
    opt = torch.optim.Adam(model.parameters(), 2e-2)
    for _ in range(epochs):
        for codes, numbers, labels in data.batches(5):
            loss = nn.functional.binary_cross_entropy_with_logits(model(codes, numbers), labels)
            opt.zero_grad()
            loss.backward()
            opt.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    data = IncomeTable(ROWS)
    print("loss %.3f" % train(IncomeModel(), data))


if __name__ == "__main__":
    main()
