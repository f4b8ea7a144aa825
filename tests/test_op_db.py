"""torch's own operator database, run with and without a trace: nothing changes, and every refused dtype is told.

Each operator runs forward and backward on the CPU in float32; then with each floating operand in turn in float16,
bfloat16 and float64; then in place and with ``out=``, where the database has those forms; then with the database's own
wrong inputs. A call that float32 passes and the mixed operands do not was refused because of a dtype: that must give
one collision, at the function that was called, with the operand that was changed.

The full sweep is marked ``slow`` (about four minutes on one core); one operator in ten runs unmarked.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Callable, Iterator

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

import dtypetrace

CHUNKS = 16
SAMPLES = 2
MIXED = (torch.float16, torch.bfloat16, torch.float64)

UNINITIALISED = frozenset({"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_", "resize_as_"})
"""Their values are whatever the memory held, so only dtype, shape and strides are compared."""


@lru_cache
def operators() -> tuple:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return tuple(op for op in op_db if op.supports_dtype(torch.float32, "cpu"))


# ---------------------------------------------------------------- calls


@dataclass(frozen=True)
class Call:
    """One way to call one operator; ``make`` gives fresh operands each time, as (args, kwargs)."""

    function: Callable
    make: Callable[[], tuple[tuple, dict]]
    backward: bool = True
    changed: torch.dtype | None = None
    what: str = ""


def fresh(sample, grad: bool, only: int = -1, dtype: torch.dtype | None = None, *, leaf: bool = True) -> tuple[tuple, dict]:
    """The sample's operands, copied; the floating one numbered ``only`` in another dtype."""
    number = -1

    def copy(value):
        nonlocal number
        if not isinstance(value, torch.Tensor):
            return value
        new = value.detach().clone()
        if new.dtype == torch.float32:
            number += 1
            if number == only:
                new = new.to(dtype)
        new.requires_grad_(grad and value.requires_grad)
        return new

    args, kwargs = tree_map(copy, ((sample.input, *sample.args), sample.kwargs))
    if not leaf:  # a leaf that requires grad cannot be written in place
        args = (tree_map(lambda t: t * 1 if isinstance(t, torch.Tensor) and t.requires_grad else t, args[0]), *args[1:])
    return args, kwargs


def floating(sample) -> int:
    leaves = tree_leaves(((sample.input, *sample.args), sample.kwargs))
    return sum(isinstance(t, torch.Tensor) and t.dtype == torch.float32 for t in leaves)


def variants(op) -> Iterator[tuple[Call, list[Call]]]:
    """Each float32 call with the mixed calls that are to be compared with it."""
    samples = []
    for sample in op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd):
        samples.append(sample)
        if len(samples) == SAMPLES:
            break
    for number, sample in enumerate(samples):
        count = floating(sample)
        forms = [("", op.op, partial(fresh, sample, op.supports_autograd))]
        inplace = op.get_inplace()
        if inplace is not None and not sample.broadcasts_input and number == 0:
            forms.append(("in place", inplace, partial(fresh, sample, op.supports_autograd, leaf=False)))
        for form, function, make in forms:
            name = f"{op.formatted_name} #{number} {form}".rstrip()
            mixed = [
                Call(function, partial(make, only=i, dtype=d), changed=d, what=f"{name} with operand {i} in {d}")
                for i in range(count)
                for d in MIXED
            ]
            yield Call(function, make, what=name), mixed
        if op.supports_out and number == 0:
            yield from out_variants(op, sample)


def out_variants(op, sample) -> Iterator[tuple[Call, list[Call]]]:
    try:
        args, kwargs = fresh(sample, grad=False)
        expected = op.op(*args, **kwargs)
    except Exception:
        return
    several = isinstance(expected, (tuple, list))
    outs = tuple(expected) if several else (expected,)
    if not outs or not all(isinstance(o, torch.Tensor) and o.layout == torch.strided for o in outs):
        return

    def make(only: int = -1, dtype: torch.dtype | None = None, out: torch.dtype | None = None):
        args, kwargs = fresh(sample, False, only, dtype)
        made = tuple(torch.zeros_like(o, dtype=out if out and o.dtype == torch.float32 else None) for o in outs)
        return args, {**kwargs, "out": made if several else made[0]}

    name = f"{op.formatted_name} out="
    mixed = [Call(op.op, partial(make, i, d), False, d, f"{name} with operand {i} in {d}") for i in range(floating(sample)) for d in MIXED]
    if any(o.dtype == torch.float32 for o in outs):
        mixed += [Call(op.op, partial(make, out=d), False, d, f"{name} in {d}") for d in MIXED]
    yield Call(op.op, make, False, what=name), mixed


# ---------------------------------------------------------------- what a call does


@dataclass
class Outcome:
    """All that the program can see of one call."""

    stage: str = "forward"
    results: list = field(default_factory=list)
    gradients: list = field(default_factory=list)
    operands: list = field(default_factory=list)
    error: tuple[str, str] | None = None
    told: list = field(default_factory=list)
    random: torch.Tensor | None = None
    findings: tuple = ()


