"""
title: pairing the defects of two wafer scans by distance
expect: silent:precision-loss|downcast
thread: https://github.com/pytorch/pytorch/issues/42479
measured: defects paired with themselves: 51 of 120
widened: defects paired with themselves: 120 of 120

Expectation, written first: the stage positions, more than a million nanometres,
are float32 and the distance is taken through squares and a matrix product, so defects
100 nm apart cancel to noise. BORN is the float32 of the positions; float64 pairs rightly.
The float16 copy of the distances only feeds the gate and changes nothing.
"""
import torch


class Scan:
    def __init__(self, defects, drift):
        self.positions = torch.as_tensor(defects, dtype=torch.float32) + drift  # BORN


class WaferLot:
    """Defects sit in tight clusters far from the stage origin."""

    def __init__(self, clusters, seed):
        gen = torch.Generator().manual_seed(seed)
        centres = 1.4e6 + 2e5 * torch.rand(clusters, 2, generator=gen, dtype=torch.float64)
        offsets = torch.tensor([[0.0, 0.0], [400.0, 0.0], [0.0, 400.0]], dtype=torch.float64)
        self.defects = (centres[:, None] + offsets[None]).reshape(-1, 2)

    def scans(self):
        return Scan(self.defects, 0.0), Scan(self.defects, 30.0)


class Matcher:
    def __init__(self, gate):
        self.gate = gate

    def distances(self, a, b):
        return torch.cdist(a, b, compute_mode="use_mm_for_euclid_dist")

    def pair(self, first, second):
        d = self.distances(first.positions, second.positions)
        nearest, index = d.min(dim=1)
        close = nearest.to(torch.float16) < self.gate
        right = index == torch.arange(len(index))
        return int((close & right).sum()), len(index)


def main():
    first, second = WaferLot(clusters=40, seed=0).scans()
    hits, total = Matcher(gate=100.0).pair(first, second)
    print("defects paired with themselves: %d of %d" % (hits, total))


if __name__ == "__main__":
    main()
