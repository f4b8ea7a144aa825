"""The facts of a run: its receipt, and of each module the dtypes that it holds and computes in. What differs between
two runs, for ``diff``; between a run and a file that keeps them as a small text, for ``contract``.

The text has a section for the run and one for each pattern of modules. Each fact is a line and names neither a file nor
a line, so it changes only when a dtype does.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from .. import graph
from ..errors import ContractError
from ..records import Op, Origin, Recording
from ..rules import patterns, receipt
from ..tables.dtypes import ALIASES, FLOATING
from ..tables.operators import is_cast, is_move

_HEAD = "# dtypetrace contract 3: the receipt of a run, by module. Compare a run with it: dtypetrace contract check"
RUN = "(run)"
"""The section for what is set for the whole run."""
KEYS = ("parameters", "inputs", "computes", "outputs", "gradients", "state", "autocast")
"""The facts of a module, in the order of their lines."""
_COMPUTED = ("parameters", "autocast", "inputs")
_DECIDE = {"computes": _COMPUTED, "outputs": _COMPUTED, "state": ("parameters",)}
_SECTION = re.compile(r"\[(.+)\]")
_FACT = re.compile(r"(\w[\w ]*): (.+)")
_WORD = re.compile(r"\b(?:torch\.)?(\w+)")


@dataclass
class Facts:
    """The facts of one module, or of the run: a text for each key, and for each key the events behind its dtypes."""

    values: dict[str, str] = field(default_factory=dict)
    causes: dict[str, dict[str, Origin]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Breach:
    """One fact that is not as it was, for all modules of a pattern; an empty text: it is not there."""

    modules: tuple[str, ...]
    key: str
    wanted: str
    found: str
    cause: Origin | None
    """The event that decided the new dtype; for autocast that is gone, an op that ran without; None where it is not
    known."""


# ---------------------------------------------------------------- the facts of a run

_Parts = dict[str, Origin | None]
"""The parts of a fact with the event behind each; an empty part is no fact, but the event of one that is not there."""


def facts(recording: Recording) -> dict[str, Facts]:
    """The facts of the run and of every module that holds parameters or runs ops itself, by name."""
    found: dict[str, Facts] = {}
    for module, keys in {RUN: _of_run(recording), **_of_modules(recording)}.items():
        said = {key: sorted(part for part in parts if part) for key, parts in keys.items()}
        own = Facts({key: ", ".join(parts) for key, parts in said.items() if parts})
        for key, parts in keys.items():
            own.causes[key] = {part: origin for part, origin in parts.items() if origin is not None}
        if own.values:
            found[module] = own
    return found


def _of_run(recording: Recording) -> dict[str, _Parts]:
    """What the receipt has, the optimizers and the autocasts; a file of an earlier format has no autocast here."""
    autocasts: _Parts = {op.autocast: None for op in recording.ops if op.autocast} or {"off": None}
    optimizers: _Parts = {u.optimizer: None for u in recording.updates if u.optimizer}
    return {"autocast": autocasts, "optimizer": optimizers, **receipt.facts(recording)}


def _of_modules(recording: Recording) -> dict[str, dict[str, _Parts]]:
    """The parts of each fact of each module, with the event behind each."""
    root = patterns.root(recording)
    found: dict[str, dict[str, _Parts]] = defaultdict(lambda: {key: {} for key in KEYS})
    for p in recording.parameters:
        module, _, leaf = p.name.rpartition(".")
        own = found[patterns.shown(module, root)]["parameters"]
        own[f"{leaf} {p.dtype}"] = graph.origin(recording, p.event)
    # a module that ran under autocast first: what ran without is named where no autocast is left
    for op in sorted(recording.ops, key=lambda op: not op.autocast):
        if op.module and op.phase == "forward":
            keys = found[patterns.shown(op.module, root)]
            if op.autocast or _computes(op):
                keys["autocast"].setdefault(op.autocast, graph.ran(recording, op))
            for dtype in op.outputs if _computes(op) else ():
                if dtype in FLOATING:
                    keys["computes"].setdefault(dtype, graph.ran(recording, op))
    for module, key, dtype, origin in _crossing(recording, root, frozenset(found)):
        found[module][key].setdefault(dtype, origin)
    for u in recording.updates:
        module, _, leaf = u.name.rpartition(".")
        held = found.get(patterns.shown(module, root), {})
        if held and u.gradient_dtype:
            held["gradients"][f"{leaf} {u.gradient_dtype}"] = graph.origin(recording, u.gradient_event)
        for s in u.state if held else ():
            held["state"][f"{s.name} {s.dtype}"] = None
    return found


def _crossing(recording: Recording, root: str, modules: frozenset[str]) -> Iterator[tuple[str, str, str, Origin]]:
    """The floating dtypes that forward brings into modules and that others read of what is made inside, in the order of
    the run: ``(module, "inputs" or "outputs", dtype, the event or op behind it)``."""

    @cache
    def around(module: str) -> tuple[str, ...]:
        """A module and those that it is in."""
        parts = patterns.below(module, root).split(".")
        names = [patterns.ROOT, *(".".join(parts[:n]) for n in range(1, len(parts) + 1))]
        return tuple(name for name in names if name in modules)

    runs = {op.module for op in recording.ops if op.module and op.phase == "forward"}
    for op in recording.ops:
        here = around(op.module) if op.module and op.phase == "forward" else ()
        for i in op.inputs if here or op.phase in ("forward", "other") else ():
            if i.dtype not in FLOATING:
                continue
            made = recording.ops[i.producer] if i.producer >= 0 else None
            inside = around(made.module) if made is not None and made.module and made.phase == "forward" else ()
            for module in inside:
                if made is not None and module not in here:
                    yield module, "outputs", i.dtype, graph.ran(recording, made)
            born = recording.events[i.event].module if made is None and 0 <= i.event < len(recording.events) else ""
            inside = around(born) if born in runs else inside  # what a factory inside makes is no input
            for module in here if i.holder is None else ():
                if module not in inside:
                    yield module, "inputs", i.dtype, graph.origin(recording, i.event)


def _computes(op: Op) -> bool:
    """Whether an op computes: casts and moves do not."""
    return not is_move(op) and not is_cast(op) and any(i.dtype in FLOATING for i in op.inputs)


# ---------------------------------------------------------------- the text


def text(found: Mapping[str, Facts]) -> str:
    """The contract: the run's section, then one for each pattern of modules, sorted."""
    lines = [_HEAD]
    for name, values in sorted(
        _sections(found).items(), key=lambda item: (item[0] != RUN, item[0] != patterns.ROOT, item[0])
    ):
        lines += ["", f"[{name}]", *(f"{key}: {value}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def _sections(found: Mapping[str, Facts]) -> dict[str, dict[str, str]]:
    """One section for the modules of a pattern that agree. Others have sections of their own.

    Where two groups would share a pattern, the larger one has it.
    """
    groups: dict[str, dict[tuple[tuple[str, str], ...], list[str]]] = defaultdict(lambda: defaultdict(list))
    for module, own in found.items():
        groups[patterns.starred(module)][tuple(own.values.items())].append(module)
    sections: dict[str, dict[str, str]] = {}
    for alike in groups.values():
        shared: dict[str, list[str]] = {}
        for values, modules in sorted(alike.items(), key=lambda group: -len(group[1])):
            (pattern,) = patterns.collapsed(modules)
            if len(modules) > 1 and _apart(pattern, modules, shared):
                shared[pattern] = modules
                modules = [pattern]
            sections |= {name: dict(values) for name in modules}
    return sections


def _apart(pattern: str, modules: Iterable[str], others: Mapping[str, Iterable[str]]) -> bool:
    """Whether no other pattern takes one of the modules, and the pattern none of theirs."""
    return not any(
        any(_matches(other.split("."), m.split(".")) for m in modules)
        or any(_matches(pattern.split("."), m.split(".")) for m in theirs)
        for other, theirs in others.items()
    )


def parse(written: str) -> dict[str, dict[str, str]]:
    """The sections of a contract, also of one with short names of dtypes (``bf16``). Raises ContractError with the
    number of the line that is not one of a contract's."""
    sections: dict[str, dict[str, str]] = {}
    own: dict[str, str] | None = None
    for number, line in enumerate(written.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if section := _SECTION.fullmatch(line):
            own = sections.setdefault(section[1], {})
        elif own is not None and (fact := _FACT.fullmatch(line)):
            own[fact[1]] = _WORD.sub(lambda word: ALIASES.get(word[1], word[1]), fact[2])
        else:
            raise ContractError(f"line {number} is neither a [module] nor a fact: {line[:60]!r}")
    if RUN not in sections:
        raise ContractError(f"it has no section [{RUN}]")
    return sections


# ---------------------------------------------------------------- the check


def check(sections: Mapping[str, Mapping[str, str]], found: Mapping[str, Facts]) -> tuple[Breach, ...]:
    """What differs between a contract, or another run, and the facts of a run: one breach for all modules that differ
    alike. Files of the earlier formats say less of the run: they are compared in what they have."""
    breaches: dict[tuple[str, str, str, str], list[str]] = {}
    causes: dict[tuple[str, str, str, str], Origin | None] = {}
    met: set[str] = set()
    for module, own in found.items():
        section = _section(sections, module)
        met |= {section} if section is not None else set()
        wanted = sections[section] if section is not None else {}
        earlier = module == RUN and "autocast" not in wanted
        for key in wanted if earlier else dict.fromkeys([*wanted, *own.values]):
            before, now = wanted.get(key, ""), own.values.get(key, "")
            if before != now:
                breach = (patterns.starred(module), key, before, now)
                breaches.setdefault(breach, []).append(module)
                causes.setdefault(breach, _cause(own, wanted, key, module))
    shown = [
        Breach(tuple(patterns.collapsed(modules)), key, before, now, causes[pattern, key, before, now])
        for (pattern, key, before, now), modules in breaches.items()
    ]
    gone = [
        Breach((section,), key, before, "", None)
        for section, wanted in sections.items()
        if section not in met
        for key, before in wanted.items()
    ]
    return (*shown, *gone)


def _section(sections: Mapping[str, Mapping[str, str]], module: str) -> str | None:
    """The section for a module: of its own name, else the pattern with the fewest stars that it matches."""
    if module in sections:
        return module
    parts = module.split(".")
    fitting = [name for name in sections if "*" in name and _matches(name.split("."), parts)]
    return min(fitting, key=lambda name: name.count("*"), default=None)


def _matches(pattern: list[str], parts: list[str]) -> bool:
    return len(pattern) == len(parts) and all(
        p == part or p == "*" and part.isdecimal() for p, part in zip(pattern, parts)
    )


def _cause(own: Facts, wanted: Mapping[str, str], key: str, module: str) -> Origin | None:
    """The event behind a fact that differs. What a module computes and gives follows from its parameters, autocast and
    inputs, an optimizer's state from the parameters: if those differ, too, theirs is the event."""
    for decides in _DECIDE.get(key, ()):
        if wanted.get(decides, "") != own.values.get(decides, ""):
            if decides == "autocast":  # it has no event of its own: the op ran under it
                break
            return _cause(own, wanted, decides, module)
    known, causes = wanted.get(key, "").split(", "), own.causes.get(key, {})
    left = next(iter(causes.values()), None) if module != RUN else None  # a module's own ops are few
    return next((origin for part, origin in causes.items() if part not in known), left)
