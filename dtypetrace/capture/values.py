"""What the values of a run did: which became infinite or NaN, which were flushed to zero, and where that began.

Nothing here reads a value on the host while the program runs. Each output is reduced on its device to its smallest and
greatest value, the reductions of some hundred calls are added up there, and the sums are read once, at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

import torch

from ..records import Value
from ..tables.dtypes import DTYPES
from . import private
from .increments import FOLLOWED, WATCHED, Changed, Increments
from .marks import Origins

Tensor = torch.Tensor
_aten = torch.ops.aten
_LEAST_ROOM = 1024
"""Rows of the first tables; each growth doubles them."""
_BATCH = 512
"""Measurements that are added to the sums together: few calls for the device, and little memory."""
_RING = 1 << 18
"""Measurements that are remembered, to know the values of an op's operands: more than one event makes."""
_INPUTS = 6
"""Operands that are examined: an op with more takes a list, whose elements are alike."""
_MOSTLY = 0.9
"""If at least this share of the weights is not zero, rows of zeros cannot come from the weights."""
_SKIP, _VIEW, _MEASURE, _CAST, _PRODUCT, _ADDS = range(6)
_HALF_OF_SMALLEST = DTYPES["float16"].smallest / 2
"""In float16: this and smaller values become zero."""

_CASTS = {_aten._to_copy, _aten.copy_, _aten.copy}
# Ops where a row of zeros in the result means that it was flushed, if the same row of the gradient is not zero. This
# does not hold for the backward of a mask, a slice or a normalisation: those make exact zeros by design.
_PRODUCTS = {
    _aten.mm, _aten.addmm, _aten.bmm, _aten.baddbmm, _aten.convolution_backward, _aten.div,
    _aten.silu_backward, _aten.gelu_backward, _aten.tanh_backward, _aten.sigmoid_backward,
}  # fmt: skip
_VANISHING = {_aten.mul, _aten.pow, _aten.exp, _aten._softmax, _aten.square}
# an epsilon that is added, or a lower limit for a value
_ADDING = {
    _aten.add,
    _aten.add_,
    _aten.sub,
    _aten.clamp,
    _aten.clamp_,
    _aten.clamp_min,
    _aten.clamp_min_,
    _aten.maximum,
}
_MEASURED = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})


