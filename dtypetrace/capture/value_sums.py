"""The sums of what was measured on one device: for each op, how many outputs were infinite, how large they were.

Each measurement writes two numbers to the next free slot of a batch. Full batches are added to the sums, which are read
once, at the end.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from ..records import Value
from . import private

Tensor = torch.Tensor
OPERANDS = 6
"""Operands that are examined: an op with more takes a list, whose elements are alike."""
RING = 1 << 18
"""Measurements that are remembered, to know the values of an op's operands: more than one event makes."""
_LEAST_ROOM = 1024
"""Rows of the first tables; each growth doubles them."""
_BATCH = 512
"""Measurements that are added to the sums together: few calls for the device, and little memory."""
_MOSTLY = 0.9
"""If at least this share of the weights is not zero, rows of zeros cannot come from the weights."""
_FEWEST, _NEARLY_ALL = 32, 0.9
"""A call lost what it made if of at least so many nonzero elements this share came out as zero."""
_NEVER = 1 << 62
_NO_OPERANDS = (RING,) * OPERANDS
_WIDTH = 3 + OPERANDS
"""Numbers that a batch holds for each measurement."""
_OUTPUTS = "measured", "made", "made_nan", "nans", "bad"
_ZEROS = "nonzero", "flushed", "rows", "lost_rows", "lost_calls", "emptied"
_CHANGES, _INTEGERS = _PAIRS = ("due", "done"), ("exact", "spoilt")
_COUNTED = _OUTPUTS, _ZEROS, *_PAIRS
"""Counts of each op, under the names of :class:`records.Value`. The first of each group is zero where none was made."""
_aminmax = torch.aminmax


class _Batch:
    """Measurements of tensors of one dtype that wait to be added to the sums."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        with private.InferenceMode(False):  # what is made in inference mode cannot be written to outside it
            self.values = torch.empty(2, _BATCH, dtype=dtype, device=device)
            self.slots = list(zip(self.values[0].unbind(), self.values[1].unbind()))
        self.rows = array("q")
        """For each measurement: op, serial number, whether an infinity was asked for, operands' places in the ring."""

    @property
    def count(self) -> int:
        """How many measurements wait. One list knows it: an interrupt may come between any two lines."""
        return len(self.rows) // _WIDTH


