"""
title: timestamps become float32 in the interaction tensor, the order inside a session and the held-out item are wrong
expect: silent:precision-loss|downcast
thread: https://github.com/RUCAIBox/RecBole/issues/1653
measured: distinct timestamps 827 of 2390 | held-out item right for 55.0% of users | mean held-out rating 2.865
widened: distinct timestamps 2390 of 2390 | held-out item right for 100.0% of users | mean held-out rating 2.905
innocent: distinct timestamps 827 of 2390 | held-out item right for 55.0% of users | mean held-out rating 2.865
suspect: line 55, ratings 1..5 are exact in half

Expectation, written first: the dataset turns every float-like field into a FloatTensor, the unix time (978 million seconds, spacing 64 in
float32) with it. Clicks seconds apart collapse into one value, the sort leaves them in file order and leave-one-out takes the wrong last
item. Kept as int64 or float64 the order is right. The rating in half precision holds 1..5 exactly.
"""
import numpy as np
import pandas as pd
import torch


class FeatureType:
    TOKEN = "token"
    FLOAT = "float"


class Interaction:
    def __init__(self, interaction):
        self.interaction = interaction
        self.length = len(next(iter(interaction.values())))

    def __getitem__(self, key):
        return self.interaction[key]

    def sort(self, by):
        index = torch.arange(self.length)
        for column in reversed(by):
            order = torch.sort(self.interaction[column][index], stable=True).indices
            index = index[order]
        for k in self.interaction:
            self.interaction[k] = self.interaction[k][index]


class Dataset:
    field2type = {"user_id": FeatureType.TOKEN, "item_id": FeatureType.TOKEN,
                  "rating": FeatureType.FLOAT, "timestamp": FeatureType.FLOAT}  # BORN

    def __init__(self, frame):
        self.inter_feat = self._dataframe_to_interaction(frame)

    def _dataframe_to_interaction(self, frame):
        out = {}
        for name in frame:
            value = torch.from_numpy(frame[name].values.copy())
            if self.field2type[name] == FeatureType.TOKEN:
                out[name] = value.to(torch.int64)
            elif name == "rating":
                out[name] = value.to(torch.float16)
            else:
                out[name] = value.to(torch.float32)  # BORN
        return Interaction(out)

    def leave_one_out(self):
        self.inter_feat.sort(by=["user_id", "timestamp"])
        user = self.inter_feat["user_id"]
        last = torch.ones_like(user, dtype=torch.bool)
        last[:-1] = user[1:] != user[:-1]
        return self.inter_feat["item_id"][last], self.inter_feat["rating"][last]


def ml_like(n_users=200, n_items=400, per_user=12, seed=7):
    rng = np.random.default_rng(seed)
    rows = []
    for u in range(n_users):
        t0 = 978_300_000 + int(rng.integers(0, 400_000))
        times = t0 + np.cumsum(rng.integers(2, 40, per_user))
        for t in rng.permutation(times):
            rows.append((u, int(rng.integers(0, n_items)), float(rng.integers(1, 6)), float(t)))
    return pd.DataFrame(rows, columns=["user_id", "item_id", "rating", "timestamp"])


frame = ml_like()
expected = frame.sort_values(["user_id", "timestamp"]).groupby("user_id")["item_id"].last().values
dataset = Dataset(frame)
held_out, rating = dataset.leave_one_out()
print("distinct timestamps", dataset.inter_feat["timestamp"].unique().numel(), "of", frame["timestamp"].nunique())
print("held-out item right for %.1f%% of users" % (100 * (held_out.numpy() == expected).mean()))
print("mean held-out rating %.3f" % float(rating.float().mean()))
