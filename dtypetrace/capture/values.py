"""What the values of a run did: which became infinite or NaN, which were flushed to zero, and where that began.

Nothing here reads a value on the host while the program runs. Each output is reduced on its device to its smallest and
greatest value, the reductions of some hundred calls are added up there, and the sums are read once, at the end. How
often: ``capture.measuring``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..records import Value
from ..tables.dtypes import DTYPES
from . import integers, private
from .cached_casts import CachedCasts
from .calls import NARROW_FLOATS, given_numbers, packets, version_of
from .cast_arrays import Wider
from .increments import (
    FOLLOWED,
    NARROW,
    PRODUCTS,
    SMALL,
    WATCHED,
    WATCHED_IDS,
    Call,
    Changed,
    Increments,
    is_plain,
    is_small_sum,
)
from .marks import Origins
from .ops import Form, GrowingOp
from .running import ARGS, FUNCTION, KWARGS, RunningCall
from .stored import CONCERNED, Stores
from .totals import Totals
from .value_sums import OPERANDS, RING, Ranges, RangeTotals

Tensor = torch.Tensor
_aten = torch.ops.aten
_FIRST_STEPS, _EACH = 2, 8
"""The first steps are measured completely, then every ``_EACH``-th; in between, only ops near their dtype's limits."""
_SKIP, _VIEW, _MEASURE, _CAST, _PRODUCT, _ADDS = range(6)
UNMEASURED, PASSED_ON, RANGE, IN_FULL = range(4)
"""How repeated calls of an op are measured: see :meth:`Values.manner`."""
_FOLLOWED_PHASES = ("forward", "other")
_FOLLOWED_IDS = WATCHED_IDS | frozenset(map(id, FOLLOWED))
_PRODUCTS_IDS = frozenset(map(id, PRODUCTS))
_HALF_OF_SMALLEST = DTYPES["float16"].smallest / 2
"""In float16: this and smaller values become zero."""

# in inference mode ``to`` is not decomposed; it may return its operand, so its schema says that it is a view
_COPIES = packets("cast") | {_aten.copy_, _aten.copy}
# Ops where a row of zeros in the result means that it was flushed, if the same row of the gradient is not zero. This
# does not hold for the backward of a mask, a slice or a normalisation: those make exact zeros by design.
_PRODUCTS = packets("matmul", "addmm", "divide", "saturates") | {_aten.convolution_backward}
# Their derivative is exactly zero where bfloat16 cannot tell the result from 1.
_SATURATING = {_aten.tanh_backward.default, _aten.sigmoid_backward.default}
# an epsilon that is added, or a lower limit for a value
_ADDING = packets("sum", "lower_bound")
_LIMITING = packets("upper_bound")
# what they write was measured where it was made, and the rest of their destination may be memory that nothing filled
_WHOLE = {_aten.copy_, _aten.copy, _aten.fill_, _aten.fill}
_REDUCING = packets("total") | {_aten.scatter_reduce, _aten.scatter_reduce_}
_STORING = packets("places", "store") - _WHOLE - _REDUCING
_SCALING = {_aten.mul, _aten.mul_, _aten._foreach_mul_}
_MEASURED = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
_FLUSHING = NARROW_FLOATS - {torch.bfloat16}
"""Dtypes in which numbers of usual size become zero."""
_FAR = {dtype: math.sqrt(torch.finfo(dtype).max) for dtype in _MEASURED - {torch.float16}}
"""By dtype: the square of a value up to this is finite. A single batch may leave the range of float16, whose values are
never far from its limits."""


_ZEROS = "nonzero", "flushed", "rows", "lost_rows", "lost_calls", "emptied"
_NO_ZEROS = dict.fromkeys(_ZEROS, 0)
_COUNTED = "measured", "nonzero", "due", "exact", "vanished", "factor"
"""Of each group of counts the one that is zero where none was made; all are named as in :class:`records.Value`."""
_NO_OUTPUTS = {**dict.fromkeys(("measured", "made", "made_nan", "nans", "bad"), 0), "peak": 0.0}
_MOSTLY = 0.9
"""If at least this share of the weights is not zero, rows of zeros cannot come from the weights."""
_FEWEST, _NEARLY_ALL = 32, 0.9
"""A call lost what it made if of at least so many nonzero elements this share came out as zero."""


