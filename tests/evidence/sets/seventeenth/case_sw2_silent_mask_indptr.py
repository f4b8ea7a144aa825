"""
title: custom attention masks of a long batch point before the buffer: their offsets are kept in int32
expect: silent:overflow|integer-overflow|wraparound
thread: https://github.com/sgl-project/sglang/pull/31672
measured: requests with a usable mask 6 of 8, total cells -913044021; first pages 0 323 743 1086 1554 1986 -1732 -1270
widened: requests with a usable mask 8 of 8, total cells 3381923275; first pages 0 323 743 1086 1554 1986 2364 2826
innocent: requests with a usable mask 6 of 8, total cells -913044021; first pages 0 323 743 1086 1554 1986 -1732 -1270
suspect: 20 int32 lengths: fits (one product is under 6e8)

Expectation, written first: Each mask takes extend_len * kv_len cells; the running offset is written into an int32 indptr and passes 2^31
    before the seventh request, so the starts turn negative and the pages are wrong. The int32 sequence lengths look like the cause, but a
    single product stays below 2^31.
"""
import torch
from torch import nn


class ForwardBatch:
    def __init__(self, extend_lens, prefix_lens):
        self.extend_seq_lens = torch.tensor(extend_lens, dtype=torch.int32)
        self.prefix_lens = torch.tensor(prefix_lens, dtype=torch.int32)
        self.batch_size = len(extend_lens)


class MaskPool:
    def __init__(self, page_cells=1 << 20, n_pages=8192):
        self.page_cells, self.n_pages = page_cells, n_pages

    def pages(self, start, stop):
        return start // self.page_cells, (stop - 1) // self.page_cells


class Gemma4MaskBuilder:
    def __init__(self, pool):
        self.pool = pool

    def prepare_attn_masks(self, batch):
        kv_lens = batch.extend_seq_lens + batch.prefix_lens
        cells = batch.extend_seq_lens * kv_lens
        indptr = torch.zeros(batch.batch_size + 1, dtype=torch.int32)  # BORN
        indptr[1:] = torch.cumsum(cells, 0)  # BORN
        return indptr, cells

    def place(self, batch):
        indptr, cells = self.prepare_attn_masks(batch)
        placed = []
        for i in range(batch.batch_size):
            placed.append(self.pool.pages(int(indptr[i]), int(indptr[i]) + int(cells[i])))
        return indptr, placed


class MaskScheduler(nn.Module):
    def __init__(self, builder):
        super().__init__()
        self.builder = builder

    def forward(self, batch):
        indptr, placed = self.builder.place(batch)
        usable = [lo >= 0 and hi < self.builder.pool.n_pages for lo, hi in placed]
        return indptr, placed, usable


torch.manual_seed(0)
extend = torch.randint(15000, 21000, (8,)).tolist()
prefix = torch.randint(2000, 8000, (8,)).tolist()
indptr, placed, usable = MaskScheduler(Gemma4MaskBuilder(MaskPool()))(ForwardBatch(extend, prefix))
print(f"requests with a usable mask {sum(usable)} of {len(usable)}, total cells {int(indptr[-1])}")
print("first pages " + " ".join(str(lo) for lo, _ in placed))