def perform(call: Call, args, kwargs, outcome: Outcome) -> None:
    result = call.function(*args, **kwargs)
    outcome.results = tree_leaves(result)
    if not call.backward:
        return
    ends = [r for r in outcome.results if isinstance(r, torch.Tensor) and r.requires_grad]
    if ends:
        outcome.stage = "backward"
        seeds = [torch.ones_like(r) for r in ends]
        if len(ends) == 1:
            ends[0].backward(seeds[0])
        else:
            torch.autograd.backward(ends, seeds)


def run(call: Call, traced: bool) -> Outcome:
    torch.manual_seed(0)
    outcome = Outcome()
    args, kwargs = call.make()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        trace = dtypetrace.trace() if traced else None
        try:
            if trace is None:
                perform(call, args, kwargs, outcome)
            else:
                with trace:
                    perform(call, args, kwargs, outcome)
        except Exception as error:
            outcome.error = type(error).__name__, str(error)
    outcome.random = torch.get_rng_state()
    outcome.told = [(w.category, str(w.message), w.filename, w.lineno) for w in told if w.lineno]
    outcome.operands = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    outcome.gradients = [t.grad for t in outcome.operands if t.is_leaf]
    if trace is not None:
        assert trace._watch.recorder.broken is False, (call.what, trace._watch.recorder.not_seen)
        outcome.findings = trace.findings
    return outcome


def same(a: Any, b: Any, values: bool = True) -> bool:
    """Equal to the last bit, with equal dtype and layout."""
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return type(a) is type(b) and (not values or repr(a) == repr(b))
    if (a.dtype, a.shape, a.layout, a.requires_grad) != (b.dtype, b.shape, b.layout, b.requires_grad):
        return False
    if a.layout != torch.strided:
        return not values or same(a.detach().to_dense(), b.detach().to_dense())
    return a.stride() == b.stride() and (not values or bits(a) == bits(b))


def bits(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes()


def differences(plain: Outcome, traced: Outcome, values: bool) -> Iterator[str]:
    if plain.error != traced.error:
        yield f"raised {traced.error}, untraced {plain.error}"
    if plain.stage != traced.stage:
        yield f"ended in {traced.stage}, untraced in {plain.stage}"
    for name in ("results", "gradients", "operands"):
        a, b = getattr(plain, name), getattr(traced, name)
        if len(a) != len(b) or not all(same(x, y, values) for x, y in zip(a, b)):
            yield f"other {name}"
    if not torch.equal(plain.random, traced.random):
        yield "another random state"
    if plain.told != traced.told:
        yield f"warned {traced.told}, untraced {plain.told}"


# ---------------------------------------------------------------- what the trace says of it


class _Raised(TorchFunctionMode):
    """Names the torch functions that raise: what a trace is to call the op, found out without one."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        try:
            return func(*args, **(kwargs or {}))
        except Exception:
            name = getattr(func, "__name__", str(func))
            self.names.append(name[2:-2] if name.startswith("__") and name.endswith("__") else name)
            raise


def raised_by(call: Call) -> list[str]:
    args, kwargs = call.make()
    with warnings.catch_warnings(), _Raised() as mode:
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        try:
            perform(call, args, kwargs, Outcome())
        except Exception:
            pass
    return mode.names


def misjudged(call: Call, base: Outcome, plain: Outcome, findings: tuple) -> Iterator[str]:
    """What is wrong with the findings of a call, given how it and its float32 twin ended untraced."""
    text = plain.error and plain.error[1]
    earlier = base.stage == "backward" and plain.stage == "forward"
    if plain.error is None or base.error is not None and not earlier:
        if findings and not (plain.error and re.search(ABOUT_DTYPE_ANYWAY, text)):
            yield f"a finding ({findings[0].code} at {findings[0].op}) of a call that ended in {plain.error}"
        return
    if len(findings) != 1 or findings[0].kind != "collision":
        yield f"{len(findings)} findings of the refusal {plain.error}"
        return
    finding, changed = findings[0], str(call.changed).removeprefix("torch.")
    told = [(o.name, o.dtype) for o in finding.operands]
    if plain.stage == "forward" and finding.op not in raised_by(call):
        yield f"op {finding.op}, raised by {raised_by(call)}: {text}"
    if finding.phase != {"forward": "other", "backward": "backward"}[plain.stage]:
        yield f"phase {finding.phase} of a refusal in {plain.stage}"
    if finding.severity != "error" or (finding.exception.type, finding.exception.message) != plain.error:
        yield f"{finding.severity} {finding.exception} for {plain.error}"
    if changed not in {dtype for _, dtype in told}:
        yield f"operands {told} without the one in {changed}: {text}"
    culprit = finding.culprit
    if culprit is None:
        yield f"no culprit among {told}: {text}"
    elif culprit.dtype != changed and all(dtype == culprit.dtype for _, dtype in told if dtype != changed) is False:
        yield f"culprit {culprit.name} {culprit.dtype} among {told}: {text}"


ABOUT_DTYPE_ANYWAY = r"the base given to float_power_ has dtype"
