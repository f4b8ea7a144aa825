"""A change to try: dtypes of parameters and of births, and autocast, given by the names that people use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from .. import graph
from ..errors import UnknownNameError
from ..records import Input, Op, Parameter, Recording
from ..tables.dtypes import DTYPES, FLOATING, REAL, parse

INTEGERS = frozenset(d.name for d in DTYPES.values() if d.kind == "integer" and not d.storage_only)
AUTOCAST, OFF = "autocast", "off"
"""The name that a change of autocast is given by, and the value for none."""


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


def resolve(recording: Recording, changes: Mapping[str, Any], autocast: Any = None) -> DtypeChange:
    """The change for these names: a module, a parameter, a tensor's name where it was born, or ``file.py:12``.

    A dtype is given in any way that :func:`dtypes.parse` knows. An integer dtype is for tensors that were born as
    integers, which have no names and are given by their line. ``autocast`` may stand among the names, too. Raises
    UnknownNameError for a name that matches nothing recorded, UnknownDtypeError for what is no dtype to compute in.
    """
    if not isinstance(changes, Mapping) or not all(isinstance(name, str) for name in changes):
        given = f"{changes!r:.60}"
        raise TypeError(f'what_if takes names and dtypes, as in {{"unet": "bfloat16"}}, got {given}')
    births: dict[int, str] = {}
    modules: dict[str, str] = {}
    for name, spelled in changes.items():
        if name == AUTOCAST:
            autocast = spelled
            continue
        dtype = parse(spelled, FLOATING | INTEGERS, "dtype to compute in")
        full = _modules(recording, name)
        if full and dtype not in FLOATING:
            raise UnknownNameError(f"{name} has floating weights, and {dtype} is no floating dtype")
        born = [] if full else list(_births(recording, name, dtype))
        modules |= dict.fromkeys(full, dtype)
        births |= dict.fromkeys(born, dtype)
        if not full and not born:
            kind = "" if dtype in FLOATING else " with integers"
            raise UnknownNameError(f"nothing called {name!r} was recorded{kind}{graph.near(recording, name)}")
    region = autocast if autocast in (None, OFF) else parse(autocast, REAL, "dtype that autocast computes in")
    return DtypeChange(births, modules, region)


def _modules(recording: Recording, name: str) -> list[str]:
    """The full names of the modules or parameters of this name; its first parts may be left out."""
    known = sorted(graph.module_names(recording) | {p.name for p in recording.parameters})
    return [n for n in known if n == name] or [n for n in known if n.endswith(f".{name}")]


def _births(recording: Recording, name: str, dtype: str) -> Iterator[int]:
    """The events at which a tensor of that name, or on that line, got its dtype, if that is of the same kind."""
    kind = FLOATING if dtype in FLOATING else INTEGERS
    return (number for number in graph.births(recording, name) if recording.events[number].to in kind)


class Parameters:
    """Which operands are parameters or buffers whose dtype a change decides."""

    def __init__(self, recording: Recording, change: DtypeChange) -> None:
        self._modules = change.modules
        known = list(_known(recording))
        changed = [(p, dtype) for p in known if (dtype := self._of(p.name)) is not None]
        shared = {p.event for p in known if self._of(p.name) is None}
        self._events = {p.event: dtype for p, dtype in changed if p.event not in shared and p.event >= 0}
        self._sizes = {(p.event, p.size) for p, _ in changed}
        sizes: dict[tuple[str, str], int] = {}
        for p in known:
            pair = p.dtype, self._of(p.name) or change.births.get(p.event, p.dtype)
            sizes[pair] = sizes.get(pair, 0) + (p.size if p.trained else 0)
        pairs = sorted((pair for pair, size in sizes.items() if size), key=lambda pair: -sizes[pair])
        self.trained = tuple(dict.fromkeys(after for _, after in pairs))
        """The dtypes that trained parameters would have, that of most numbers first."""
        self.stepped = {before: {a for b, a in pairs if b == before} for before, _ in pairs}
        """The same by the dtype that they have in the recording."""

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


def _known(recording: Recording) -> Iterator[Parameter]:
    """Every floating parameter: as it was at the end, or where a module's op took it, if it was gone by then."""
    here = {p.name for p in recording.parameters}
    stepped = {(u.event, prod(u.shape)) for u in recording.updates if u.held and not u.frozen}
    yield from recording.parameters
    for op in recording.ops:
        for i in op.inputs if op.module and op.phase in ("forward", "recompute") else ():
            name = f"{op.module}.{i.name}" if i.name else op.module
            if i.holder == "parameter" and name not in here and not any(n.startswith(f"{name}.") for n in here):
                here.add(name)
                size = prod(i.shape)
                yield Parameter(name, i.dtype, size, i.event, not stepped or (i.event, size) in stepped)
