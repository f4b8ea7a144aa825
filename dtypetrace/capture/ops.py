"""The distinct ops of a recording while it grows, and what is known about operators and the types of their arguments.

Values that only a report needs are kept as torch has them (dtypes, sizes, devices). They become a :class:`records.Op`
when the recording is read.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from ..records import Input, Op
from ..tables.operators import tagged
from . import private
from .calls import HALVES, LIFT_FRESH, NARROW_FLOATS, TO_COPY, TO_DTYPE, dtype_name, op_name, shape_of
from .schemas import effect

Tensor = torch.Tensor
MOST_INPUTS = 64
"""Operands of one op that are recorded. Only a list of hundreds of tensors has more, and those are alike."""
_PLAIN: frozenset[type] = frozenset({Tensor, nn.Parameter})


class RawInput(NamedTuple):
    """See :class:`records.Input`."""

    dtype: torch.dtype
    event: int
    producer: int
    name: str
    """The name of a parameter, else empty."""
    parameter: bool
    shape: tuple[int, ...]

    def record(self) -> Input:
        """Converts it to plain data."""
        holder = "parameter" if self.parameter else None
        return Input(dtype_name(self.dtype), self.event, self.producer, self.name, holder, self.shape)


class GrowingOp:
    """The growing form of :class:`records.Op`.

    ``steady``, ``forms`` and ``owner`` are for ``Recorder._again``: the one dtype of all tensors of a call (None if
    they have several), the forms of the calls so far, by the types of the result and of the arguments, and the argument
    that decides the result's dtype (``calls.decider``). ``manner`` and ``near`` are for numerics: how such calls are
    measured (``Values.manner``), and whether in every step.

    In a trace of one step, the garbage collector's visits to new objects cost as much as making them. So an op is few
    objects that it visits: of plain tuples of numbers it lets go, and ops share ``forms``.
    """

    __slots__ = (
        "number", "count", "steady", "forms", "owner", "manner", "near",
        "func", "op", "phase", "module", "place", "operands", "outputs", "autocast", "root", "of", "shape", "device",
        "peak", "uncached", "written", "named", "unsure",
    )  # fmt: skip
    number: int
    count: int
    steady: torch.dtype | None
    forms: Forms
    owner: int
    manner: int
    near: bool
    func: Any
    op: str
    phase: str
    module: int
    place: int
    operands: tuple[tuple[Any, ...], ...]
    """:attr:`inputs` as plain tuples."""
    outputs: tuple[torch.dtype, ...]
    autocast: str
    root: weakref.ref[nn.Module] | None
    of: int
    shape: tuple[int, ...]
    device: torch.device | None
    peak: Tensor | float | None
    uncached: str
    written: tuple[int, ...]
    named: torch.dtype | None
    unsure: bool
    """Whether an operand was made in a step that was not watched: a later call may show where."""

    @property
    def inputs(self) -> list[RawInput]:
        """The operands as they were at the op's first call."""
        return [RawInput._make(operand) for operand in self.operands]

    def record(self, module: str, model: int) -> Op:
        """Converts it to plain data."""
        return Op(
            self.op,
            str(self.func).removeprefix("aten."),
            self.phase,
            module,
            self.place,
            tuple([i.record() for i in self.inputs]),
            tuple([dtype_name(d) for d in self.outputs]),
            self.count,
            self.autocast,
            self.of,
            self.shape,
            str(self.device) if self.device is not None else "",
            self._read_peak(),
            self.uncached,
            model,
            effect(self.func),
            self.written,
            dtype_name(self.named) if self.named is not None else "",
        )

    def _read_peak(self) -> float | None:
        """Replaces the peak by a number: in an open trace, reading it again would wait for the device again."""
        if isinstance(self.peak, Tensor):
            with private.DisableTorchFunction(), private.DisableTorchDispatch():
                self.peak = float(self.peak.item())
        return self.peak


def is_narrow(op: GrowingOp) -> bool:
    """Whether an op takes or makes floating numbers of 16 or 8 bits."""
    return any(d in NARROW_FLOATS for d in op.outputs) or any(operand[0] in NARROW_FLOATS for operand in op.operands)


# ---------------------------------------------------------------- decided once in a process


