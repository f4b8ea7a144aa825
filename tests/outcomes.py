"""All that a program can see of one call, run with and without a watch: what tests compare to say that nothing changed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import dtypetrace

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "numerics": {"numerics": True},
    "autofix": {"autofix": True},
    "reference": {"reference": True},
}
"""The ways in which a trace can be opened."""


@dataclass(frozen=True)
class Call:
    """One way to call one function; ``make`` gives fresh operands each time, as (args, kwargs)."""

    function: Callable
    make: Callable[[], tuple[tuple, dict]]
    backward: bool = True
    changed: torch.dtype | None = None
    what: str = ""
    inside: Callable = nullcontext


@dataclass
class Outcome:
    """All that the program can see of one call."""

    stage: str = "forward"
    results: list = field(default_factory=list)
    gradients: list = field(default_factory=list)
    operands: list = field(default_factory=list)
    error: tuple[str, str] | None = None
    warned: list = field(default_factory=list)
    random: torch.Tensor | None = None


class Functions(TorchFunctionMode):
    """A function mode that does nothing."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    """A dispatch mode that does nothing."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class EmptyPair:
    """What a trace is at least: one mode of each kind."""

    def __enter__(self) -> None:
        self.modes = [Functions(), Operators()]
        for mode in self.modes:
            mode.__enter__()

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self.modes):
            mode.__exit__(*error)


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


def run(call: Call, watch: Any = None) -> Outcome:
    """Performs the call, watched by a trace (or by any other context manager) or by nothing."""
    torch.default_generator.manual_seed(0)  # torch.manual_seed also formats the call stack, for devices not used here
    outcome = Outcome()
    args, kwargs = call.make()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            with call.inside(), watch or nullcontext():
                perform(call, args, kwargs, outcome)
        except Exception as error:
            outcome.error = type(error).__name__, str(error)
    outcome.random = torch.get_rng_state()
    outcome.warned = [(w.category, str(w.message), w.filename, w.lineno) for w in warned]
    outcome.operands = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    seen = {id(t): t for t in (*outcome.operands, *outcome.results) if isinstance(t, torch.Tensor)}
    outcome.gradients = [t.grad for t in seen.values() if t.is_leaf]
    return outcome


def traced(call: Call, **options: Any) -> tuple[Outcome, tuple]:
    """The outcome under a trace, of dtypes alone unless the options ask for more, and what the trace says of it."""
    trace = dtypetrace.trace(**{"precision": "off"} | options)
    outcome = run(call, trace)
    assert trace._watch.recorder.broken is False, (call.what, trace.recording.not_seen)
    return outcome, trace.findings


def same(a: Any, b: Any, values: bool = True, grad: bool = True) -> bool:
    """Equal to the last bit, with equal dtype and layout, with or without a graph behind it.

    ``grad=False`` is for inference mode: a view that it makes of a leaf requires a gradient, except while a dispatch mode is on.
    """
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return type(a) is type(b) and (not values or repr(a) == repr(b))
    if (a.dtype, a.shape, a.layout, a.grad_fn is None) != (b.dtype, b.shape, b.layout, b.grad_fn is None):
        return False
    if type(a) is not type(b) or a.is_leaf != b.is_leaf or grad and a.requires_grad != b.requires_grad:
        return False
    if a.device.type != "cpu":  # meta, in the databases' wrong inputs
        return a.device == b.device
    if a.is_quantized:
        return not values or same(a.dequantize(), b.dequantize())
    if a.layout != torch.strided:
        return not values or same(a.detach().to_dense(), b.detach().to_dense())
    return a.stride() == b.stride() and (not values or bits(a) == bits(b))


def bits(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes()


def differences(plain: Outcome, watched: Outcome, values: bool = True, grad: bool = True) -> list[str]:
    """By what the program could distinguish the two."""
    found = []
    for name in ("error", "stage", "warned"):
        if getattr(plain, name) != getattr(watched, name):
            found.append(f"other {name}")
    for name in ("results", "gradients", "operands"):
        a, b = getattr(plain, name), getattr(watched, name)
        if len(a) != len(b) or not all(same(x, y, values, grad) for x, y in zip(a, b)):
            found.append(f"other {name}")
    assert plain.random is not None and watched.random is not None
    if not torch.equal(plain.random, watched.random):
        found.append("another random state")
    return found


def message(wrong: list[str]) -> str:
    """A list of faults as the message of a failed test."""
    return "\n".join([f"{len(wrong)} wrong", *(w[:500] for w in wrong[:40])])


def every_warning_again() -> Iterator[None]:
    """The body of a fixture. torch gives most of its warnings once in a process; here both runs get them. One thread: sums in one order."""
    always, threads = torch.is_warn_always_enabled(), torch.get_num_threads()
    torch.set_warn_always(True)
    torch.set_num_threads(1)
    yield
    torch.set_warn_always(always)
    torch.set_num_threads(threads)
