"""
title: Quadruples loaded as floats are used to index the entity embeddings
expect: collision
thread: https://github.com/INK-USC/RE-Net/issues/29
fix_at: (none beside the marked)

Expectation, written first: The quadruples are read with np.loadtxt, which gives float64, and are turned into a
tensor without a cast. The columns s, r, o are used as indices of the parameter tensors; index_select takes integers only and raises.
"""
import io

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

TRAIN_TXT = """0\t1\t3\t0
2\t0\t1\t0
4\t1\t2\t24
1\t0\t4\t24
3\t1\t0\t48
2\t1\t4\t48
0\t0\t2\t72
4\t1\t1\t72
"""


def load_quadruples(text):
    data = np.loadtxt(io.StringIO(text), delimiter="\t")  # BORN
    times = sorted(set(data[:, 3].tolist()))
    return data, times


def make_batch(a, n):
    for i in range(0, len(a), n):
        yield a[i:i + n]


class RENet(nn.Module):
    def __init__(self, in_dim, h_dim, num_rels):
        super().__init__()
        self.ent_embeds = nn.Parameter(torch.empty(in_dim, h_dim))
        self.rel_embeds = nn.Parameter(torch.empty(num_rels, h_dim))
        nn.init.xavier_uniform_(self.ent_embeds)
        nn.init.xavier_uniform_(self.rel_embeds)
        self.encoder = nn.GRU(2 * h_dim, h_dim, batch_first=True)
        self.linear = nn.Linear(3 * h_dim, in_dim)
        self.dropout = nn.Dropout(0.1)

    def history(self, s, t):
        order = torch.argsort(t)
        return order

    def forward(self, triplets):
        s, r, o, t = triplets[:, 0], triplets[:, 1], triplets[:, 2], triplets[:, 3]  # BORN
        s_idx = self.history(s, t)
        s_emb = torch.index_select(self.ent_embeds, 0, s[s_idx])  # BORN COLLIDES
        r_emb = torch.index_select(self.rel_embeds, 0, r[s_idx])
        _, s_h = self.encoder(torch.cat((s_emb, r_emb), dim=1).unsqueeze(1))
        ob_pred = self.linear(self.dropout(torch.cat((s_emb, s_h.squeeze(0), r_emb), dim=1)))
        return F.cross_entropy(ob_pred, o[s_idx])


def train(epochs=2, batch_size=4):
    torch.manual_seed(29)
    np.random.seed(29)
    train_data, train_times = load_quadruples(TRAIN_TXT)
    print("snapshots", len(train_times))
    model = RENet(5, 12, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-5)
    for epoch in range(epochs):
        loss_epoch = 0.0
        train_data = train_data[np.random.permutation(len(train_data))]
        for batch_data in make_batch(train_data, batch_size):
            batch_data = torch.from_numpy(batch_data)  # BORN
            loss = model(batch_data)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            loss_epoch += loss.item()
        print(f"Epoch {epoch:04d} | Loss {loss_epoch:.3f}")


if __name__ == "__main__":
    train()
