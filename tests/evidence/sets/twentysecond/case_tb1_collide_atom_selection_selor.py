"""
title: rule selection multiplies float probabilities with an integer atom table: mm refuses long
expect: collision
thread: https://github.com/archon159/SELOR/issues/8
fix_at: 47, 54

Expectation, written first: the atom table is built from integer word counts, so the registered buffer is int64. The
selector multiplies it with the float32 selection probabilities through torch.mm, which wants one dtype.
"""
import random

import torch
import torch.nn.functional as F
from torch import nn


class AtomPool:
    def __init__(self, corpus, num_atoms):
        self.vocab = sorted({w for text, _ in corpus for w in text})
        self.word2idx = {w: i for i, w in enumerate(self.vocab)}
        rng = random.Random(1)
        self.atoms = [rng.sample(self.vocab, 2) for _ in range(num_atoms)]

    def count_matrix(self):
        counts = [[0] * len(self.vocab) for _ in self.atoms]
        for row, atom in zip(counts, self.atoms):
            for word in atom:
                row[self.word2idx[word]] += 1
        return torch.tensor(counts)  # BORN

    def satisfied(self, text):
        words = set(text)
        return [float(all(w in words for w in atom)) for atom in self.atoms]


class AtomSelector(nn.Module):
    def __init__(self, num_atoms, embed_dim, hidden_dim, atom_embedding):
        super().__init__()
        self.register_buffer("atom_embedding", atom_embedding)
        self.gru = nn.GRUCell(embed_dim, hidden_dim)
        self.dense = nn.Linear(hidden_dim, num_atoms)

    def forward(self, cur_input, cur_h, x_):
        h = self.gru(cur_input, cur_h)
        logits = self.dense(h) - (1.0 - x_) * 10.0
        prob = F.softmax(logits, dim=-1)
        atom_wsum = torch.mm(prob, self.atom_embedding.detach())  # COLLIDES
        return prob, atom_wsum, h


class Net(nn.Module):
    def __init__(self, pool, antecedent_len=2, hidden_dim=12, n_class=2):
        super().__init__()
        table = pool.count_matrix()
        self.antecedent_len = antecedent_len
        self.hidden_dim = hidden_dim
        num_atoms, self.embed_dim = table.shape
        self.rs = AtomSelector(num_atoms, self.embed_dim, hidden_dim, table)
        self.consequent = nn.Linear(self.embed_dim, n_class)

    def forward(self, x_):
        cur_input = torch.zeros(x_.shape[0], self.embed_dim)
        h = torch.zeros(x_.shape[0], self.hidden_dim)
        rule = 0.0
        for _ in range(self.antecedent_len):
            prob, cur_input, h = self.rs(cur_input, h, x_.clone().detach())
            rule = rule + cur_input
        return self.consequent(rule)


def main():
    torch.manual_seed(0)
    rng = random.Random(0)
    words = ["good", "bad", "slow", "tasty", "cold", "cheap", "kind"]
    corpus = [(rng.sample(words, 4), i % 2) for i in range(16)]
    pool = AtomPool(corpus, num_atoms=6)
    model = Net(pool)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x_ = torch.tensor([pool.satisfied(text) for text, _ in corpus])
    y = torch.tensor([label for _, label in corpus])
    for epoch in range(3):
        loss = F.cross_entropy(model(x_), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
