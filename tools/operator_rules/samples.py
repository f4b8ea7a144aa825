"""The calls that are measured: torch's own samples of its operators, with their operands in many dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from . import observe

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
OTHERS = (torch.int64, torch.bool, torch.complex64, torch.int32, torch.uint8)
INDICES = (torch.int32, torch.int16, torch.uint8, torch.bool, torch.float32)
DTYPES = sorted({observe.dtype_name(d) for d in (*FLOATS, *OTHERS, *INDICES, torch.complex128, torch.complex32)})
"""Every dtype that operands were tried in; the two complex ones beside complex64 come as results."""
MOST_SAMPLES = 6
_MOST_OTHER_KINDS = 4
"""Integers in place of floats are tried with so many samples of an operator."""
_TOO_LARGE = 1e6
_VALUES = frozenset("1 2 value other min max fill_value start end scalar threshold pad".split())
"""Arguments whose numbers become elements of the result; what has no name is known by its position."""


@dataclass(frozen=True)
class Sample:
    """One call with its operands as they are."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def tensors(self) -> list[torch.Tensor]:
        return list(observe.tensors_in((*self.args, *self.kwargs.values())))

    def cast(self, dtypes: dict[int, torch.dtype], *, grad: bool = False) -> Sample:
        """The same call with copies of its tensors, those with the given numbers cast."""
        counter = iter(range(len(self.tensors)))
        copy = lambda value: _copied(value, counter, dtypes, grad)
        return Sample(self.function, tuple(map(copy, self.args)), {k: copy(v) for k, v in self.kwargs.items()})

    def __call__(self) -> Any:
        return self.function(*self.args, **self.kwargs)


def _copied(value: Any, counter: Iterator[int], dtypes: dict[int, torch.dtype], grad: bool) -> Any:
    if isinstance(value, torch.Tensor):
        dtype = dtypes.get(next(counter), value.dtype)
        copy = value.detach().to(dtype, copy=True)
        # no leaf: those cannot be written in place
        return copy.requires_grad_().clone() if grad and (dtype.is_floating_point or dtype.is_complex) else copy
    if isinstance(value, list):
        return [_copied(v, counter, dtypes, grad) for v in value]
    if type(value) is tuple:
        return tuple(_copied(v, counter, dtypes, grad) for v in value)
    if isinstance(value, dict):
        return {k: _copied(v, counter, dtypes, grad) for k, v in value.items()}
    return value


