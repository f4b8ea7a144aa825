"""
title: sampled chips are one pixel too small for many bounding boxes
expect: silent:downcast|precision-loss
thread: https://github.com/torchgeo/torchgeo/issues/679
measured: chips 81 of size 32 x 32: 64 / pixels read 82369 of 82944
widened: chips 81 of size 32 x 32: 81 / pixels read 82944 of 82944; innocent: chips 81 of size 32 x 32: 64 / pixels read 82369 of 82944
suspect: 30 exact (ten land cover classes)

Expectation, written first: the size of a chip is (maxx - minx) / res, which comes out as 31.999 as often as 32.0, and the
cast to integer cuts the fraction, so half of the chips lose a row or column. Remedy: round before the cast. The class
map in uint8 is exact.
"""
from typing import NamedTuple

import torch


class BoundingBox(NamedTuple):
    minx: torch.Tensor
    maxx: torch.Tensor
    miny: torch.Tensor
    maxy: torch.Tensor


class RasterDataset:
    def __init__(self, size_px, res, origin, seed):
        self.res = res
        self.origin = origin
        generator = torch.Generator().manual_seed(seed)
        self.array = torch.randint(0, 10, (size_px, size_px), generator=generator).to(torch.uint8)  # class map

    def _to_pixels(self, low, high):
        return ((high - low) / self.res).long()  # BORN pixels

    def __getitem__(self, query):
        out_width = self._to_pixels(query.minx, query.maxx)  # BORN
        out_height = self._to_pixels(query.miny, query.maxy)  # BORN
        col = ((query.minx - self.origin) / self.res).round().long()
        row = ((query.miny - self.origin) / self.res).round().long()
        return {"mask": self.array[row:row + out_height, col:col + out_width], "bbox": query}


class GridGeoSampler:
    def __init__(self, dataset, size_px, stride_px):
        self.dataset, self.size, self.stride = dataset, size_px, stride_px

    def __iter__(self):
        res, origin = self.dataset.res, self.dataset.origin
        limit = len(self.dataset.array) - self.size
        for i in range(0, limit + 1, self.stride):
            for j in range(0, limit + 1, self.stride):
                minx, miny = torch.tensor(origin + j * res), torch.tensor(origin + i * res)
                yield BoundingBox(minx, minx + self.size * res, miny, miny + self.size * res)


def class_histogram(chips):
    total = torch.zeros(10, dtype=torch.int64)
    for chip in chips:
        total += torch.bincount(chip["mask"].flatten().long(), minlength=10)
    return total


def main():
    dataset = RasterDataset(size_px=160, res=0.1, origin=12.3, seed=679)
    sampler = GridGeoSampler(dataset, size_px=32, stride_px=16)
    chips = [dataset[query] for query in sampler]
    full = sum(tuple(chip["mask"].shape) == (32, 32) for chip in chips)
    histogram = class_histogram(chips)
    print(f"chips {len(chips)} of size 32 x 32: {full}")
    print(f"pixels read {histogram.sum().item()} of {len(chips) * 32 * 32}")


if __name__ == "__main__":
    main()