class Form:
    """The types of a call's arguments: one form for all calls with the same types."""

    __slots__ = ("kinds", "tensors", "floats", "several", "simple", "plain", "alone")

    def __init__(self, kinds: tuple[type, ...], positional: int) -> None:
        self.kinds = kinds
        self.tensors = tuple(i for i, kind in enumerate(kinds[:positional]) if issubclass(kind, Tensor))
        """Which positional arguments are tensors."""
        self.several = len(self.tensors) > 1
        self.floats = tuple(i for i, kind in enumerate(kinds[:positional]) if kind is float)
        """Which are floating numbers."""
        hidden = any(issubclass(kind, (Tensor, list, tuple)) for kind in kinds[positional:])
        self.simple = not hidden and not any(issubclass(kind, (list, tuple)) for kind in kinds[:positional])
        """Whether there are no other tensors: none passed by name, none in a list."""
        self.plain = all(kinds[i] in _PLAIN for i in self.tensors)
        """Whether all of them are plain tensors and parameters."""
        self.alone: dict[type, Forms] = {}
        """The tables of ops all of whose calls have this form, by the type of the result."""


Forms = dict[tuple[type, ...], Form]
"""Forms by the types of the result and of the arguments; never written to, because ops share them."""
NO_FORMS: Forms = {}


def one_more(forms: Forms, makes: type, form: Form) -> Forms:
    """Those forms, and a form of calls that return a ``makes``."""
    key = (makes, *form.kinds)
    if forms:
        return {**forms, key: form}
    alone = form.alone.get(makes)
    if alone is None:
        alone = form.alone[makes] = {key: form}
    return alone


_forms: dict[tuple[int, tuple[type, ...]], Form] = {}


def form_of(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Form:
    kinds = (*map(type, args), *map(type, kwargs.values())) if kwargs else (*map(type, args),)
    key = len(args), kinds
    form = _forms.get(key)
    if form is None:
        if len(_forms) >= _MOST_FORMS:  # a program that keeps making new classes of tensors
            _forms.clear()
        form = _forms[key] = Form(kinds, len(args))
    return form


_MOST_FORMS = 4096


def is_parameter(tensor: Tensor) -> bool:
    """Whether a tensor is a parameter. ``isinstance`` alone costs as much as all else that is recorded of an operand:
    it looks for an attribute that a plain tensor does not have."""
    kind = type(tensor)
    return kind is nn.Parameter or kind is not Tensor and isinstance(tensor, nn.Parameter)


def made_by(out: Any, kind: type) -> Sequence[Tensor | None]:
    """The tensors that an operator returned, where ``kind`` is the type of what it returned."""
    return (out,) if kind is Tensor or kind is nn.Parameter else out if kind is tuple or kind is list else ()


class Operator:
    """What is known about an operator."""

    __slots__ = ("func", "name", "repeats", "mutable", "casts", "agrees")

    def __init__(self, func: Any) -> None:
        self.func = func
        """Kept alive, so that no other operator gets its id."""
        overload = type(func) is private.OpOverload
        self.name = op_name(func)
        self.casts = func is TO_COPY or func is TO_DTYPE
        self.repeats = overload and not self.casts and func is not LIFT_FRESH
        """Whether a call that is like an earlier one can take the short path. Casts cannot: they differ by more than
        their place. Nor can ``lift_fresh``: its argument may be a new tensor."""
        self.agrees = tagged(self.name, "matmul", "addmm", "convolution")
        """Whether it refuses weights of another dtype than that of what it computes with."""
        self.mutable = bool(overload and func._schema.is_mutable)


_operators: dict[int, Operator] = {}


def operator(func: Any) -> Operator:
    """What is known about an operator."""
    known = _operators.get(id(func))
    if known is None:
        known = _operators[id(func)] = Operator(func)
    return known


# ---------------------------------------------------------------- measured once


def size_of(tensor: Tensor) -> tuple[int, ...]:
    """A tensor's sizes, looked at one by one only where they may not be plain numbers."""
    return tuple(tensor.shape) if type(tensor) in _PLAIN and not tensor.is_nested else shape_of(tensor)


def peak_of(integers: Tensor, cast: Tensor) -> Tensor | None:
    """The largest of some integers that were cast to a half dtype, still on their device; read when the run is over."""
    of_integers = not (integers.dtype.is_floating_point or integers.dtype.is_complex)
    if not of_integers or cast.dtype not in HALVES or type(cast) is not Tensor:
        return None
    if cast.device.type not in ("cpu", "cuda") or not cast.numel():
        return None
    if cast.is_cuda and torch.cuda.is_current_stream_capturing():
        return None
    with private.DisableTorchFunction(), private.DisableTorchDispatch():
        return cast.amax()
