"""
title: a retrieval model for tables encodes the labels of its neighbours with a linear layer
expect: collision
thread: https://github.com/dholzmueller/pytabkit/pull/14
fix_at: 27, 49, 50

Expectation, written first: the candidates' labels are class indices, int64; the label encoder of the regression
branch is a Linear, and it gets them without a cast.
"""
import numpy as np
import pandas as pd
import torch
from torch import nn


def load_frame(n=80, seed=0):
    rng = np.random.default_rng(seed)
    df = pd.DataFrame(rng.normal(size=(n, 5)).astype("float32"), columns=list("abcde"))
    df["target"] = (df["a"] + 0.3 * df["b"] > 0).astype("category")
    return df


class Candidates:
    def __init__(self, frame, target):
        self.x = torch.from_numpy(frame.drop(columns=target).to_numpy(copy=True))
        codes = frame[target].cat.codes.to_numpy()
        self.y = torch.as_tensor(codes, dtype=torch.long)  # BORN

    def __len__(self):
        return len(self.x)


class TabR(nn.Module):
    def __init__(self, features, dim=16, context=6, n_classes=None):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(features, dim), nn.ReLU(), nn.Linear(dim, dim))
        if n_classes is None:
            self.label_encoder = nn.Linear(1, dim)
        else:
            self.label_encoder = nn.Embedding(n_classes, dim)
        self.context = context
        self.predict = nn.Linear(dim, 1)

    def forward(self, x, candidates):
        k, keys = self.encoder(x), self.encoder(candidates.x)
        distance = torch.cdist(k, keys)
        near, index = distance.topk(self.context, largest=False)
        weight = torch.softmax(-near, -1)
        y = candidates.y[index][..., None]
        values = self.label_encoder(y)  # COLLIDES
        return self.predict(k + (weight[..., None] * values).sum(1)).squeeze(-1)


def main():
    torch.manual_seed(0)
    frame = load_frame()
    train = Candidates(frame.iloc[:60], "target")
    test = Candidates(frame.iloc[60:], "target")
    model = TabR(train.x.shape[1])
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(3):
        out = model(train.x, train)
        loss = nn.functional.binary_cross_entropy_with_logits(out, train.y.float())
        opt.zero_grad()
        loss.backward()
        opt.step()
    hits = (model(test.x, train) > 0) == (test.y > 0)
    print(f"accuracy {hits.float().mean().item():.2f}")


main()
