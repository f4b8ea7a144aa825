"""The module tree: how much each module holds, computes and makes in backward in which dtype, what it takes and
returns; folded where nothing changes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from math import isfinite
from typing import Any

from ..records import Finding, Input, Op, Recording, Witness
from ..rules.run_facts import held_weights
from ..tables.dtypes import FLOATING
from ..tables.operators import flops, result_bytes
from . import listings

_OPEN = 40
"""The most lines that are unfolded at first."""
_MOST = 600
"""The most lines in total."""


@dataclass
class Module:
    """One line of the tree; ``same``: the names of similar siblings that this line includes."""

    name: str
    full: str
    weights: Counter[str] = field(default_factory=Counter)
    """Numbers that its parameters and buffers hold, by dtype."""
    takes: set[str] = field(default_factory=set)
    gives: set[str] = field(default_factory=set)
    computed: Counter[str] = field(default_factory=Counter)
    """Bytes of the results of its forward ops, by dtype, over all calls; views cost nothing."""
    gradients: Counter[str] = field(default_factory=Counter)
    """The same for backward."""
    work: Counter[str] = field(default_factory=Counter)
    """Floating point operations of its matmuls and convolutions, in all phases, by the dtype that they compute in."""
    makes: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)
    """The calls that were refused in it."""
    error: float | None = None
    """The largest error that one of its ops added, relative to its result, where there is a reference."""
    ops: int = 0
    """Calls of the ops in it and below."""
    calls: tuple[int, int] | None = None
    """How often its forward was called: the fewest and the most of the modules that this line includes; None where
    that was not recorded."""
    findings: list[str] = field(default_factory=list)
    """Findings that name it."""
    touched: list[str] = field(default_factory=list)
    """Findings that name another module, and are about its parameters or come through it."""
    words: dict[str, str] = field(default_factory=dict)
    """What happens in it to the dtype of such a finding: ``born``, ``passes``."""
    children: list[Module] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    open: bool = False
    left_out: int = 0
    """How many modules below were left out because the tree is long."""

    @property
    def parameters(self) -> set[str]:
        return set(self.weights)

    @property
    def backward(self) -> set[str]:
        return set(self.gradients)

    @property
    def changes(self) -> bool:
        """Whether more than one floating dtype is inside."""
        return len(self.parameters | self.makes) > 1

    @property
    def label(self) -> str:
        return f"{self.name} … {self.same[-1]}" if self.same else self.name

    @property
    def inside(self) -> list[str]:
        """The findings of the modules inside it that are not its own."""
        below = [f for c in self.children for f in (*c.findings, *c.touched, *c.inside)]
        return [f for f in dict.fromkeys(below) if f not in self.findings and f not in self.touched]

    def look(self) -> tuple[Any, ...]:
        """The values that must be equal for two siblings to share a line."""
        inside = tuple((c.name, len(c.same), *c.look()) for c in self.children)
        sets = (self.parameters, self.takes, self.gives, self.backward, self.makes)
        return (
            *(tuple(sorted(s)) for s in sets),
            tuple(self.findings),
            tuple(self.touched),
            tuple(self.refused),
            inside,
        )


def tree(recording: Recording, anchors: Sequence[tuple[str, Finding]] = ()) -> list[Module]:
    """The outermost modules that ran, with the modules inside them; ``anchors``: names of the findings to link to."""
    known: dict[str, Module] = {}
    roots: list[Module] = []
    calls = listings.module_calls(recording)
    ran = {o.module for o in recording.ops if o.module}
    for full in (*recording.modules, *sorted(ran - set(recording.modules))):
        if full:
            module = _enter(known, roots, full)
            module.calls = (calls[full], calls[full]) if full in calls else None
    _fill(recording, known, anchors)
    used = [m for m in roots if m.ops or m.weights]
    for module in used:
        _drop_unused(module)
        _fold(module)
    _bound(used, _MOST)
    _unfold(used, _OPEN)
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
    """Adds parameters, ops, errors and findings to each module."""
    around = {full: tuple(_above(full)) for full in known}
    around[""] = ()
    _fill_weights(recording, known, around)
    compiled = list(listings.inside_compiled(recording))
    counted = {inside.op for inside in compiled}
    for number, op in enumerate(recording.ops):
        if number not in counted:
            _count(op, [known[full] for full in around.get(op.module, ())])
    for inside in compiled:
        _count_inside(inside, recording.ops[inside.op].count, [known[full] for full in around.get(inside.module, ())])
    _fill_streams(recording, known, around)
    for refused in recording.refused:
        if not refused.healed and refused.module in known:
            known[refused.module].refused.append(refused.op)
    for p in recording.precisions:
        for full in around.get(recording.ops[p.op].module, ()) if isfinite(p.introduced) else ():
            known[full].error = max(known[full].error or 0.0, p.introduced)
    _fill_findings({p.name for p in recording.parameters if p.trained}, known, anchors)


def _fill_findings(trained: set[str], known: dict[str, Module], anchors: Sequence[tuple[str, Finding]]) -> None:
    """Adds each finding to the modules that it names, is about, and comes through."""
    for anchor, finding in anchors:
        named = finding.weights or [o.name for o in finding.operands if o.holder in _HELD]
        held = [m for name in named if (m := _holder_of(name, known, trained)) is not None]
        own = _module_of(finding.module, known) or next(iter(held), None)
        if own is not None:
            own.findings.append(anchor)
        stops = [(step, m) for step in finding.flow if (m := _module_of(step.module, known)) is not None]
        for module in {m.full: m for m in (*held, *(m for _, m in stops)) if m is not own}.values():
            module.touched.append(anchor)
        for step, module in stops:
            if module is not own:
                module.words.setdefault(anchor, "born" if step is finding.flow[0] else "passes")


def _fill_weights(recording: Recording, known: dict[str, Module], around: dict[str, tuple[str, ...]]) -> None:
    """Adds what each module's parameters hold."""
    for weight in held_weights(recording):
        for full in around.get(weight.module) or _above(weight.module):
            if full in known:
                known[full].weights[weight.dtype] += weight.size


