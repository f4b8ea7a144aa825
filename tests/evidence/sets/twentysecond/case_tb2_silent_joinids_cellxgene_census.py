"""
title: obs join ids above 2**24 come out of the data pipe with their last digits changed
expect: silent:precision-loss|round-trip|downcast
thread: https://github.com/chanzuckerberg/cellxgene-census/issues/554
measured: first ids [41300116, 41300120, 41300120, 41300120] distinct 151 of 600 | right id in its row 150 counts 43019
widened: first ids [41300117, 41300118, 41300119, 41300120] distinct 600 of 600 | right id in its row 600 counts 43019; innocent: first ids [41300116, 41300120, 41300120, 41300120] distinct 151 of 600 | right id in its row 150 counts 43019
suspect: line 52 - innocent: raw counts stay far below 2048, so float16 holds each of them exactly

Expectation, written first: the encoded obs table goes through torch.Tensor(...), which makes float32 of the
int64 join ids; the later cast to integers only restores the type. Ids above 2**25 collapse onto multiples of 4,
so most of them no longer name their own cell. The counts in float16 are exact.
"""
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

CELL_TYPES = ["B cell", "T cell", "neuron", "fibroblast"]


@dataclass
class ObsAndXDatum:
    X: torch.Tensor
    obs: torch.Tensor


class CategoryEncoder:
    def __init__(self, values):
        self.classes_ = {v: i for i, v in enumerate(sorted(set(values)))}

    def transform(self, series):
        return series.map(self.classes_)


class ObsAndXIterator:
    def __init__(self, obs, x_rows, encoders, batch_size):
        self.obs, self.x_rows = obs, x_rows
        self.encoders = encoders
        self.batch_size = batch_size

    def _encode(self, chunk):
        frame = pd.DataFrame({"soma_joinid": chunk["soma_joinid"]})
        for column, encoder in self.encoders.items():
            frame[column] = encoder.transform(chunk[column])
        return torch.Tensor(frame.to_numpy())  # BORN

    def __iter__(self):
        for start in range(0, len(self.obs), self.batch_size):
            stop = start + self.batch_size
            obs_tensor = self._encode(self.obs.iloc[start:stop])
            X = torch.from_numpy(self.x_rows[start:stop]).to(torch.float16)
            yield ObsAndXDatum(X=X, obs=obs_tensor.to(torch.int32))


def open_slice(n_cells=600, n_genes=24, first=41_300_117):
    rng = np.random.default_rng(11)
    joinids = first + np.arange(n_cells, dtype=np.int64)
    obs = pd.DataFrame({"soma_joinid": joinids, "cell_type": rng.choice(CELL_TYPES, n_cells)})
    counts = rng.poisson(3.0, size=(n_cells, n_genes)).astype(np.int64)
    return obs, counts


def main():
    obs, counts = open_slice()
    pipe = ObsAndXIterator(obs, counts, {"cell_type": CategoryEncoder(CELL_TYPES)}, batch_size=128)
    known = set(obs["soma_joinid"].tolist())
    seen, total = [], 0.0
    for datum in pipe:
        seen += datum.obs[:, 0].tolist()
        total += datum.X.float().sum().item()
    print(f"first ids {seen[:4]} distinct {len(set(seen))} of {len(known)}")
    print(f"right id in its row {sum(a == b for a, b in zip(seen, obs['soma_joinid']))} counts {total:.0f}")


if __name__ == "__main__":
    main()
