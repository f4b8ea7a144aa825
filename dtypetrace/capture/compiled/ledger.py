"""Collects, while the program compiles, what its compiled code does with dtypes.

Everything is read where torch compiles a graph; when the graph runs, nothing of this does. Torch's caches are used as
without us: where they have the code already, no graph is seen but the captured one, and the rest is worked out again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch

from ...records.compiled import Measured
from ...tables.dtypes import HALF, REAL
from ...terminal import unwarned
from ..marks import Ref
from . import eager, inductor, torch_private
from .inductor import Buffer, Called

MOST = 400
"""Regions of which the ledger is kept."""


class Left(NamedTuple):
    """A tensor that leaves a captured graph."""

    dtype: torch.dtype
    dims: int
    event: int


@dataclass
class Compiled:
    """One graph that was compiled, as plain data."""

    phase: str
    nodes: list[Called]
    ends: dict[str, set[str]]
    buffers: list[Buffer]
    graph: inductor.Repeated | None = None
    """What is needed to repeat it; only with a reference."""
    measured: list[Measured] = field(default_factory=list)


@dataclass
class Captured:
    """One graph that Dynamo captured, and what was compiled for it."""

    nodes: list[Called]
    graph: Any = None
    """The captured graph, until births have been followed through it; the tensors in its notes are fake."""
    autocast: bool = False
    """Whether it was captured with autocast on."""
    otherwise: Mapping[str, eager.Otherwise] = field(default_factory=dict)
    """By node: the operator in it that eager refuses, or computes in another dtype."""
    given: Mapping[str, Ref] = field(default_factory=dict)
    """The program's tensors that came into it, by the names of their nodes."""
    real: dict[str, inductor.RealCall] = field(default_factory=dict)
    """The custom operators that it calls."""
    call: int = -1
    """The op that stands for the call in which it was captured."""
    number: int = -1
    """Torch's own number, by which a backward graph that is compiled later finds its forward."""
    compiled: dict[str, Compiled] = field(default_factory=dict)
    before: dict[str, Called] = field(default_factory=dict)
    """The nodes of the whole graph, forward and backward, before the compiler's own passes."""
    texts: list[str] = field(default_factory=list)
    """The compiled graphs as torch prints them, which its cache keeps, too."""
    unrepeated: bool = False
    """Whether its graphs cannot be repeated."""

    @property
    def narrow(self) -> bool:
        """Whether it computes in 16 bits anywhere."""
        return self.autocast or any(n.dtype in HALF or "autocast" in n.op for n in self.nodes)


class Repeats(Protocol):
    """Repeats what compiled graphs compute, as the ledger uses it. See ``reference.regions``."""

    def begins(self, region: Captured, compiled: Compiled, inputs: Sequence[Any]) -> Callable[[Any], None] | None:
        """A compiled graph is about to run. Returns what to call with its results; None for nothing."""


class Ledger:
    """The regions that were compiled from :meth:`start` to :meth:`stop`."""

    def __init__(self) -> None:
        self.captured: list[Captured] = []
        self.asks: eager.Asks | None = None
        self.repeats: Repeats | None = None
        self.lost: dict[str, None] = {}
        """What is not in it, and why."""
        self.seconds = 60.0
        """With no further graph from torch's cache is begun when these are used up."""
        self._fresh: list[tuple[int, Captured]] = []
        self.left: dict[int, list[Left]] = {}
        """What leaves the graphs that were captured in a call, by the number of its op."""

    def start(self) -> None:
        with _lock:
            _open.append(self)
            _settle()

    def add(self, captured: Captured) -> None:
        self.captured.append(captured)
        self._fresh.append((threading.get_ident(), captured))

    def fresh(self) -> list[Captured]:
        """What this thread has captured since the last time."""
        if not self._fresh:
            return []
        here = threading.get_ident()
        found = [c for thread, c in self._fresh if thread == here]
        self._fresh = [(thread, c) for thread, c in self._fresh if thread != here]
        return found

    def stop(self) -> None:
        with _lock:
            if self in _open:
                _open.remove(self)
            _settle()


_open: list[Ledger] = []
_lock = threading.RLock()
_installed: list[Callable[[], None]] = []
"""What takes each replaced function back."""


class _Here(threading.local):
    """The region that a thread compiles."""

    def __init__(self) -> None:
        self.region: Captured | None = None


_here = _Here()
_by_number: dict[int, Captured] = {}
_compiled: dict[int, tuple[Ref, Captured, str]] = {}
"""By the id of torch's object for a compiled graph: that object, its region and its phase; only with a reference."""
_real: list[inductor.RealCall] = []