class Sums:
    """The measurements on one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._batches: dict[torch.dtype, _Batch] = {}
        self._count = 0
        self._highest = -1
        """The greatest number of an op among the measurements that wait."""
        self._waiting: dict[tuple[str, ...], list[tuple[int, tuple[Tensor, ...]]]] = {g: [] for g in (_ZEROS, *_PAIRS)}
        """By columns: counts that an op gained."""
        self._drifts: list[tuple[int, Tensor]] = []
        self._ring = torch.zeros(RING + 1, dtype=torch.bool, device=device)  # the last one means "no operand"
        self._room = 0
        self._make_tables()

    # ------------------------------------------------------------ while the program runs

    def measure(self, tensor: Tensor, op: int, serial: int, operands: tuple[int, ...], asked: bool) -> None:
        """Measures a tensor that an op made (-1: none); ``operands``: the serial numbers of its operands'
        measurements, -1 for one that has none."""
        batch = self._batches.get(tensor.dtype)
        if batch is None:
            batch = self._batches[tensor.dtype] = _Batch(tensor.dtype, self.device)
        _aminmax(tensor, out=batch.slots[len(batch.rows) // _WIDTH])
        if operands:
            known = [s % RING if s >= 0 else RING for s in operands]
            batch.rows.extend((op, serial, asked, *known, *_NO_OPERANDS[len(known) :]))
        else:
            batch.rows.extend((op, serial, asked, *_NO_OPERANDS))
        self._count += 1
        if op > self._highest:
            self._highest = op
        if self._count >= _BATCH:
            self.fold()

    def changed(self, op: int, due: Tensor, done: Tensor, drift: Tensor | None = None) -> None:
        """An op was to change ``due`` sampled numbers of a tensor that the program keeps, and changed ``done``; its
        errors so far add up to ``drift`` of the tensor's size."""
        self._wait(_CHANGES, op, due, done)
        if drift is not None:
            self._drifts.append((op, drift))

    def integers(self, op: int, exact: Tensor, spoilt: Tensor) -> None:
        """Of ``exact`` integers that an op had to keep, it changed ``spoilt``."""
        self._wait(_INTEGERS, op, exact, spoilt)

    def flushed(self, op: int, source: Tensor, result: Tensor, other: Tensor | None) -> None:
        """Counts values that are zero in ``result`` but not in ``source``: elements, and rows of the first axis."""
        elements, left = _nonzero(source), _nonzero(result)
        if source.dim() > 1 and result.shape[:1] == source.shape[:1]:
            rows, kept = _rows(source), _rows(result)
            row_count, lost = rows.sum(), (rows & ~kept).sum()
        else:
            row_count, lost = elements, elements - left
        if other is not None:  # weights that are mostly zeros make zeros
            dense = _nonzero(other) >= other.numel() * _MOSTLY
            lost = lost * dense
        flushed = elements - left if source.shape == result.shape else lost
        self._wait(_ZEROS, op, elements, flushed, row_count, lost)

    def _wait(self, columns: tuple[str, ...], op: int, *counts: Tensor) -> None:
        waiting = self._waiting[columns]
        waiting.append((op, counts))
        if len(waiting) >= _BATCH:
            self.fold()

    # ------------------------------------------------------------ adding up

    def fold(self) -> None:
        """Adds the waiting measurements to the sums."""
        with private.InferenceMode(True):  # tensors made in inference mode cannot be written to outside it
            self._fold()

    def _fold(self) -> None:
        batches = [batch for batch in self._batches.values() if batch.count]
        rows = [torch.frombuffer(batch.rows, dtype=torch.long).view(-1, _WIDTH) for batch in batches]
        self._make_room(max([self._highest, *(op for waiting in self._waiting.values() for op, _ in waiting)]) + 1)
        if rows:
            self._fold_ranges(batches, torch.cat(rows).to(self.device, non_blocking=True))
        for columns, waiting in self._waiting.items():
            if waiting:
                ops, counts = zip(*waiting)
                self._gain(columns, ops, torch.stack([torch.stack(column) for column in zip(*counts)], 1).long())
        if self._drifts:
            drifts = torch.stack([drift for _, drift in self._drifts]).float()
            self._drift.scatter_reduce_(0, self._there(op for op, _ in self._drifts), drifts, "amax")
        for batch in batches:
            batch.rows = array("q")
        self._waiting = {columns: [] for columns in self._waiting}
        self._drifts, self._count, self._highest = [], 0, -1

    def _gain(self, columns: tuple[str, ...], ops: Iterable[int], counts: Tensor) -> None:
        """Adds counts, a row for each, to those of ops."""
        if columns is _ZEROS:
            nonzero, flushed = counts[:, 0], counts[:, 1]
            whole = (nonzero >= _FEWEST) & (flushed >= nonzero * _NEARLY_ALL)
            empty = (nonzero > 1) & (flushed == nonzero)
            counts = torch.cat([counts, torch.stack([whole, empty], 1).long()], 1)
        self._counts[columns].index_add_(0, self._there(ops), counts)

    def _fold_ranges(self, batches: list[_Batch], rows: Tensor) -> None:
        all_bad, all_nan, peaks = [], [], []
        for batch in batches:
            low, high = batch.values[:, : batch.count]
            finite = torch.isfinite(low) & torch.isfinite(high)
            all_bad.append(~finite)
            all_nan.append(torch.isnan(low))
            peaks.append(torch.where(finite, torch.maximum(-low, high), torch.zeros_like(low)).float())
        bad, nan, peak = torch.cat(all_bad), torch.cat(all_nan), torch.cat(peaks)
        serials = rows[:, 1]
        self._ring[serials % RING] = bad
        made = bad & ~self._ring[rows[:, 3:]].any(1) & (rows[:, 2] == 0)
        # measurements of tensors that no op made go to the last row, which is not read
        ops = torch.where(rows[:, 0] >= 0, rows[:, 0], self._room)
        counts = torch.stack([torch.ones_like(bad), made, nan & made, nan, bad], 1).long()
        self._counts[_OUTPUTS].index_add_(0, ops, counts)
        self._first.scatter_reduce_(0, ops, torch.where(made, serials, _NEVER), "amin")
        self._peak.scatter_reduce_(0, ops, peak, "amax")

    def _there(self, numbers: Iterable[Any]) -> Tensor:
        return torch.tensor(list(numbers)).to(self.device, non_blocking=True)

    def _make_room(self, needed: int) -> None:
        if needed <= self._room:
            return
        olds = self._tables()
        room, self._room = self._room, max(_LEAST_ROOM, 2 * needed)
        self._make_tables()
        for new, old in zip(self._tables(), olds):
            new[:room] = old[:room]

    def _make_tables(self) -> None:
        """One row for each op, and one for tensors that no op made."""
        with private.InferenceMode(True):  # like :meth:`fold`, which writes to them
            self._make_rows(self._room + 1, self.device)

    def _make_rows(self, rows: int, device: torch.device) -> None:
        self._counts: dict[tuple[str, ...], Tensor] = {
            columns: torch.zeros(rows, len(columns), dtype=torch.long, device=device) for columns in _COUNTED
        }
        self._first = torch.full((rows,), _NEVER, dtype=torch.long, device=device)
        self._peak, self._drift = torch.zeros(2, rows, dtype=torch.float32, device=device)

    def _tables(self) -> tuple[Tensor, ...]:
        return self._first, self._peak, self._drift, *self._counts.values()

    def extremes(self) -> Iterator[tuple[int, float, bool]]:
        """For each op that was measured: the greatest magnitude, and whether values were infinite, NaN or lost to zero.
        This waits for the device."""
        self.fold()
        if not self._room:
            return
        outputs, zeros = self._counts[_OUTPUTS][:-1], self._counts[_ZEROS][:-1]
        bad, flushed, lost_rows = outputs[:, -1], zeros[:, 1], zeros[:, 3]
        lost = (bad > 0) | (flushed > 0) | (lost_rows > 0)
        rows = zip(outputs[:, 0].tolist(), self._peak[:-1].tolist(), lost.tolist())
        yield from ((op, peak, bad) for op, (measured, peak, bad) in enumerate(rows) if measured)

    def read(self) -> dict[int, Value]:
        """What was measured, by op. This waits for the device."""
        self.fold()
        if not self._room:
            return {}
        names = [column for columns in _COUNTED for column in columns]
        found = {}
        for op, (first, peak, drift, *counts) in enumerate(zip(*(table[:-1].tolist() for table in self._tables()))):
            if any(row[0] for row in counts):
                of = dict(zip(names, (count for row in counts for count in row)))
                found[op] = Value(op=op, first=first if of["made"] else -1, peak=peak, drift=drift, **of)
        return found


def _nonzero(tensor: Tensor) -> Tensor:
    return torch.count_nonzero(tensor.detach())


def _rows(tensor: Tensor) -> Tensor:
    """Which entries along the first dimension hold anything other than zeros."""
    dims = tuple(range(1, tensor.dim()))
    tensor = tensor.detach()
    return (tensor.amax(dims) != 0) | (tensor.amin(dims) != 0)