class Values:
    """Accumulates the values of the ops of one recording."""

    def __init__(self) -> None:
        self._lanes: dict[torch.device, _Lane] = {}
        self._kinds: dict[object, int] = {}
        self._serial = 0
        self._vanished: dict[int, float] = {}
        self._kept: dict[int, int] = {}
        self.increments = Increments()

    def saw(
        self,
        number: int,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        origins: Origins,
        phase: str,
    ) -> None:
        """Measures one call of op ``number``; ``origins`` holds the marks of live tensors."""
        with private.DisableTorchFunction(), private.DisableTorchDispatch():
            changed: Changed | None = self.increments.after(func) if func in WATCHED else None
            if func in FOLLOWED and phase in ("forward", "other") and outputs and inputs:
                changed = self.increments.made(number, func, args, kwargs, outputs[0], origins)
            if changed is not None:
                self._lane(changed.due.device).changes.append((number, changed.due, changed.done))
                if changed.kept is not None:
                    self._kept[number] = changed.kept
            kind = self._kinds.get(func)
            if kind is None:
                kind = self._kinds[func] = _kind_of(func)
            if kind == _VIEW:
                self._pass_to_views(inputs, outputs, origins)
            elif kind != _SKIP:
                self._measure_outputs(number, kind, args, inputs, outputs, origins)
                if outputs and outputs[0].dtype is torch.float16 and _plain(outputs[0]):
                    self._look_for_zeros(number, kind, func, inputs, outputs[0], phase)

    def _pass_to_views(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], origins: Origins) -> None:
        """A view has the values of the tensor that it is a view of."""
        known = getattr(origins.of(inputs[0]), "value", None) if inputs else None
        if known is not None:
            for o in outputs:
                mark = origins.of(o)
                if mark is not None:
                    mark.value = known

    def _measure_outputs(
        self,
        number: int,
        kind: int,
        args: tuple[Any, ...],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        origins: Origins,
    ) -> None:
        scalars = [a for a in args if type(a) is float]
        asked = any(not math.isfinite(a) for a in scalars)
        if scalars and kind == _ADDS and outputs and outputs[0].dtype is torch.float16:
            self._vanished.update((number, a) for a in scalars if 0 < abs(a) <= _HALF_OF_SMALLEST)
        before: tuple[int, ...] = ()
        for o in outputs:
            if o.dtype not in _MEASURED or not _plain(o) or o.is_cuda and torch.cuda.is_current_stream_capturing():
                continue
            lane = self._lane(o.device)
            if not before:  # the operands' measurements, looked up before the outputs get theirs
                before = tuple(
                    self._known(lane, t, origins)
                    for t in inputs[:_INPUTS]
                    if t is not o and t.dtype in _MEASURED and _plain(t)
                )
            mark = origins.of(o)
            if mark is not None:
                mark.value = self._measure(lane, o, number, before, asked), _version(o)

    def _look_for_zeros(
        self, number: int, kind: int, func: Any, inputs: Sequence[Tensor], result: Tensor, phase: str
    ) -> None:
        """Counts values that were flushed to zero on the way to float16 or in it."""
        if kind == _CAST:
            source = inputs[-1]
            if source.dtype.itemsize > 2 and source.dtype.is_floating_point and _plain(source):
                self._lane(result.device).flushed(number, source, result, None)
        elif func.overloadpacket in _VANISHING and phase != "backward":
            self._vanishes(number, inputs, result)
        elif kind == _PRODUCT and phase == "backward":
            narrow = [t for t in inputs if t.dtype is torch.float16]
            if not narrow or not narrow[0].dim() or not _plain(narrow[0]):
                return
            if result.shape[:1] == narrow[0].shape[:1]:
                other = narrow[1] if len(narrow) > 1 and func.overloadpacket in _WITH_WEIGHTS else None
                self._lane(result.device).flushed(number, narrow[0], result, other)

    def _vanishes(self, number: int, inputs: Sequence[Tensor], result: Tensor) -> None:
        """Counts numbers that a product, a power or an exponential made zero although none of its factors was zero."""
        factors = [t for t in inputs if t.dtype.is_floating_point and t.shape == result.shape and _plain(t)]
        if not factors:
            return
        lane = self._lane(result.device)
        alive = factors[0] != 0
        for factor in factors[1:]:
            alive = alive & (factor != 0)
        alive = alive & torch.isfinite(factors[0])  # the exponential of minus infinity is rightly zero
        count, lost = alive.sum(), (alive & (result == 0)).sum()
        lane.casts.append((number, count, lost, count - count, count - count))

    def _lane(self, device: torch.device) -> _Lane:
        lane = self._lanes.get(device)
        if lane is None:
            lane = self._lanes[device] = _Lane(device)
        return lane

    def _known(self, lane: _Lane, tensor: Tensor, origins: Origins) -> int:
        """The serial number of the measurement that is valid for a tensor as it is now."""
        mark = origins.of(tensor)
        if mark is None:
            return -1
        version = _version(tensor)
        known = getattr(mark, "value", None)
        if known is not None and known[1] == version and self._serial - known[0] < _RING:
            return known[0]
        if tensor.device != lane.device:
            return -1
        serial = self._measure(lane, tensor, -1, (), False)
        mark.value = serial, version
        return serial

    def _measure(self, lane: _Lane, tensor: Tensor, number: int, before: tuple[int, ...], asked: bool) -> int:
        serial = self._serial
        self._serial += 1
        low, high = _aminmax(tensor)
        lane.waiting.setdefault(tensor.dtype, []).append((low, high, number, serial, before, asked))
        lane.count += 1
        if lane.count >= _BATCH:
            lane.fold()
        return serial

    def read(self) -> tuple[Value, ...]:
        """Everything that was measured, by op. Only this method waits for a device."""
        found: dict[int, Value] = {}
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
            for lane in self._lanes.values():
                for number, row in lane.read().items():
                    known = found.get(number)
                    found[number] = row if known is None else _joined(known, row)
        for number, scalar in self._vanished.items():
            if number in found:
                found[number] = replace(found[number], vanished=scalar)
        for number, index in self._kept.items():
            if number in found:
                found[number] = replace(found[number], kept=index)
        return tuple(found[n] for n in sorted(found))


