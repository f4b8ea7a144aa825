"""What the values of a run did: which became infinite or NaN, which were flushed to zero, and where that began.

Nothing here reads a value on the host while the program runs. Each output is reduced on its device to its smallest and
greatest value, the reductions of some hundred calls are added up there, and the sums are read once, at the end. How
often: ``capture.measuring``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import torch

from ..records import Value
from ..tables.dtypes import DTYPES
from . import integers, private
from .cached_casts import CachedCasts
from .calls import NARROW_FLOATS, given_numbers, packets, readable
from .increments import FOLLOWED, NARROW, WATCHED, WATCHED_IDS, Changed, Increments, is_counter
from .marks import Mark, Origins
from .ops import Form, GrowingOp
from .running import ARGS, FUNCTION, KWARGS, RunningCall
from .value_sums import OPERANDS, RING, Sums

Tensor = torch.Tensor
_aten = torch.ops.aten
_FIRST_STEPS, _EACH = 2, 8
"""The first steps are measured completely, then every ``_EACH``-th; in between, only ops near their dtype's limits."""
_SKIP, _VIEW, _MEASURE, _CAST, _PRODUCT, _ADDS = range(6)
UNMEASURED, PASSED_ON, RANGE, IN_FULL = range(4)
"""How repeated calls of an op are measured: see :meth:`Values.manner`."""
_FOLLOWED_PHASES = ("forward", "other")
_FOLLOWED_IDS = WATCHED_IDS | frozenset(map(id, FOLLOWED))
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
_MEASURED = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
_FLUSHING = NARROW_FLOATS - {torch.bfloat16}
"""Dtypes in which numbers of usual size become zero."""
_FAR = {dtype: math.sqrt(torch.finfo(dtype).max) for dtype in _MEASURED - {torch.float16}}
"""By dtype: the square of a value up to this is finite. A single batch may leave the range of float16, whose values are
never far from its limits."""


