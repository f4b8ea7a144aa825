"""The module tree: which dtypes each module holds, takes, returns and makes in backward; folded where nothing
changes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..records import Finding, Op, Recording
from ..tables.dtypes import FLOATING

_OPEN = 40
"""The most lines that are unfolded at first."""
_MOST = 600
"""The most lines in total."""


@dataclass
class Module:
    """One line of the tree; ``same``: the names of similar siblings that this line includes."""

    name: str
    full: str
    parameters: set[str] = field(default_factory=set)
    takes: set[str] = field(default_factory=set)
    gives: set[str] = field(default_factory=set)
    backward: set[str] = field(default_factory=set)
    makes: set[str] = field(default_factory=set)
    ops: int = 0
    findings: list[str] = field(default_factory=list)
    children: list[Module] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    open: bool = False
    left_out: int = 0
    """How many modules below were left out because the tree is long."""

    @property
    def changes(self) -> bool:
        """Whether more than one floating dtype is inside."""
        return len(self.parameters | self.makes) > 1

    @property
    def label(self) -> str:
        return f"{self.name} … {self.same[-1]}" if self.same else self.name

    def look(self) -> tuple[Any, ...]:
        """The values that must be equal for two siblings to share a line."""
        inside = tuple((c.name, len(c.same), *c.look()) for c in self.children)
        sets = (self.parameters, self.takes, self.gives, self.backward, self.makes)
        return (*(tuple(sorted(s)) for s in sets), bool(self.findings), inside)


def tree(
    recording: Recording, anchors: Sequence[tuple[str, Finding]] = (), *, most: int = _MOST, unfolded: int = _OPEN
) -> list[Module]:
    """The outermost modules that ran, with the modules inside them; ``anchors``: names of the findings to link to."""
    known: dict[str, Module] = {}
    roots: list[Module] = []
    ran = {o.module for o in recording.ops if o.module}
    for full in (*recording.modules, *sorted(ran - set(recording.modules))):
        if full:
            _enter(known, roots, full)
    _fill(recording, known, anchors)
    used = [m for m in roots if m.ops or m.parameters]
    for module in used:
        _drop_unused(module)
        _fold(module)
    _bound(used, most)
    _unfold(used, unfolded)
    return used


def _enter(known: dict[str, Module], roots: list[Module], full: str) -> Module:
    if full not in known:
        above, _, name = full.rpartition(".")
        known[full] = Module(name, full)
        (_enter(known, roots, above).children if above else roots).append(known[full])
    return known[full]


def _above(full: str) -> Iterable[str]:
    """The name and the names of the modules around it, innermost first."""
    while full:
        yield full
        full = full.rpartition(".")[0]


def _fill(recording: Recording, known: dict[str, Module], anchors: Sequence[tuple[str, Finding]]) -> None:
    """Adds parameters, ops and findings to each module."""
    around = {full: tuple(_above(full)) for full in known}
    around[""] = ()
    for p in recording.parameters:
        for full in _above(p.name.rpartition(".")[0]):
            if full in known:
                known[full].parameters.add(p.dtype)
    for op in recording.ops:
        _count(op, [known[full] for full in around.get(op.module, ())])
    _fill_streams(recording, known, around)
    for anchor, finding in anchors:
        if module := _module_of(finding, known):
            module.findings.append(anchor)


def _count(op: Op, own: Sequence[Module]) -> None:
    """Counts an op, and the floating dtypes that it made, in the modules that it ran in."""
    floats = [d for d in op.outputs if d in FLOATING]
    for module in own:
        module.ops += op.count
        module.makes.update(floats)
        if op.phase == "backward":
            module.backward.update(floats)


def _fill_streams(recording: Recording, known: dict[str, Module], around: dict[str, tuple[str, ...]]) -> None:
    """Adds the floating dtypes that came into and went out of each module in forward."""
    used: set[int] = set()
    for op in recording.ops:
        if op.phase != "forward":
            continue
        own = around.get(op.module, ())
        for operand in op.inputs:
            if operand.dtype in FLOATING and operand.holder is None:
                made = recording.ops[operand.producer] if 0 <= operand.producer < len(recording.ops) else None
                there = around.get(made.module, ()) if made is not None else ()
                shared = _common(own, there)
                for full in own[: len(own) - shared]:
                    known[full].takes.add(operand.dtype)
                for full in there[: len(there) - shared]:
                    known[full].gives.add(operand.dtype)
                used.add(operand.producer)
    for number, op in enumerate(recording.ops):
        if op.phase == "forward" and number not in used:  # no watched op used it, so it left the model
            for full in around.get(op.module, ()):
                known[full].gives.update(d for d in op.outputs if d in FLOATING)


def _module_of(finding: Finding, known: dict[str, Module]) -> Module | None:
    """The module that a finding names. An optimizer does not know the model's variable, so its names begin without
    it."""
    if finding.module in known:
        return known[finding.module]
    ending = [m for name, m in known.items() if finding.module and name.endswith(f".{finding.module}")]
    return ending[0] if len(ending) == 1 else None


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """How many outermost names two chains share."""
    shared = 0
    while shared < min(len(one), len(other)) and one[-1 - shared] == other[-1 - shared]:
        shared += 1
    return shared


def _drop_unused(module: Module) -> None:
    module.children = [c for c in module.children if c.ops or c.parameters]
    for child in module.children:
        _drop_unused(child)


_NUMBERED = re.compile(r"\d+")


def _fold(module: Module) -> None:
    """Merges consecutive siblings that look alike and whose names differ only in a number."""
    for child in module.children:
        _fold(child)
    kept: list[Module] = []
    look: tuple[Any, ...] = ()
    for child in module.children:
        own = child.look()
        alike = (
            kept
            and own == look
            and _NUMBERED.sub("#", child.name) == _NUMBERED.sub("#", kept[-1].name)
            and not child.findings
        )
        if alike:
            kept[-1].same.append(child.name)
            _add_calls(kept[-1], child)
        else:
            kept.append(child)
            look = own
    module.children = kept


def _add_calls(one: Module, other: Module) -> None:
    """Adds the calls of a similar module, and of all modules inside it, to another one's."""
    one.ops += other.ops
    for ours, theirs in zip(one.children, other.children):
        _add_calls(ours, theirs)


def _bound(roots: list[Module], most: int) -> None:
    """Leaves out the deepest modules where the tree has more than ``most`` lines, except modules with findings."""
    front, lines = list(roots), len(roots)
    while front:
        below = []
        for module in front:
            room = lines + len(module.children) <= most
            if not room:
                kept = [c for c in module.children if _holds_finding(c)]
                module.left_out = sum(1 + len(c.same) + size(c) for c in module.children if c not in kept)
                module.children = kept
            lines += len(module.children)
            below += module.children
        front = below


def size(module: Module) -> int:
    return sum(1 + len(c.same) + size(c) for c in module.children)


def _holds_finding(module: Module) -> bool:
    return bool(module.findings) or any(map(_holds_finding, module.children))


def _unfold(roots: list[Module], lines: int) -> None:
    """Unfolds modules inside which a dtype changes, the outer ones first, and the way to every finding."""
    front = list(roots)
    shown = len(roots)
    while front:
        below = []
        for module in front:
            wanted = module.changes and shown + len(module.children) <= lines
            module.open = bool(module.children) and (wanted or any(map(_holds_finding, module.children)))
            if module.open:
                shown += len(module.children)
                below += module.children
        front = below