class Values:
    """Accumulates the values of the ops of one recording. ``origins``: holds the marks of live tensors."""

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._ranges: dict[torch.device, Ranges | None] = {}
        """By device; None for one whose tensors have no values."""
        self._outputs = RangeTotals()
        self._zeros = Totals[int](*_ZEROS, whole=True, more=_calls_that_lost)
        self._changes = Totals[int]("due", "done", whole=True)
        self._drifts = Totals[int]("drift", reduce="amax")
        self._integers = Totals[int]("exact", "spoilt", whole=True)
        self._cuts, self._shorts = Totals[int]("cut", whole=True), Totals[int]("short", whole=True)
        self._parts = self._zeros, self._changes, self._drifts, self._integers, self._cuts, self._shorts
        self._kinds: dict[int, int] = {}
        self._serial = 0
        self.looking = True
        """Whether this step is measured completely."""
        self._unjudged = False
        """Whether such a step has ended, and nothing was decided from it yet."""
        self._steps = 0
        self._stepped: frozenset[int] = frozenset()
        self._vanished: dict[int, float] = {}
        self._factors: dict[int, float] = {}
        self._kept: dict[int, int] = {}
        self._of_integers: dict[int, int] = {}
        """Calls of each op in which integers were looked at."""
        self._arrived: dict[int, tuple[int, int]] = {}
        self._sound: dict[int, tuple[int, int]] = {}
        """By op whose updates began to be lost: how many were due and done before."""
        self.increments = Increments()
        self.stores = Stores()
        self.cached = CachedCasts()

    # ------------------------------------------------------------ every call

    def saw(self, call: Call) -> None:
        """Measures one call."""
        inputs, outputs = call.inputs, call.outputs
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
            self._follow(call)
            if outputs and call.phase not in ("backward", "optimizer") and integers.concerns(call.func, outputs[0]):
                self._look_at_integers(call)
            kind = self._kind(call.func)
            if kind == _VIEW:
                self.pass_on(inputs[0] if inputs else None, outputs)
            elif kind != _SKIP:
                self._measure_outputs(call, kind)
                if outputs and outputs[0].dtype in _FLUSHING and is_plain(outputs[0]):
                    self._look_for_zeros(call, kind, outputs[0])
                elif (
                    outputs and outputs[0].dtype is torch.bfloat16 and call.func in _SATURATING and is_plain(outputs[0])
                ):
                    self._flushed(call.op, inputs[0], outputs[0], None)

    def handed(self, number: int, call: RunningCall, out: Tensor) -> None:
        """Measures what became of numbers of Python's or NumPy's from which a call made a tensor, or which it stores in
        one, by op ``number``."""
        one, stores = out.dtype is torch.float16 and not out.dim(), call[FUNCTION] is Tensor.__setitem__
        if not (one or stores or integers.takes(out)) or not is_plain(out) or not self._looks_again(number, out):
            return
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
            data = given_numbers(call[FUNCTION], call[ARGS], call[KWARGS])
            if stores:
                self._count_integers(number, integers.filled(call[ARGS][2], out), out)
            elif one:
                self._keep_vanished(number, [data])
            elif data is not None:
                self._count_integers(number, integers.handed(data, out), out)

    def crossed(self, number: int, wider: Wider, out: Tensor) -> None:
        """Measures what a cast of NumPy's made of the numbers of a tensor."""
        self._count_integers(number, integers.crossed(wider.numbers, wider.dtypes[-1]), out)

    def taken(self, number: int, source: Tensor) -> None:
        """Measures whether a number that Python takes as an integer, in a call of op ``number``, may be one."""
        if is_plain(source):
            with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
                self._count_integers(number, integers.beyond(source), source)

    def manner(self, func: Any, args: tuple[Any, ...], dtype: torch.dtype, phase: str) -> int:
        """How later calls of an op, all of whose tensors are plain and have ``dtype``, are measured: ``UNMEASURED``,
        ``PASSED_ON`` (a view), ``RANGE`` (by :meth:`again`), else ``IN_FULL`` (by :meth:`saw`)."""
        kind = self._kind(func)
        first = next(a for a in args if isinstance(a, Tensor))  # a number stands before it in torch.add(1, x)
        if phase in _FOLLOWED_PHASES and is_small_sum(func, first):
            return IN_FULL
        if dtype in NARROW and (_followed(func, phase) or id(func) in _PRODUCTS_IDS and first.numel() <= SMALL):
            return IN_FULL
        if kind == _SKIP or dtype not in _MEASURED:
            return UNMEASURED
        if kind == _VIEW:
            return PASSED_ON
        saturates = dtype is torch.bfloat16 and func in _SATURATING
        return IN_FULL if dtype is torch.float16 or saturates or func.overloadpacket in _STORING else RANGE

    def pass_on(self, viewed: Tensor | None, views: Sequence[Tensor | None]) -> None:
        """Views have the values of the tensor that they are views of."""
        marks = self._origins.marks
        known = getattr(marks.get(id(viewed)), "value", None)
        if known is None or marks[id(viewed)]() is not viewed:
            return
        for view in views:
            mark = marks.get(id(view))
            if mark is not None and mark() is view:
                mark.value = known

    def again(self, number: int, args: tuple[Any, ...], form: Form, outputs: Sequence[Tensor | None]) -> None:
        """Measures the range of a call of op ``number`` that is like an earlier one."""
        if private.dispatch_mode_count() or not private.below_autograd():
            with private.DisableTorchDispatch(), private.BelowAutograd():
                self._measure_ranges(number, args, form, outputs)
        else:  # the two guards would cost as much as the measurement
            self._measure_ranges(number, args, form, outputs)

    def _measure_ranges(self, number: int, args: tuple[Any, ...], form: Form, outputs: Sequence[Tensor | None]) -> None:
        marks = self._origins.marks
        asked = bool(form.floats) and any(not math.isfinite(args[i]) for i in form.floats)
        operands: tuple[int, ...] | None = None
        for o in outputs:
            if o is None or not o.numel() or o.layout is not torch.strided or o.is_nested or o._is_zerotensor():
                continue
            ranges = self._ranges_on(o)
            if ranges is None:
                continue
            if operands is None:  # looked up before the outputs get theirs
                tensors = form.tensors[:OPERANDS]
                operands = tuple([self._known(ranges, t) for i in tensors if (t := args[i]) is not o])
            mark = marks[id(o)]
            mark.value = self._measure(ranges, o, number, operands, asked), version_of(o)

    # ------------------------------------------------------------ which steps

    def damaging(self) -> frozenset[int]:
        """The ops that have made a value that is not finite, and those whose updates of kept tensors were mostly lost
        since this was asked before: of those, only what comes from then on counts. Waits for the device."""
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
            self._fold()
            made, changed = self._outputs.outputs.read("made"), self._changes.read("due")
        found = {number for number in made if number >= 0}
        for number, row in changed.items():
            before, now = self._arrived.get(number, (0, 0)), (int(row["due"]), int(row["done"]))
            if 2 * (now[1] - before[1]) < now[0] - before[0]:
                found.add(number)
                self._sound.setdefault(number, before)
            self._arrived[number] = now
        return frozenset(found)

    def looks_at(self, op: GrowingOp) -> bool:
        """Whether more calls of an op are measured than a few steps' whole ones: none was judged, or it came near the
        limits of its dtype."""
        return op.near and self._kind(op.func) not in (_SKIP, _VIEW) and not _MEASURED.isdisjoint(op.outputs)

    def rest(self) -> None:
        """A watched step was the last for a while; the next one is measured completely."""
        self.looking = True
        self.increments.rest()
        self.cached.rest()

    def step_ended(self, optimizer: Any) -> None:
        """An optimizer's step has ended: decides what is measured from here on.

        Ops in float16, those that came near the limits of another dtype (the square of a value would be infinite, or
        some were lost to zero), and updates of kept tensors are measured in every step. The others are measured in
        the first steps, then in every eighth. A program without optimizers is measured completely.
        """
        if id(optimizer) not in self._stepped and self._steps:  # a program with several steps each of them in turn
            self._stepped |= {id(optimizer)}
            return
        self._stepped = frozenset({id(optimizer)})
        self._steps += 1
        if self._steps < _FIRST_STEPS:
            return
        self._unjudged |= self.looking
        self.looking = self._steps % _EACH == _EACH - 1

    def goes_on(self, ops: Sequence[GrowingOp]) -> None:
        """The step that begins is watched, too."""
        if self._unjudged:
            self._unjudged = False
            with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
                self._judge(ops)

    def _judge(self, ops: Sequence[GrowingOp]) -> None:
        for op in ops:
            if op.manner == PASSED_ON:  # only what an op passes on that was measured
                op.near = False
        self._fold()
        outputs, peaks, zeros = (part.read() for part in (*self._outputs.parts, self._zeros))
        for number, row in outputs.items():
            if number >= 0:
                op, peak, lost = ops[number], peaks[number]["peak"], zeros.get(number, _NO_ZEROS)
                far = any(peak > _FAR.get(dtype, -1) for dtype in op.outputs)
                op.near = bool(row["bad"] or lost["flushed"] or lost["lost_rows"]) or far or _is_followed(op)
                op.near |= self.stores.follows(number)
                if op.phase == "optimizer" and not op.near:
                    op.manner = UNMEASURED  # steps are judged as a whole, by what they do to weights and state

    def _fold(self) -> None:
        for ranges in filter(None, self._ranges.values()):
            ranges.fold()

    # ------------------------------------------------------------ parts

    def _follow(self, call: Call) -> None:
        """Compares what an update of a kept tensor changed with what it should have changed."""
        changed: Changed | None = self.increments.after(call.func, call.op) if call.func in WATCHED else None
        self.increments.carried, self.stores.carried, self.stores.decay = changed is not None, False, None
        if (
            (call.func in FOLLOWED or call.func in PRODUCTS)
            and call.phase in _FOLLOWED_PHASES
            and call.outputs
            and call.inputs
        ):
            changed = self.increments.made(call, self._origins) or changed
        if id(call.func) in CONCERNED:
            changed = self.stores.saw(call, self._origins) or changed
            if self.stores.decay is not None and self._ranges_on(call.outputs[0]) is not None:
                self._changes.add(*self.stores.decay)
        if changed is not None and self._ranges_on(changed.due) is not None:
            self._changes.add(call.op, changed.due, changed.done)
            if changed.drift is not None:
                self._drifts.add(call.op, changed.drift.float())
            if changed.kept is not None:
                self._kept[call.op] = changed.kept

    def _look_at_integers(self, call: Call) -> None:
        """Counts integers that a call did not keep."""
        out = call.outputs[0]
        plain = all(is_plain(t) for t in (out, *call.args) if isinstance(t, Tensor))
        if plain and (self._looks_again(call.op, out) or self._counts(call)):
            self._count_integers(call.op, integers.measured(call.func, call.args, call.kwargs, out), out)

    def _looks_again(self, number: int, out: Tensor) -> bool:
        """Whether one more call of an op is looked at: its first ones; of those that make integers also some later
        ones, which may be the first to lose any."""
        calls = self._of_integers[number] = self._of_integers.get(number, 0) + 1
        if calls <= integers.CALLS:
            return True
        return calls % integers.EVERY == 0 and calls <= integers.LATEST and not out.dtype.is_floating_point

    def _counts(self, call: Call) -> bool:
        """Whether a call adds to one integer of 32 bits, which wraps once in a long while."""
        one = call.outputs[0].dtype is torch.int32 and not call.outputs[0].dim() and call.func._schema.is_mutable
        return one and self._of_integers[call.op] <= integers.LATEST

    def _count_integers(self, number: int, counts: integers.Counts | None, out: Tensor) -> None:
        if counts is not None and self._ranges_on(out) is not None:
            self._integers.add(number, *counts[:2])
            for part, count in zip((self._cuts, self._shorts), counts[2:]):
                part.add(number, count)

    def _kind(self, func: Any) -> int:
        kind = self._kinds.get(id(func))  # by id: hashing an operator runs Python code
        if kind is None:
            kind = self._kinds[id(func)] = _kind_of(func)
        return kind

    def _measure_outputs(self, call: Call, kind: int) -> None:
        number, outputs = call.op, call.outputs
        scalars = [a for a in call.args if type(a) is float]
        asked = any(not math.isfinite(a) for a in scalars) or _only_stores(call)
        if scalars and kind == _ADDS and outputs and outputs[0].dtype is torch.float16:
            self._keep_vanished(number, scalars)
        if scalars and outputs and outputs[0].dtype in _MEASURED and call.func.overloadpacket in _LIMITING:
            near = torch.finfo(outputs[0].dtype).eps / 4  # of a number below 1, this and less is rounded off
            for limit in (abs(a) for a in scalars if 0 < 1 - abs(a) <= near):
                self._vanished.setdefault(number, limit)
        if scalars and call.func.overloadpacket in _SCALING and call.inputs[0].dtype in NARROW:
            known, eps = self._factors.get(number, 0.0), torch.finfo(call.inputs[0].dtype).eps
            for factor in (a for a in scalars if 0 < abs(1 - a) < min(eps / 4, abs(1 - known))):
                self._factors[number] = factor
        before: tuple[int, ...] = ()
        for o in outputs:
            ranges = self._ranges_on(o) if o.dtype in _MEASURED and is_plain(o) else None
            if ranges is None:
                continue
            if not before:  # the operands' measurements, looked up before the outputs get theirs
                before = tuple(
                    [
                        self._known(ranges, t)
                        for t in call.inputs[:OPERANDS]
                        if t is not o and t.dtype in _MEASURED and is_plain(t)
                    ]
                )
            mark = self._origins.of(o)
            if mark is not None:
                mark.value = self._measure(ranges, o, number, before, asked), version_of(o)

    def _keep_vanished(self, number: int, numbers: Iterable[Any]) -> None:
        """Keeps a number of Python's that is zero in float16."""
        self._vanished.update((number, a) for a in numbers if type(a) is float and 0 < abs(a) <= _HALF_OF_SMALLEST)

    def _look_for_zeros(self, call: Call, kind: int, result: Tensor) -> None:
        """Counts values that were flushed to zero on the way to float16 or in it."""
        if kind == _CAST:
            source = call.inputs[-1]
            result = result.float() if result.dtype is not torch.float16 else result  # torch can do little with 8 bits
            if source.dtype.itemsize > 2 and source.dtype.is_floating_point and is_plain(source):
                self._flushed(call.op, source, result, None)
        elif kind == _PRODUCT and call.phase == "backward":
            narrow = [t for t in call.inputs if t.dtype is torch.float16]
            if not narrow or not narrow[0].dim() or not is_plain(narrow[0]):
                return
            if result.shape[:1] == narrow[0].shape[:1]:
                other = narrow[1] if len(narrow) > 1 and call.func.overloadpacket in _WITH_WEIGHTS else None
                self._flushed(call.op, narrow[0], result, other)

    def _flushed(self, number: int, source: Tensor, result: Tensor, other: Tensor | None) -> None:
        """Counts values that are zero in ``result`` but not in ``source``: elements, and rows of the first axis."""
        if self._ranges_on(result) is None:
            return
        elements, left = torch.count_nonzero(source.detach()), torch.count_nonzero(result.detach())
        if source.dim() > 1 and result.shape[:1] == source.shape[:1]:
            rows, kept = _rows(source), _rows(result)
            row_count, lost = rows.sum(), (rows & ~kept).sum()
        else:
            row_count, lost = elements, elements - left
        if other is not None:  # weights that are mostly zeros make zeros
            lost = lost * (torch.count_nonzero(other.detach()) >= other.numel() * _MOSTLY)
        flushed = elements - left if source.shape == result.shape else lost
        self._zeros.add(number, elements, flushed, row_count, lost)

    def _ranges_on(self, tensor: Tensor) -> Ranges | None:
        """The ranges on a tensor's device; None where its values cannot be read now."""
        device = tensor.device
        if device not in self._ranges:
            self._ranges[device] = Ranges(device, self._outputs) if device.type != "meta" else None
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            return None
        return self._ranges[device]

    def _known(self, ranges: Ranges, tensor: Tensor) -> int:
        """The serial number of the measurement that is valid for a tensor as it is now, -1 for none."""
        mark = self._origins.marks.get(id(tensor))
        if mark is None or mark() is not tensor:
            return -1
        version = version_of(tensor)
        known = getattr(mark, "value", None)
        if known is not None and known[1] == version and self._serial - known[0] < RING:
            return known[0]
        if tensor.device != ranges.device or not is_plain(tensor):
            return -1
        serial = self._measure(ranges, tensor, -1, (), False)
        mark.value = serial, version
        return serial

    def _measure(self, ranges: Ranges, tensor: Tensor, number: int, operands: tuple[int, ...], asked: bool) -> int:
        serial = self._serial
        self._serial += 1
        ranges.measure(tensor, number, serial, operands, asked)
        return serial

    def read(self) -> tuple[Value, ...]:
        """Everything that was measured, by op. Only this method waits for a device."""
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
            self._fold()
            read = [part.read() for part in (*self._outputs.parts, *self._parts)]
            first, stale = self._outputs.first.read(), self.cached.read()
        found = []
        numbers = {n for rows in read for n in rows} | set(self._vanished) | set(self._factors)
        for number in sorted(n for n in numbers if n >= 0):
            known: dict[str, Any] = {**_NO_OUTPUTS}
            for rows in read:
                known.update(rows.get(number, ()))
            known["first"] = first[number]["first"] if known["made"] else -1
            known["kept"], known["vanished"] = self._kept.get(number, 0), self._vanished.get(number, 0.0)
            known["factor"] = self._factors.get(number, 0.0)
            if number in self._sound:
                due, done = self._sound[number]
                known["due"], known["done"] = known["due"] - due, known["done"] - done
            if any(known.get(name) for name in _COUNTED):
                found.append(Value(op=number, stale=stale.get(number, 0), **known))
        return tuple(found)