_HELD = ("parameter", "buffer")


def _count(op: Op, own: Sequence[Module]) -> None:
    """Counts an op, and the floating dtype that it made, in the modules that it ran in."""
    dtype = _result(op)
    made = op.count * result_bytes(op) if op.outputs[:1] == (dtype,) and op.effect != "view" else 0
    work = op.count * flops(op)
    for module in own:
        module.ops += op.count
        if dtype and work:
            module.work[dtype] += work
        if dtype:
            module.makes.add(dtype)
            (module.gradients if op.phase == "backward" else module.computed)[dtype] += made


def _count_inside(inside: listings.Inside, calls: int, own: Sequence[Module]) -> None:
    """The same for an operator inside compiled code, by its graph."""
    for module in own:
        module.ops += calls
        if inside.dtype in FLOATING:
            module.makes.add(inside.dtype)
            amounts = module.gradients if inside.phase == "backward" else module.computed
            amounts[inside.dtype] += calls * inside.nbytes


def _result(op: Op) -> str:
    """The dtype of an op's first floating result, empty where it has none. Others, such as the statistics that a norm
    saves for its backward pass, stay inside."""
    return next((d for d in op.outputs if d in FLOATING), "")


def _fill_streams(recording: Recording, known: dict[str, Module], around: dict[str, tuple[str, ...]]) -> None:
    """Adds the floating dtypes that came into and went out of each module in forward: what its forward returned, or,
    where only modules inside it were called, what others used."""
    inputs: list[tuple[str, Sequence[Input | Witness]]]
    inputs = [(op.module, op.inputs) for op in recording.ops if op.phase in ("forward", "other")]
    inputs += [(r.module, r.witnesses) for r in recording.refused if not r.healed]
    for name, operands in inputs:
        own = around.get(name, ())
        for operand in operands:
            made = recording.ops[operand.producer] if 0 <= operand.producer < len(recording.ops) else None
            if operand.dtype not in FLOATING or operand.holder is not None or _stays(recording, operand, made):
                continue
            there = around.get(made.module, ()) if made else ()
            shared = sum(takewhile(bool, (a == b for a, b in zip(own[::-1], there[::-1]))))
            for full in own[: len(own) - shared]:
                known[full].takes.add(operand.dtype)
            for full in there[: len(there) - shared]:
                known[full].gives.add(operand.dtype)
    for full, dtypes in listings.module_results(recording).items():
        known[full].gives = dtypes


