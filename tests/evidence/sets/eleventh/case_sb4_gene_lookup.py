"""
title: gene numbers of a sparse matrix are stored in sixteen bits, its counts in half
expect: silent:integer-overflow|overflow|downcast
thread: https://github.com/broadinstitute/CellBender/pull/53
measured: droplets called doublets 100, species right 50.0%
widened: droplets called doublets 0, species right 100.0%

Expectation, written first: a two-species reference has more genes than int16 has numbers; later genes become negative
and are read from the end of the table. Counts are below 2048 and exact in half.
"""
import torch


class SparseCounts:
    def __init__(self, cell, gene, count, shape):
        self.shape = shape
        self.cell = cell.to(torch.int32)
        self.gene = gene.to(torch.int16)  # BORN
        self.count = count.to(torch.float16)

    def per_cell(self, table):
        """sum of count * table[gene] for every cell"""
        value = table[self.gene.long()] * self.count.double()
        return torch.zeros(self.shape[0], dtype=torch.float64).index_add_(0, self.cell.long(), value)


class Reference:
    def __init__(self, human, mouse):
        self.genes = human + mouse
        self.is_mouse = torch.zeros(self.genes, dtype=torch.float64)
        self.is_mouse[human:] = 1


class Barnyard:
    def __init__(self, reference, low=0.2, high=0.8):
        self.reference, self.low, self.high = reference, low, high

    def mouse_share(self, counts):
        total = counts.per_cell(torch.ones(self.reference.genes, dtype=torch.float64))
        return counts.per_cell(self.reference.is_mouse) / total

    def call(self, counts):
        share = self.mouse_share(counts)
        return (share > self.high).long() * 2 + ((share > self.low) & (share <= self.high)).long()


def experiment(reference, human, gen, cells=200, reads=400):
    kind = torch.arange(cells) % 2
    cell = torch.arange(cells).repeat_interleave(reads)
    mouse = kind[cell] == 1
    span = torch.where(mouse, reference.genes - human, human)
    gene = (torch.rand(len(cell), generator=gen) * span).long() + torch.where(mouse, human, 0)
    count = 1 + torch.poisson(torch.full((len(cell),), 2.0), generator=gen).long()
    return kind, SparseCounts(cell, gene, count, (cells, reference.genes))


def main():
    gen = torch.Generator().manual_seed(0)
    reference = Reference(human=24_000, mouse=20_000)
    kind, counts = experiment(reference, 24_000, gen)
    call = Barnyard(reference).call(counts)
    right = (call == 2 * kind).double().mean().item()
    print(f"droplets called doublets {int((call == 1).sum())}, species right {100 * right:.1f}%")


main()
