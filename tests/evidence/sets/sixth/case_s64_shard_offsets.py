"""
title: the place of a record in a file is an int32 product that wraps; the lengths of records may be int16
expect: silent:overflow|wraparound|integer-overflow|downcast
"""
import torch

torch.manual_seed(914)


class Shard:
    """A file of equal records, of which only the labels are kept here, one for each place."""

    def __init__(self, records=60000, length=28000, width=4):
        self.records, self.length, self.width = records, length, width
        self.label = torch.arange(records) * 10 // records

    def read(self, offset):
        """Places before the beginning count from the end, as a slice does."""
        place = torch.div(offset.long(), self.length * self.width, rounding_mode="floor")
        return self.label[place % self.records]


def offsets(shard, index):
    length = torch.full_like(index, shard.length).to(torch.int16).long()
    index = index.to(torch.int32)  # BORN
    return index * (length * shard.width).to(index.dtype)


shard = Shard()
index = torch.randint(0, shard.records, (2000,))
got = shard.read(offsets(shard, index))
print("labels right", round((got == shard.label[index]).float().mean().item(), 3))