def _stays(recording: Recording, operand: Input | Witness, made: Op | None) -> bool:
    """Whether a module has an operand of its own: a statistic that a norm saves for its backward pass, or a buffer
    from its constructor."""
    if made is None or not made.outputs:
        return False
    born = recording.events[operand.event].how if 0 <= operand.event < len(recording.events) else ""
    return operand.dtype != _result(made) or made.phase == "other" and born == "parameter"


def _module_of(name: str, known: dict[str, Module]) -> Module | None:
    """The module of a name. An optimizer does not know the model's variable, so its names begin without it."""
    if not name or name in known:
        return known.get(name)
    ending = [m for full, m in known.items() if full.endswith(f".{name}")]
    return ending[0] if len(ending) == 1 else None


def _holder_of(weight: str, known: dict[str, Module], trained: set[str]) -> Module | None:
    """The module that holds a parameter, by the name that an optimizer has for it: of several models that have one of
    that name, the one that is trained."""
    name = weight.rpartition(".")[0]
    if found := _module_of(name, known):
        return found
    ending = [full for full in trained if full.endswith(f".{weight}")]
    return known.get(ending[0].rpartition(".")[0]) if len(ending) == 1 else None


def _drop_unused(module: Module) -> None:
    module.children = [c for c in module.children if c.ops or c.weights or c.refused]
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
        alike = kept and own == look and _NUMBERED.sub("#", child.name) == _NUMBERED.sub("#", kept[-1].name)
        if alike:
            kept[-1].same.append(child.name)
            _add_amounts(kept[-1], child)
        else:
            kept.append(child)
            look = own
    module.children = kept


def _add_amounts(one: Module, other: Module) -> None:
    """Adds the amounts of a similar module, and of all modules inside it, to another one's."""
    one.ops += other.ops
    one.weights.update(other.weights)
    one.computed.update(other.computed)
    one.gradients.update(other.gradients)
    one.work.update(other.work)
    one.calls = _range(one.calls, other.calls)
    one.error = max(filter(None, (one.error, other.error)), default=one.error)
    for ours, theirs in zip(one.children, other.children):
        _add_amounts(ours, theirs)


def _range(one: tuple[int, int] | None, other: tuple[int, int] | None) -> tuple[int, int] | None:
    return (min(one[0], other[0]), max(one[1], other[1])) if one and other else one or other


def _bound(roots: list[Module], most: int) -> None:
    """Leaves out the deepest modules where the tree has more than ``most`` lines, except modules with findings."""
    front, lines = list(roots), len(roots)
    while front:
        below = []
        for module in front:
            room = lines + len(module.children) <= most
            if not room:
                kept = [c for c in module.children if c.findings or c.touched or c.inside]
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
    """Unfolds modules inside which a dtype changes or a finding is, the outer ones first, and the way to where each
    finding is."""
    front = list(roots)
    shown = len(roots)
    while front:
        below = []
        for module in front:
            wanted = (module.changes or module.inside) and shown + len(module.children) <= lines
            module.open = bool(module.children) and bool(wanted or any(map(_holds_finding, module.children)))
            if module.open:
                shown += len(module.children)
                below += module.children
        front = below


# ---------------------------------------------------------------- bars


@dataclass(frozen=True)
class Bar:
    """An amount by dtype: how long its bar is, in percent of the longest, and each dtype's amount, the largest
    first."""

    length: int
    parts: tuple[tuple[str, int], ...]


def bar(amounts: Counter[str], most: int) -> Bar:
    """The bar of one module; its length grows with the square root of the amount, so small modules can be seen."""
    whole = max(0, sum(amounts.values()))
    length = round(100 * (min(whole, most) / most) ** 0.5) if most > 0 else 0
    parts = sorted(amounts.items(), key=lambda part: (-part[1], part[0]))
    return Bar(min(100, max(length, 4)) if whole else 0, tuple(parts))


def most(roots: Sequence[Module]) -> dict[str, int]:
    """The largest amounts of a tree, to which its bars are drawn."""
    return {
        name: max((sum(getattr(m, name).values()) for m in roots), default=0)
        for name in ("weights", "computed", "gradients")
    }