_WITH_WEIGHTS = packets("matmul", "addmm") | {_aten.convolution_backward}
_NOT_ARITHMETIC = packets("uninitialised", "still")


def _is_followed(op: GrowingOp) -> bool:
    """Whether an op may update a tensor that the program keeps narrow, so that every call counts; of an optimizer's, a
    single number, which may be a counter, and what is narrower than that which is added."""
    if not op.operands or op.operands[0][0] not in NARROW or id(op.func) not in _FOLLOWED_IDS:
        return False
    own = not op.inputs[0].shape or any(operand[0] not in NARROW for operand in op.operands)
    return op.phase in _FOLLOWED_PHASES or op.phase == "optimizer" and own


def _followed(func: Any, phase: str) -> bool:
    """Whether a call may change a kept tensor; an optimizer's calls, and those in backward, only in place."""
    return id(func) in (_FOLLOWED_IDS if phase in _FOLLOWED_PHASES else WATCHED_IDS)


def _kind_of(func: Any) -> int:
    packet = getattr(func, "overloadpacket", None)
    if packet is None or packet in _NOT_ARITHMETIC:
        return _SKIP
    if packet in _COPIES:
        return _CAST
    if func.is_view:
        return _VIEW
    return _PRODUCT if packet in _PRODUCTS else _ADDS if packet in _ADDING else _MEASURE


def _only_stores(call: Call) -> bool:
    """Whether a call writes numbers to some places of a tensor, and computes none."""
    if call.func.overloadpacket not in _STORING or "reduce" in call.kwargs:
        return False
    return not call.kwargs.get("accumulate", len(call.args) > 3 and call.args[3] is True)


def _rows(tensor: Tensor) -> Tensor:
    """Which entries along the first dimension hold anything other than zeros."""
    dims = tuple(range(1, tensor.dim()))
    tensor = tensor.detach()
    return (tensor.amax(dims) != 0) | (tensor.amin(dims) != 0)


def _calls_that_lost(counts: Tensor) -> Tensor:
    """With the counts of calls: whether nearly all of their elements came out as zero, and whether all did."""
    nonzero, flushed = counts[:, 0], counts[:, 1]
    whole = (nonzero >= _FEWEST) & (flushed >= nonzero * _NEARLY_ALL)
    empty = (nonzero > 1) & (flushed == nonzero)
    return torch.cat([counts, torch.stack([whole, empty], 1).to(counts.dtype)], 1)