class _Lane:
    """The measurements on one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.waiting: dict[torch.dtype, list[tuple[Any, ...]]] = {}
        self.count = 0
        self.casts: list[tuple[Any, ...]] = []
        self.changes: list[tuple[Any, ...]] = []
        self.ring = torch.zeros(_RING + 1, dtype=torch.bool, device=device)  # the last one means "no operand"
        self._room = 0
        self._make_tables()

    def flushed(self, number: int, source: Tensor, result: Tensor, other: Tensor | None) -> None:
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
        self.casts.append(
            (number, elements, elements - left if source.shape == result.shape else lost, row_count, lost)
        )
        if len(self.casts) >= _BATCH:
            self.fold()

    def fold(self) -> None:
        """Adds the waiting measurements to the sums."""
        with private.InferenceMode(True):  # tensors made in inference mode cannot be written to outside it
            self._fold()

    def _fold(self) -> None:
        rows = [entry for entries in self.waiting.values() for entry in entries]
        highest = max([r[2] for r in rows] + [c[0] for c in self.casts] + [c[0] for c in self.changes], default=-1)
        self._make_room(highest + 1)
        if rows:
            self._fold_ranges(rows)
        if self.casts:
            ops = self._there(c[0] for c in self.casts)
            counts = torch.stack([torch.stack([c[i] for c in self.casts]) for i in range(1, 5)], 1)
            self.lost.index_add_(0, ops, counts.long())
        if self.changes:
            ops = self._there(c[0] for c in self.changes)
            counts = torch.stack([torch.stack([c[i] for c in self.changes]) for i in (1, 2)], 1)
            self.arrived.index_add_(0, ops, counts.long())
        self.waiting, self.casts, self.changes, self.count = {}, [], [], 0

    def _fold_ranges(self, rows: list[tuple[Any, ...]]) -> None:
        all_bad, all_nan, peaks = [], [], []
        for entries in self.waiting.values():
            low, high = torch.stack([e[0] for e in entries]), torch.stack([e[1] for e in entries])
            finite = torch.isfinite(low) & torch.isfinite(high)
            all_bad.append(~finite)
            all_nan.append(torch.isnan(low))
            peaks.append(torch.where(finite, torch.maximum(-low, high), torch.zeros_like(low)).float())
        bad, nan, peak = torch.cat(all_bad), torch.cat(all_nan), torch.cat(peaks)
        serials = self._there(r[3] for r in rows)
        self.ring[serials % _RING] = bad
        above = self._there(_padded(r[4]) for r in rows)
        made = bad & ~self.ring[above].any(1) & ~self._there(r[5] for r in rows)
        # measurements of tensors that no op made go to the last row, which is not read
        ops = self._there(r[2] if r[2] >= 0 else self._room for r in rows)
        self.sums.index_add_(0, ops, torch.stack([torch.ones_like(bad), made, nan & made, nan, bad], 1).long())
        self.first.scatter_reduce_(0, ops, torch.where(made, serials, _NEVER), "amin")
        self.peak.scatter_reduce_(0, ops, peak, "amax")

    def _there(self, numbers: Iterable[Any]) -> Tensor:
        return torch.tensor(list(numbers)).to(self.device, non_blocking=True)

    def _make_room(self, needed: int) -> None:
        if needed <= self._room:
            return
        olds = (self.sums, self.first, self.peak, self.lost, self.arrived)
        room, self._room = self._room, max(_LEAST_ROOM, 2 * needed)
        self._make_tables()
        for new, old in zip((self.sums, self.first, self.peak, self.lost, self.arrived), olds):
            new[:room] = old[:room]

    def _make_tables(self) -> None:
        """One row for each op, and one for tensors that no op made."""
        with private.InferenceMode(True):  # like :meth:`fold`, which writes to them
            self._make_rows(self._room + 1, self.device)

    def _make_rows(self, rows: int, device: torch.device) -> None:
        self.sums = torch.zeros(rows, 5, dtype=torch.long, device=device)
        """Columns: measured, made infinite or NaN, made NaN, NaN, infinite or NaN."""
        self.first = torch.full((rows,), _NEVER, dtype=torch.long, device=device)
        self.peak = torch.zeros(rows, dtype=torch.float32, device=device)
        self.lost = torch.zeros(rows, 4, dtype=torch.long, device=device)
        self.arrived = torch.zeros(rows, 2, dtype=torch.long, device=device)

    def read(self) -> dict[int, Value]:
        """What was measured, by op. This waits for the device."""
        self.fold()
        if not self._room:
            return {}
        rows = zip(*(table[:-1].tolist() for table in (self.sums, self.first, self.peak, self.lost, self.arrived)))
        return {
            op: Value(
                op,
                sums[0],
                sums[1],
                first if sums[1] else -1,
                sums[2],
                sums[3],
                sums[4],
                peak,
                *lost,
                *arrived,
            )
            for op, (sums, first, peak, lost, arrived) in enumerate(rows)
            if sums[0] or lost[0] or arrived[0]
        }


_NEVER = 1 << 62
_WITH_WEIGHTS = {_aten.mm, _aten.addmm, _aten.bmm, _aten.baddbmm, _aten.convolution_backward}
_NOT_ARITHMETIC = ("empty", "new_empty", "resize", "set_", "_unsafe_view", "_local_scalar_dense", "record_stream")


def _kind_of(func: Any) -> int:
    packet = getattr(func, "overloadpacket", None)
    if packet is None or packet.__name__.startswith(_NOT_ARITHMETIC):
        return _SKIP
    if func.is_view:
        return _VIEW
    if packet in _CASTS:
        return _CAST
    return _PRODUCT if packet in _PRODUCTS else _ADDS if packet in _ADDING else _MEASURE


def _plain(tensor: Tensor) -> bool:
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and tensor.device.type != "meta"
        and tensor.numel() > 0
    )


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _aminmax(tensor: Tensor) -> tuple[Tensor, Tensor]:
    low, high = _AMINMAX(tensor.detach())
    return low, high


_AMINMAX = _aten.aminmax.default


def _nonzero(tensor: Tensor) -> Tensor:
    return torch.count_nonzero(tensor.detach())


def _rows(tensor: Tensor) -> Tensor:
    """Which entries along the first dimension hold anything other than zeros."""
    dims = tuple(range(1, tensor.dim()))
    tensor = tensor.detach()
    return (tensor.amax(dims) != 0) | (tensor.amin(dims) != 0)


def _padded(serials: tuple[int, ...]) -> list[int]:
    known = [s % _RING if s >= 0 else _RING for s in serials]
    return known + [_RING] * (_INPUTS - len(known))


def _joined(a: Value, b: Value) -> Value:
    """The same op, measured on two devices."""
    first = min((v.first for v in (a, b) if v.first >= 0), default=-1)
    summed = {
        f.name: getattr(a, f.name) + getattr(b, f.name)
        for f in fields(Value)
        if f.name not in ("op", "first", "peak", "vanished", "kept")
    }
    return Value(op=a.op, first=first, peak=max(a.peak, b.peak), **summed)
