"""A change to try: dtypes of parameters and of births, and autocast, given by the names that people use."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

from .. import graph
from ..records import Input, Op, Parameter, Recording
from ..tables.dtypes import DTYPES, FLOATING

INTEGERS = frozenset(d.name for d in DTYPES.values() if d.kind == "integer" and not d.storage_only)


class UnknownNameError(ValueError):
    """Nothing of that name was recorded, or no such dtype exists."""


@dataclass(frozen=True)
class DtypeChange:
    """Other dtypes for a recorded run.

    births: event that decided a dtype -> the dtype that it should decide instead. modules: full name of a module or
    parameter -> the dtype of its floating parameters and buffers. autocast: the dtype that autocast computes in during
    forward, ``"off"`` for no autocast, None for autocast as recorded. results: op -> the dtype that its
    results are cast to. inside: the places of an expression that is cast, whose ops take those results as they were.
    """

    births: Mapping[int, str] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    autocast: str | None = None
    results: Mapping[int, str] = field(default_factory=dict)
    inside: frozenset[int] = frozenset()


def resolve(recording: Recording, changes: Mapping[str, str], autocast: str | None = None) -> DtypeChange:
    """The change for these names: a module, a parameter, a tensor's name where it was born, or ``file.py:12``.

    An integer dtype is for tensors that were born as integers, which have no names and are given by their line. Raises
    UnknownNameError for a name that matches nothing recorded, and for what is no dtype to compute in.
    """
    births: dict[int, str] = {}
    modules: dict[str, str] = {}
    for name, spelled in changes.items():
        dtype = _dtype(spelled)
        full = _modules(recording, name)
        if full and dtype not in FLOATING:
            raise UnknownNameError(f"{name} has floating weights, and {dtype} is no floating dtype")
        born = [] if full else list(_births(recording, name, dtype))
        modules |= dict.fromkeys(full, dtype)
        births |= dict.fromkeys(born, dtype)
        if not full and not born:
            kind = "" if dtype in FLOATING else " with integers"
            raise UnknownNameError(f"nothing called {name!r} was recorded{kind}{_near(recording, name)}")
    region = autocast if autocast in (None, "off") else _dtype(autocast or "", FLOATING)
    return DtypeChange(births, modules, region)


def _dtype(spelled: str, known: frozenset[str] = FLOATING | INTEGERS) -> str:
    name = spelled.removeprefix("torch.")
    if name not in known:
        near = difflib.get_close_matches(name, sorted(known), 1)
        kind = "dtype to compute in" if known is not FLOATING else "floating dtype"
        raise UnknownNameError(f"{spelled!r} is no {kind}" + (f"; did you mean {near[0]}?" if near else ""))
    return name


def _modules(recording: Recording, name: str) -> list[str]:
    """The full names of the modules or parameters of this name; its first parts may be left out."""
    known = _named(recording)
    return [n for n in known if n == name] or [n for n in known if n.endswith(f".{name}")]


def _named(recording: Recording) -> list[str]:
    """The full names of all modules that ran or hold parameters, and of the parameters."""
    parameters = {p.name for p in recording.parameters}
    return sorted(parameters | {n for p in parameters for n in _above(p)} | set(recording.modules) - {""})


def _above(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:n]) for n in range(1, len(parts)))


def _births(recording: Recording, name: str, dtype: str) -> Iterator[int]:
    """The events at which a tensor of that name, or on that line, got its dtype, if that is of the same kind."""
    file, colon, line = name.rpartition(":")
    for number, event in enumerate(recording.events):
        if event.to not in (FLOATING if dtype in FLOATING else INTEGERS) or event.parents:
            continue
        place = graph.place_of(recording, event.place)
        if colon and line.isdigit():
            if any(f.line == int(line) and f.user and f.file.endswith(file) for f in place.stack):
                yield number
        elif name == event.name or name in event.assigned:
            yield number


def _near(recording: Recording, name: str) -> str:
    known = set(_named(recording))
    for event in recording.events:
        if event.to in FLOATING:
            known |= set(event.assigned)
    near = difflib.get_close_matches(name, sorted(known), 3)
    if near:
        return f"; did you mean {', '.join(near)}?"
    return ". Give a module, a parameter or a variable by its name, or a line: train.py:12"


class Parameters:
    """Which operands are parameters or buffers whose dtype a change decides."""

    def __init__(self, recording: Recording, change: DtypeChange) -> None:
        self._modules = change.modules
        self._changed = [(p, dtype) for p in recording.parameters if (dtype := self._of(p.name)) is not None]
        mine = {p.event for p, _ in self._changed}
        shared = {p.event for p in recording.parameters if self._of(p.name) is None}
        self._events = {p.event: dtype for p, dtype in self._changed if p.event not in shared and p.event >= 0}
        self._sizes = {(p.event, p.size) for p, _ in self._changed if p.event in mine}

    def _of(self, name: str) -> str | None:
        """The dtype that a change gives a parameter, or the contents of a module: that of the longest matching name."""
        covering = [n for n in self._modules if name == n or name.startswith(f"{n}.")]
        return self._modules[max(covering, key=len)] if covering else None

    def dtype(self, op: Op, operand: Input) -> str | None:
        """The dtype that an operand is changed to, None where it is not a changed parameter or buffer."""
        if operand.dtype not in FLOATING:
            return None
        if operand.holder == "parameter":
            owner = self._of(f"{op.module}.{operand.name}" if operand.name else op.module) if op.module else None
            return owner or self._events.get(operand.event)
        if operand.producer >= 0 or (operand.event, prod(operand.shape)) not in self._sizes:
            return None
        return self._events.get(operand.event)

    def now(self, parameter: Parameter) -> str:
        """A parameter's dtype after the change."""
        return self._of(parameter.name) or parameter.dtype


def is_known(dtype: str) -> bool:
    return dtype in DTYPES