class Values:
    """Accumulates the values of the ops of one recording."""

    def __init__(self) -> None:
        self._sums: dict[torch.device, Sums | None] = {}
        """By device; None for one whose tensors have no values."""
        self._kinds: dict[int, int] = {}
        self._serial = 0
        self.looking = True
        """Whether this step is measured completely."""
        self._steps = 0
        self._stepped: frozenset[int] = frozenset()
        self._vanished: dict[int, float] = {}
        self._kept: dict[int, int] = {}
        self._of_integers: dict[int, int] = {}
        """Calls of each op in which integers were looked at."""
        self._arrived: dict[int, tuple[int, int]] = {}
        self.increments = Increments()
        self.cached = CachedCasts()

    # ------------------------------------------------------------ every call

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
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
            self._follow(number, func, args, kwargs, inputs, outputs, origins, phase)
            if outputs and phase not in ("backward", "optimizer") and integers.concerns(func, outputs[0]):
                self._look_at_integers(number, func, args, kwargs, outputs[0])
            kind = self._kind(func)
            if kind == _VIEW:
                self.pass_on(inputs[0] if inputs else None, outputs, origins.marks)
            elif kind != _SKIP:
                self._measure_outputs(number, kind, args, inputs, outputs, origins)
                if outputs and outputs[0].dtype in _FLUSHING and _plain(outputs[0]):
                    self._look_for_zeros(number, kind, func, inputs, outputs[0], phase)
                elif outputs and outputs[0].dtype is torch.bfloat16 and func in _SATURATING and _plain(outputs[0]):
                    sums = self._sums_of(outputs[0])
                    if sums is not None:
                        sums.flushed(number, inputs[0], outputs[0], None)

    def handed(self, number: int, call: RunningCall, out: Tensor) -> None:
        """Measures what became of numbers of Python's or NumPy's from which a call made a tensor, by op ``number``."""
        if not integers.takes(out) or not _plain(out) or not self._looks_again(number, out):
            return
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
            data = given_numbers(call[FUNCTION], call[ARGS], call[KWARGS])
            if data is not None:
                self._count_integers(number, integers.handed(data, out), out)

    def manner(self, func: Any, args: tuple[Any, ...], dtype: torch.dtype, phase: str) -> int:
        """How later calls of an op, all of whose tensors are plain and have ``dtype``, are measured: ``UNMEASURED``,
        ``PASSED_ON`` (a view), ``RANGE`` (by :meth:`again`), else ``IN_FULL`` (by :meth:`saw`)."""
        kind = self._kind(func)
        if dtype in NARROW and _followed(func, phase) or phase in _FOLLOWED_PHASES and is_counter(func, args):
            return IN_FULL
        if kind == _SKIP or dtype not in _MEASURED:
            return UNMEASURED
        if kind == _VIEW:
            return PASSED_ON
        return IN_FULL if dtype is torch.float16 or dtype is torch.bfloat16 and func in _SATURATING else RANGE

    def pass_on(self, viewed: Tensor | None, views: Sequence[Tensor | None], marks: dict[int, Mark]) -> None:
        """Views have the values of the tensor that they are views of."""
        known = getattr(marks.get(id(viewed)), "value", None)
        if known is None or marks[id(viewed)]() is not viewed:
            return
        for view in views:
            mark = marks.get(id(view))
            if mark is not None and mark() is view:
                mark.value = known

    def again(
        self,
        number: int,
        args: tuple[Any, ...],
        form: Form,
        outputs: Sequence[Tensor | None],
        marks: dict[int, Mark],
    ) -> None:
        """Measures the range of a call of op ``number`` that is like an earlier one."""
        if private.dispatch_mode_count() or not private.below_autograd():
            with private.DisableTorchDispatch(), private.BelowAutograd():
                self._measure_ranges(number, args, form, outputs, marks)
        else:  # the two guards would cost as much as the measurement
            self._measure_ranges(number, args, form, outputs, marks)

    def _measure_ranges(
        self,
        number: int,
        args: tuple[Any, ...],
        form: Form,
        outputs: Sequence[Tensor | None],
        marks: dict[int, Mark],
    ) -> None:
        asked = bool(form.floats) and any(not math.isfinite(args[i]) for i in form.floats)
        operands: tuple[int, ...] | None = None
        for o in outputs:
            if o is None or not o.numel() or o.layout is not torch.strided or o.is_nested or o._is_zerotensor():
                continue
            sums = self._sums_of(o)
            if sums is None:
                continue
            if operands is None:  # looked up before the outputs get theirs
                tensors = form.tensors[:OPERANDS]
                operands = tuple([self._known(sums, t, marks) for i in tensors if (t := args[i]) is not o])
            mark = marks[id(o)]
            mark.value = self._measure(sums, o, number, operands, asked), _version(o)

    # ------------------------------------------------------------ which steps

    def damaging(self) -> frozenset[int]:
        """The ops that have made a value that is not finite, and those whose updates of kept tensors were mostly lost
        since this was asked before. Waits for the device."""
        found = set()
        for value in self.read():
            due, done = self._arrived.get(value.op, (0, 0))
            self._arrived[value.op] = value.due, value.done
            if value.made or 2 * (value.done - done) < value.due - due:
                found.add(value.op)
        return frozenset(found)

    def rest(self) -> None:
        """A watched step was the last for a while; the next one is measured completely."""
        self.looking = True
        self.increments.rest()
        self.cached.rest()

    def step_ended(self, optimizer: Any, ops: Sequence[GrowingOp]) -> None:
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
        if self.looking:
            with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
                self._judge(ops)
        self.looking = self._steps % _EACH == _EACH - 1

    def _judge(self, ops: Sequence[GrowingOp]) -> None:
        for op in ops:
            if op.manner == PASSED_ON:  # only what an op passes on that was measured
                op.near = False
        for sums in filter(None, self._sums.values()):
            for number, peak, lost in sums.extremes():
                op = ops[number]
                op.near = lost or any(peak > _FAR.get(dtype, -1) for dtype in op.outputs) or _is_followed(op)
                if op.phase == "optimizer" and not op.near:
                    op.manner = UNMEASURED  # steps are judged as a whole, by what they do to weights and state

    # ------------------------------------------------------------ parts

    def _follow(
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
        """Compares what an update of a kept tensor changed with what it should have changed."""
        changed: Changed | None = self.increments.after(func) if func in WATCHED else None
        if func in FOLLOWED and phase in _FOLLOWED_PHASES and outputs and inputs:
            changed = self.increments.made(number, func, args, kwargs, outputs[0], origins)
        sums = self._sums_of(changed.due) if changed is not None else None
        if changed is not None and sums is not None:
            sums.changed(number, changed.due, changed.done, changed.drift)
            if changed.kept is not None:
                self._kept[number] = changed.kept

    def _look_at_integers(
        self, number: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor
    ) -> None:
        """Counts integers that a call did not keep."""
        if all(_plain(t) for t in (out, *args) if isinstance(t, Tensor)) and self._looks_again(number, out):
            self._count_integers(number, integers.measured(func, args, kwargs, out), out)

    def _looks_again(self, number: int, out: Tensor) -> bool:
        """Whether one more call of an op is looked at: its first ones; of those that make integers also some later
        ones, which may be the first to lose any."""
        calls = self._of_integers[number] = self._of_integers.get(number, 0) + 1
        if calls <= integers.CALLS:
            return True
        return calls % integers.EVERY == 0 and calls <= integers.LATEST and not out.dtype.is_floating_point

    def _count_integers(self, number: int, counts: tuple[Tensor, Tensor] | None, out: Tensor) -> None:
        sums = self._sums_of(out) if counts is not None else None
        if counts is not None and sums is not None:
            sums.integers(number, *counts)

    def _kind(self, func: Any) -> int:
        kind = self._kinds.get(id(func))  # by id: hashing an operator runs Python code
        if kind is None:
            kind = self._kinds[id(func)] = _kind_of(func)
        return kind

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
            sums = self._sums_of(o) if o.dtype in _MEASURED and _plain(o) else None
            if sums is None:
                continue
            if not before:  # the operands' measurements, looked up before the outputs get theirs
                before = tuple(
                    [
                        self._known(sums, t, origins.marks)
                        for t in inputs[:OPERANDS]
                        if t is not o and t.dtype in _MEASURED and _plain(t)
                    ]
                )
            mark = origins.of(o)
            if mark is not None:
                mark.value = self._measure(sums, o, number, before, asked), _version(o)

    def _look_for_zeros(
        self, number: int, kind: int, func: Any, inputs: Sequence[Tensor], result: Tensor, phase: str
    ) -> None:
        """Counts values that were flushed to zero on the way to float16 or in it."""
        sums = self._sums_of(result)
        if sums is None:
            return
        if kind == _CAST:
            source = inputs[-1]
            result = result.float() if result.dtype is not torch.float16 else result  # torch can do little with 8 bits
            if source.dtype.itemsize > 2 and source.dtype.is_floating_point and _plain(source):
                sums.flushed(number, source, result, None)
        elif kind == _PRODUCT and phase == "backward":
            narrow = [t for t in inputs if t.dtype is torch.float16]
            if not narrow or not narrow[0].dim() or not _plain(narrow[0]):
                return
            if result.shape[:1] == narrow[0].shape[:1]:
                other = narrow[1] if len(narrow) > 1 and func.overloadpacket in _WITH_WEIGHTS else None
                sums.flushed(number, narrow[0], result, other)

    def _sums_of(self, tensor: Tensor) -> Sums | None:
        """The sums of a tensor's device; None where its values cannot be read now."""
        device = tensor.device
        if device not in self._sums:
            self._sums[device] = Sums(device) if device.type != "meta" else None
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            return None
        return self._sums[device]

    def _known(self, sums: Sums, tensor: Tensor, marks: dict[int, Mark]) -> int:
        """The serial number of the measurement that is valid for a tensor as it is now, -1 for none."""
        mark = marks.get(id(tensor))
        if mark is None or mark() is not tensor:
            return -1
        version = _version(tensor)
        known = getattr(mark, "value", None)
        if known is not None and known[1] == version and self._serial - known[0] < RING:
            return known[0]
        if tensor.device != sums.device or not _plain(tensor):
            return -1
        serial = self._measure(sums, tensor, -1, (), False)
        mark.value = serial, version
        return serial

    def _measure(self, sums: Sums, tensor: Tensor, number: int, operands: tuple[int, ...], asked: bool) -> int:
        serial = self._serial
        self._serial += 1
        sums.measure(tensor, number, serial, operands, asked)
        return serial

    def read(self) -> tuple[Value, ...]:
        """Everything that was measured, by op. Only this method waits for a device."""
        found: dict[int, Value] = {}
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
            for sums in filter(None, self._sums.values()):
                for number, row in sums.read().items():
                    known = found.get(number)
                    found[number] = row if known is None else _joined(known, row)
        for number, scalar in self._vanished.items():
            if number in found:
                found[number] = replace(found[number], vanished=scalar)
        for number, index in self._kept.items():
            if number in found:
                found[number] = replace(found[number], kept=index)
        for number, steps in self.cached.read().items():
            if number in found:
                found[number] = replace(found[number], stale=steps)
        return tuple(found[n] for n in sorted(found))


_WITH_WEIGHTS = packets("matmul", "addmm") | {_aten.convolution_backward}
_NOT_ARITHMETIC = packets("uninitialised", "still")


def _is_followed(op: GrowingOp) -> bool:
    """Whether an op may update a tensor that the program keeps narrow, so that every call counts; of an optimizer's, a
    single number, which may be a counter."""
    if not op.operands or op.operands[0][0] not in NARROW or id(op.func) not in _FOLLOWED_IDS:
        return False
    return op.phase in _FOLLOWED_PHASES or op.phase == "optimizer" and not op.inputs[0].shape


def _followed(func: Any, phase: str) -> bool:
    """Whether a call may change a kept tensor; an optimizer's calls only in place."""
    return id(func) in (_FOLLOWED_IDS if phase in _FOLLOWED_PHASES else WATCHED_IDS if phase == "optimizer" else ())


def _kind_of(func: Any) -> int:
    packet = getattr(func, "overloadpacket", None)
    if packet is None or packet in _NOT_ARITHMETIC:
        return _SKIP
    if packet in _COPIES:
        return _CAST
    if func.is_view:
        return _VIEW
    return _PRODUCT if packet in _PRODUCTS else _ADDS if packet in _ADDING else _MEASURE


def _plain(tensor: Tensor) -> bool:
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.numel() > 0 and readable(tensor)


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _joined(a: Value, b: Value) -> Value:
    """The same op, measured on two devices."""
    first = min((v.first for v in (a, b) if v.first >= 0), default=-1)
    summed = {
        f.name: getattr(a, f.name) + getattr(b, f.name)
        for f in fields(Value)
        if f.name not in ("op", "first", "peak", "vanished", "kept", "drift")
    }
    return Value(op=a.op, first=first, peak=max(a.peak, b.peak), drift=max(a.drift, b.drift), **summed)
