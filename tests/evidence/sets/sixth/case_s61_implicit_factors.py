"""
title: confidences of implicit feedback come from a pandas frame, the normal equations of ALS become float64 on one side
expect: collision
needs: pandas
fix_at: 47, 61

After https://github.com/scikit-learn/scikit-learn/pull/9033 and https://github.com/pytorch/pytorch/pull/48456.
Right: the confidences are float32 as the factors are.
"""
import numpy as np
import pandas as pd
import torch

torch.manual_seed(616)


def listens(users=30, songs=20, rows=600):
    draw = np.random.default_rng(616)
    user = draw.integers(0, users, rows)
    song = (user * 3 + draw.integers(0, 5, rows)) % songs
    return pd.DataFrame({"user": user, "song": song, "plays": draw.integers(1, 30, rows)})


class Confidence:
    """c = 1 + alpha log(1 + plays), zero where nothing was played."""

    def __init__(self, alpha=4.0):
        self.alpha = alpha

    def table(self, frame, shape):
        plays = frame.groupby(["user", "song"]).plays.sum().reset_index()
        values = self.alpha * np.log1p(plays.plays.to_numpy())
        rows, columns = torch.tensor(plays.user.to_numpy()), torch.tensor(plays.song.to_numpy())
        return torch.sparse_coo_tensor(torch.stack([rows, columns]), torch.tensor(values), shape).to_dense()  # BORN


class Factors:
    def __init__(self, users, songs, dim=6, ridge=0.1):
        self.user, self.song = torch.randn(users, dim) * 0.1, torch.randn(songs, dim) * 0.1
        self.ridge = ridge * torch.eye(dim)

    def solve(self, fixed, extra):
        """One side, the other one fixed: (Y'Y + Y'CY + ridge) x = Y'(1 + C) p for each row."""
        played = (extra > 0).to(fixed.dtype)
        weighted = torch.einsum("ij,jd,je->ide", played, fixed, fixed)
        left = fixed.t() @ fixed + weighted + self.ridge
        right = ((1 + extra) * played).unsqueeze(-1) * fixed
        return torch.linalg.solve(left, right.sum(1))  # COLLIDES

    def sweep(self, extra):
        self.user = self.solve(self.song, extra)
        self.song = self.solve(self.user, extra.t())
        return self

    def hits(self, extra, count=3):
        best = (self.user @ self.song.t()).topk(count).indices
        return (extra.gather(1, best) > 0).float().mean().item()


frame = listens()
extra = Confidence().table(frame, (30, 20))
factors = Factors(30, 20)
for _ in range(4):
    factors.sweep(extra)
print("hits", round(factors.hits(extra), 3))