def _settle() -> None:
    """Replaces torch's functions while a ledger is open; those of the compiler once it is imported."""
    if _open and not _installed and inductor.COMPILER is not None:
        _replace(inductor.COMPILER, "__call__", _compile)
        if inductor.OTHER_COMPILER is not None:
            _replace(inductor.OTHER_COMPILER, "__call__", _compile_otherwise)
    if not _open:
        while _installed:
            _installed.pop()()
        while _real:
            _real.pop().remove()
        _by_number.clear()
        _compiled.clear()


def _repeating() -> list[Ledger]:
    return [ledger for ledger in _open if ledger.repeats is not None]


def _replace(owner: Any, name: str, made: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = vars(owner)[name]
    new = made(original)
    setattr(owner, name, new)
    _installed.append(lambda: setattr(owner, name, original) if vars(owner)[name] is new else None)


def _prepare() -> str:
    """Replaces the functions of the compiler, which is imported now; returns what it lacks for that."""
    with _lock:
        if len(_installed) != (1 if inductor.OTHER_COMPILER is None else 2):
            return "" if _installed else "trace"
        lacks = inductor.missing()
        if not lacks:
            for owner, name, made in (
                (inductor.part("codegen.common", "CSEProxy"), "load", inductor.watched_load),
                (inductor.part("graph", "GraphLowering"), "codegen", _codegen),
                (inductor.part("compile_fx"), "_recursive_joint_graph_passes", _passes),
                (inductor.part("output_code", "CompiledFxGraph"), "post_compile", _loaded),
            ):
                _replace(owner, name, made)
            if _repeating():
                _replace(inductor.part("output_code", "CompiledFxGraph"), "__call__", _running)
        return lacks


@contextmanager
def kept_going(what: str, *ledgers: Ledger) -> Iterator[None]:
    """An error of ours must not reach the program: what failed is missing in the ledger."""
    try:
        yield
    except Exception as error:
        text = f"compiled code: {what} could not be read ({type(error).__name__}: {error})"
        for ledger in ledgers or _open:
            ledger.lost[text] = None


def _compile(original: Callable[..., Any]) -> Callable[..., Any]:
    """What ``torch.compile`` calls for each graph that Dynamo captures."""

    def __call__(self: Any, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        region, ledgers = None, [*_open]
        with kept_going("a captured graph"):
            lacks = _prepare()
            if lacks:
                for ledger in ledgers:
                    ledger.lost[f"what compiled code does with dtypes: this torch has no {lacks}"] = None
            elif all(len(ledger.captured) < MOST for ledger in ledgers):
                region = _captured(model)
        if region is None:
            return original(self, model, inputs, *args, **kwargs)
        try:
            with _compiling(region):
                made = original(self, model, inputs, *args, **kwargs)
            with kept_going("what was captured"), unwarned():
                _look_again(region, ledgers, model, lambda *again: original(self, *again))
            return made
        finally:
            for ledger in ledgers:
                ledger.add(region)

    return __call__


def _compile_otherwise(original: Callable[..., Any]) -> Callable[..., Any]:
    """The same for other compilers than torch's own: what the program says is known of their graphs, and no more."""

    def __call__(self: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        with kept_going("a captured graph"):
            if ledgers := [ledger for ledger in _open if len(ledger.captured) < MOST]:
                region = _captured(model)
                for ledger in ledgers:
                    ledger.add(region)
        return original(self, model, *args, **kwargs)

    return __call__


def _captured(model: Any) -> Captured:
    nodes, graph = inductor.calls(model.graph), inductor.copied(model.graph)
    return Captured(nodes, graph, inductor.autocasts(), given=inductor.given(model))


@contextmanager
def _compiling(region: Captured) -> Iterator[None]:
    outer, _here.region = _here.region, region
    try:
        yield
    finally:
        _here.region = outer


def _look_again(region: Captured, ledgers: Sequence[Ledger], model: Any, compile: Callable[..., Any]) -> None:
    """What eager refuses of a graph that was compiled, and what the compiler makes of it where torch had that in its
    cache."""
    _note_real(model, region)
    asks = next((ledger.asks for ledger in ledgers if ledger.asks is not None), None)
    mixed = asks is not None and len({n.dtype for n in region.nodes} & REAL) > 1
    cached = bool(region.texts) and "forward" not in region.compiled and region.narrow
    if not mixed and not cached:
        return
    with inductor.once_more(model, inductor.copied(region.graph)) as (module, inputs):
        if asks is not None and mixed:
            region.otherwise = eager.otherwise(module, inputs, asks)
        began = time.monotonic()
        left = min(ledger.seconds for ledger in ledgers)
        if cached and not (left > 0 and _worked_out(region, lambda: compile(module, inputs))):
            for ledger in ledgers:
                ledger.lost["compiled code: of some graphs, torch's cache had what is not known here"] = None
        for ledger in ledgers:
            ledger.seconds -= time.monotonic() - began


def _worked_out(region: Captured, compile: Callable[[], Any]) -> bool:
    """Fills in what the compiler makes of a captured graph; whether it is what the cache had."""
    made = Captured(region.nodes)
    try:
        with _compiling(made):
            inductor.compile_again(compile)
    except Exception:
        return False
    if not {*region.texts} <= {*made.texts}:
        return False
    region.compiled, region.before = made.compiled, made.before
    return True


def _note_real(model: Any, region: Captured) -> None:
    """From now on, notes what the custom operators of a captured graph give."""
    known = {call.op: call for call in _real}
    for op in inductor.custom_operators(model.graph):
        if op not in known:
            known[op] = inductor.RealCall(op)
            _real.append(known[op])
        region.real[str(op)] = known[op]


def _region_of(number: int | None) -> Captured | None:
    region = _here.region
    if region is not None and number is not None and region.number in (-1, number):
        region.number = number
        _by_number[number] = region
        return region
    return _by_number.get(number) if number is not None else None


def _passes(original: Callable[..., Any]) -> Callable[..., Any]:
    """The compiler's passes over the whole graph, forward and backward: before them, each of its nodes stands for what
    the program says."""

    def passes(gm: Any, *args: Any, **kwargs: Any) -> Any:
        region = _here.region
        if region is not None and not region.before:
            with kept_going("a graph before the compiler's passes"):
                region.before = {n.name: n for n in inductor.calls(gm.graph)}
        return original(gm, *args, **kwargs)

    return passes


def _codegen(original: Callable[..., Any]) -> Callable[..., Any]:
    """The compiler writes the code of one graph: its kernels are settled."""

    def codegen(self: Any) -> Any:
        reads = inductor.reads
        outer, reads.of = reads.of, {}
        try:
            made = original(self)
            with kept_going("a compiled graph"):
                region = _region_of(self.graph_id)
                if region is not None:
                    found = read(self, reads.of)
                    found.graph = inductor.repeated(self) if _repeating() else None
                    region.compiled.setdefault(found.phase, found)
            return made
        finally:
            reads.of = outer

    return codegen


def _loaded(original: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled graph is ready, be it new or from torch's cache."""

    def post_compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        settings = args[2] if len(args) > 2 else kwargs.get("graph_kwargs") or {}
        with kept_going("a compiled graph"):
            region = _region_of(settings.get("graph_id")) or _here.region
            if region is not None and _here.region is not None:
                region.texts.append(inductor.text_of(self))
            if region is not None and _repeating():
                phase = "backward" if settings.get("is_backward") else "forward"
                _compiled[id(self)] = Ref(self), region, phase
        return original(self, *args, **kwargs)

    return post_compile


def _running(original: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled graph runs, in a trace with a reference."""

    def __call__(self: Any, inputs: Any) -> Any:
        ended = _begins(self, inputs)
        results = original(self, inputs)
        for one in ended:
            with kept_going("what compiled code computed"):
                one(results)
        return results

    torch_private.skip(__call__)
    torch_private.skip(_begins, inside=True)
    return __call__


def _begins(graph: Any, inputs: Any) -> list[Callable[[Any], None]]:
    ended: list[Callable[[Any], None]] = []
    reference, region, phase = _compiled.get(id(graph), (None, None, ""))
    if region is None or reference is None or reference() is not graph or phase not in region.compiled:
        return ended
    for ledger in _repeating():
        with kept_going("what compiled code computes"):
            assert ledger.repeats is not None
            one = ledger.repeats.begins(region, region.compiled[phase], inputs)
            ended += [one] if one is not None else []
    return ended


def read(lowering: Any, taken: inductor.Taken) -> Compiled:
    """What the compiler made of one graph."""
    graph = lowering.module.graph
    phase = "backward" if lowering.is_backward else "forward"
    return Compiled(phase, inductor.calls(graph), inductor.ends(graph), inductor.buffers(lowering, taken))