def of_operator(info: Any) -> list[Sample]:
    """The calls that torch tests an operator with, one of each structure, and their variants in place and with
    ``out=``."""
    dtype = next((d for d in (torch.float32, torch.complex64, torch.int64, torch.bool) if d in info.dtypes), None)
    if dtype is None:
        return []
    found: dict[Any, Sample] = {}
    for given in info.sample_inputs("cpu", dtype, requires_grad=False):
        args, kwargs = (given.input, *given.args), dict(given.kwargs)
        if any(
            t.layout is not torch.strided or t.is_quantized or t.is_nested for t in observe.tensors_in((args, kwargs))
        ):
            continue
        call = observe.describe(args, kwargs)
        settings = tuple(sorted((k, v) for k, v in call.options or () if not _is_number(v)))
        kinds = tuple(n.kind for n in call.numbers or ())
        shape = tuple((g.rank, g.empty, g.dtype) for g in call.operands), settings, kinds, call.dtype
        found.setdefault(shape, Sample(info.op, args, kwargs))
    samples = sorted(found.values(), key=lambda s: len(s.tensors), reverse=True)
    picked = samples[:: max(1, len(samples) // MOST_SAMPLES)][:MOST_SAMPLES]
    return [v for s in picked for v in _variants(info, s)]


def _is_number(text: str) -> bool:
    return text[:1].isdigit() or text.startswith("-")


def _variants(info: Any, sample: Sample) -> Iterator[Sample]:
    yield sample
    if info.inplace_variant is not None:
        yield Sample(info.inplace_variant, sample.args, sample.kwargs)
    if info.supports_out and "out" not in sample.kwargs:
        try:
            made = sample.cast({})()
        except Exception:
            return
        if isinstance(made, torch.Tensor):
            yield Sample(sample.function, sample.args, {**sample.kwargs, "out": torch.empty_like(made)})
        elif isinstance(made, tuple) and all(isinstance(t, torch.Tensor) for t in made):
            yield Sample(sample.function, sample.args, {**sample.kwargs, "out": tuple(map(torch.empty_like, made))})


def mixtures(sample: Sample) -> Iterator[tuple[dict[int, torch.dtype], bool]]:
    """The dtypes that a sample's operands are tried in, and whether only precisions changed: one operand after the
    other against every common dtype, simplest first."""
    yield from ((dtypes, True) for dtypes in precisions(sample))
    yield from ((dtypes, False) for dtypes in _other_kinds(sample))


def _turns(sample: Sample) -> tuple[list[int], list[int], list[int]]:
    """The floating operands, those of them that are changed one by one, and the other operands."""
    tensors = sample.tensors
    floating = [n for n, t in enumerate(tensors) if t.dtype.is_floating_point or t.dtype.is_complex]
    others = [n for n in range(len(tensors)) if n not in floating]
    return floating, floating if len(floating) <= 6 else [*floating[:3], *floating[-2:]], others


def precisions(sample: Sample) -> Iterator[dict[int, torch.dtype]]:
    """Every floating operand in another precision than the rest, in turn."""
    floating, in_turn, others = _turns(sample)
    for common in FLOATS:
        yield dict.fromkeys(floating, common)
        for n in in_turn if len(floating) + len(others) > 1 else ():
            yield from (dict.fromkeys(floating, common) | {n: d} for d in FLOATS if d is not common)


def _other_kinds(sample: Sample) -> Iterator[dict[int, torch.dtype]]:
    """Integers, booleans and complex numbers where floats are usual, and the other way round."""
    tensors = sample.tensors
    floating, in_turn, others = _turns(sample)
    yield from (dict.fromkeys(floating, d) for d in (*OTHERS, torch.complex128))
    if len(tensors) > 1:
        yield from (dict.fromkeys(floating, c) | {n: d} for n in in_turn for d in OTHERS for c in FLOATS[:2])
        yield from (dict.fromkeys(floating, d) | {n: FLOATS[0]} for n in in_turn for d in OTHERS)
    yield from (
        dict.fromkeys(floating, c) | {n: d} for n in others[:4] for d in (*INDICES, torch.int64) for c in FLOATS[:2]
    )
    if len(others) > 1:
        yield from (dict.fromkeys(others, d) for d in INDICES)


def enlarged(sample: Sample) -> Sample | None:
    """The call with numbers that float16 does not hold, None where it takes none."""
    names = (*observe.argument_names(sample.function), *map(str, range(len(sample.args))))
    large = lambda name, v: -_TOO_LARGE if type(v) is float and name in _VALUES else v
    args = tuple(map(large, names, sample.args))
    kwargs = {k: large(k, v) for k, v in sample.kwargs.items()}
    return Sample(sample.function, args, kwargs) if repr((args, kwargs)) != repr((sample.args, sample.kwargs)) else None


def measured(samples: Sequence[Sample]) -> Iterator[observe.Seen]:
    """What every function and operator did in all calls of some samples, their backward passes included."""
    for number, sample in enumerate(samples):
        for dtypes, usual in mixtures(sample):
            if usual or number < _MOST_OTHER_KINDS:
                yield from _seen(sample, dtypes, usual)
        large = enlarged(sample)
        if large is not None:
            floating = [n for n, t in enumerate(large.tensors) if t.dtype.is_floating_point]
            for dtype in FLOATS:
                yield from _seen(large, dict.fromkeys(floating, dtype), True)


def _seen(sample: Sample, dtypes: dict[int, torch.dtype], usual: bool) -> Iterator[observe.Seen]:
    """One call as it is and one that autograd records, with its backward pass."""
    for grad in (False, True) if usual and "out" not in sample.kwargs else (False,):
        call = sample.cast(dtypes, grad=grad)
        yield from observe.watch(partial(_backward, call) if grad else call, usual)


def _backward(call: Callable[[], Any]) -> None:
    total = [t for t in observe.tensors_in(call()) if t.requires_grad]
    if total:
        torch.autograd.backward(total, [torch.ones_like(t) for t in total])
