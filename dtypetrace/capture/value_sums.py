"""The ranges of what ops made, on one device: how many outputs were infinite, how large they were.

Each measurement writes two numbers to the next free slot of a batch. Full batches are added to the totals.
"""

from __future__ import annotations

from array import array

import torch

from . import private
from .totals import Totals

Tensor = torch.Tensor
OPERANDS = 6
"""Operands that are examined: an op with more takes a list, whose elements are alike."""
RING = 1 << 18
"""Measurements that are remembered, to know the values of an op's operands: more than one event makes."""
_BATCH = 512
"""Measurements that are added to the totals together: few calls for the device, and little memory."""
_NO_OPERANDS = (RING,) * OPERANDS
_WIDTH = 3 + OPERANDS
"""Numbers that a batch holds for each measurement."""
_NEVER = 1 << 62
_aminmax = torch.aminmax


class RangeTotals:
    """What all devices' ranges come to, by op; -1 for tensors that no op made. Named as in :class:`records.Value`."""

    def __init__(self) -> None:
        self.outputs = Totals[int]("measured", "made", "made_nan", "nans", "bad", whole=True)
        self.first = Totals[int]("first", whole=True, reduce="amin")
        self.peak = Totals[int]("peak", reduce="amax")
        self.parts = self.outputs, self.peak

    def add(self, ops: list[int], bad: Tensor, nan: Tensor, made: Tensor, peak: Tensor, serials: Tensor) -> None:
        """Adds a batch of outputs: which were infinite or NaN, which were NaN, and which of them an op itself made."""
        self.outputs.add_rows(ops, torch.stack([torch.ones_like(bad), made, nan & made, nan, bad], 1))
        self.first.add_rows(ops, torch.where(made, serials, _NEVER)[:, None])
        self.peak.add_rows(ops, peak[:, None])


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


class Ranges:
    """The measurements on one device."""

    def __init__(self, device: torch.device, totals: RangeTotals) -> None:
        self.device = device
        self._totals = totals
        self._batches: dict[torch.dtype, _Batch] = {}
        self._count = 0
        self._ring = torch.zeros(RING + 1, dtype=torch.bool, device=device)  # the last one means "no operand"

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
        if self._count >= _BATCH:
            self.fold()

    def fold(self) -> None:
        """Adds the waiting measurements to the totals."""
        batches = [batch for batch in self._batches.values() if batch.count]
        if batches:
            with private.InferenceMode(True):  # tensors made in inference mode cannot be written to outside it
                self._fold(batches)
        for batch in batches:
            batch.rows = array("q")
        self._count = 0

    def _fold(self, batches: list[_Batch]) -> None:
        ops = [op for batch in batches for op in batch.rows[::_WIDTH]]
        rows = torch.cat([torch.frombuffer(batch.rows, dtype=torch.long).view(-1, _WIDTH) for batch in batches])
        rows = rows.to(self.device, non_blocking=True)
        all_bad, all_nan, peaks = [], [], []
        for batch in batches:
            low, high = batch.values[:, : batch.count]
            finite = torch.isfinite(low) & torch.isfinite(high)
            all_bad.append(~finite)
            all_nan.append(torch.isnan(low))
            peaks.append(torch.where(finite, torch.maximum(-low, high), torch.zeros_like(low)).float())
        bad, nan, serials = torch.cat(all_bad), torch.cat(all_nan), rows[:, 1]
        self._ring[serials % RING] = bad
        made = bad & ~self._ring[rows[:, 3:]].any(1) & (rows[:, 2] == 0)
        self._totals.add(ops, bad, nan, made, torch.cat(peaks), serials)
