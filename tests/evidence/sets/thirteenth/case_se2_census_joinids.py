"""
title: cell identifiers of a large census come back wrong from the data loader
expect: silent:precision-loss|round-trip|downcast
thread: https://github.com/chanzuckerberg/cellxgene-census/issues/554
measured: cells stored 3465 of 5000, read back under their identifier 961
widened: cells stored 5000 of 5000, read back under their identifier 5000

Expectation, written first: the encoded columns of a batch travel as one float32 tensor and identifiers above 2**24 lose
their last bits; most of them point to a neighbour. The innocent suspect is the expression matrix in float16, whose
counts below two thousand are exact.
"""
import torch


class ObsTable:
    def __init__(self, first_id, cells, gen):
        self.joinid = first_id + torch.arange(cells) * 3 + torch.randint(0, 3, (cells,), generator=gen)
        self.cell_type = torch.randint(0, 40, (cells,), generator=gen)

    def columns(self):
        return {"soma_joinid": self.joinid, "cell_type": self.cell_type}


class Encoders:
    def transform(self, columns, rows):
        return torch.stack([columns["soma_joinid"][rows], columns["cell_type"][rows]], dim=1)


class ExperimentIterator:
    def __init__(self, obs, counts, batch):
        self.obs, self.counts, self.batch = obs, counts, batch
        self.encoders = Encoders()

    def __iter__(self):
        for start in range(0, len(self.counts), self.batch):
            rows = slice(start, start + self.batch)
            encoded = self.encoders.transform(self.obs.columns(), rows)
            x = self.counts[rows].to(torch.float16)
            yield x, collate(encoded)


def collate(encoded):
    return encoded.to(torch.float32)  # BORN


class EmbeddingStore:
    """what is written back to the census under a cell's identifier"""

    def __init__(self):
        self.rows = {}

    def write(self, obs, values):
        for joinid, value in zip(obs[:, 0].to(torch.int64).tolist(), values.tolist()):
            self.rows[joinid] = value

    def read(self, joinid):
        return self.rows.get(joinid)


def main():
    gen = torch.Generator().manual_seed(10)
    obs = ObsTable(first_id=47_500_000, cells=5000, gen=gen)
    counts = torch.poisson(torch.rand(5000, 30, generator=gen) * 20, generator=gen)
    store = EmbeddingStore()
    for x, batch_obs in ExperimentIterator(obs, counts, batch=256):
        store.write(batch_obs, x.float().sum(1))
    truth = counts.sum(1).tolist()
    ids = obs.joinid.tolist()
    right = sum(store.read(i) == t for i, t in zip(ids, truth))
    print(f"cells stored {len(store.rows)} of {len(ids)}, read back under their identifier {right}")


main()
