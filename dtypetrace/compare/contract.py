"""A receipt as a small text, and how another run differs from it.

The text has a section for the run, with what the receipt has of it as a whole, and one for each pattern of modules.
Each fact is a line and names neither a file nor a line, so it changes only when a dtype does.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from .. import graph
from ..errors import ContractError
from ..records import Op, Origin, Recording
from ..rules import patterns, receipt
from ..tables.dtypes import FLOATING
from ..tables.operators import is_cast, is_move

_HEAD = "# dtypetrace contract 2: the dtypes of each module. Compare a run with it: dtypetrace contract check"
RUN = "(run)"
"""The section for what is set for the whole run."""
ROOT = patterns.ROOT
"""The section of the outermost module."""
KEYS = ("parameters", "inputs", "computes", "outputs", "gradients", "state", "autocast")
"""The facts of a module, in the order of their lines."""
_COMPUTED = ("parameters", "autocast", "inputs")
_DECIDE = {"computes": _COMPUTED, "outputs": _COMPUTED, "state": ("parameters",)}
_SECTION = re.compile(r"\[(.+)\]")
_FACT = re.compile(r"(\w[\w ]*): (.+)")


@dataclass
class Facts:
    """The facts of one module, or of the run: a text for each key, and for each key the events behind its dtypes."""

    values: dict[str, str] = field(default_factory=dict)
    causes: dict[str, dict[str, Origin]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Breach:
    """One fact that is not as the contract says, for all modules of a pattern; an empty text: it is not there."""

    modules: tuple[str, ...]
    key: str
    wanted: str
    found: str
    cause: Origin | None
    """The event that decided the new dtype; for autocast that is gone, an op that ran without; None where it is not
    known."""


# ---------------------------------------------------------------- the facts of a run


def facts(recording: Recording) -> dict[str, Facts]:
    """The facts of the run and of every module that holds parameters or runs ops itself, by name."""
    root = patterns.root(recording)
    found: dict[str, Facts] = {}
    for module, key, parts in _parts(recording, root):
        said = sorted(part for part in parts if part)
        if parts:
            own = found.setdefault(module, Facts())
            own.values |= {key: ", ".join(said)} if said else {}
            own.causes[key] = {part: origin for part, origin in parts.items() if origin is not None}
    return {module: own for module, own in found.items() if own.values}


_Parts = dict[str, Origin | None]
"""The parts of a fact with the event behind each; an empty part is no fact, but the event of one that is not there."""


def _parts(recording: Recording, root: str) -> Iterator[tuple[str, str, _Parts]]:
    """The parts of each fact, with the event behind each."""
    yield from ((RUN, key, parts) for key, parts in _of_run(recording))
    held: dict[str, _Parts] = defaultdict(dict)
    for p in recording.parameters:
        module, _, leaf = p.name.rpartition(".")
        held[patterns.shown(module, root)][f"{leaf} {p.dtype}"] = graph.origin(recording, p.event)
    gradients: dict[str, _Parts] = defaultdict(dict)
    state: dict[str, _Parts] = defaultdict(dict)
    for u in recording.updates:
        module, _, leaf = u.name.rpartition(".")
        if u.gradient_dtype:
            gradients[patterns.shown(module, root)][f"{leaf} {u.gradient_dtype}"] = graph.origin(
                recording, u.gradient_event
            )
        for s in u.state:
            state[patterns.shown(module, root)][f"{s.name} {s.dtype}"] = None
    ops = _own_ops(recording, root)
    for module in dict.fromkeys([*held, *ops]):
        own = ops.get(module, [])
        inside = _inside(recording, root, module)
        yield module, "parameters", held.get(module, {})
        yield module, "inputs", _inputs(recording, inside)
        yield module, "computes", _computed(recording, own)
        yield module, "outputs", _outputs(recording, inside)
        yield module, "gradients", gradients.get(module, {})
        yield module, "state", state.get(module, {})
        yield module, "autocast", _autocast(recording, own)


def _of_run(recording: Recording) -> Iterator[tuple[str, _Parts]]:
    yield from receipt.of_run(recording).items()
    yield "optimizer", {u.optimizer: None for u in recording.updates if u.optimizer}


def of_run(recording: Recording) -> Facts:
    """The facts of the run as a whole, as ``diff`` compares them: with its autocasts and its optimizers' state."""
    parts: dict[str, _Parts] = {"autocast": {op.autocast: None for op in recording.ops if op.autocast} or {"off": None}}
    parts |= dict(_of_run(recording))
    for s in recording.state:
        parts.setdefault(f"{s.optimizer} {s.name}", {})[s.dtype] = None
    return Facts({key: ", ".join(sorted(said)) for key, said in parts.items() if said})


def _autocast(recording: Recording, ops: Iterable[Op]) -> _Parts:
    """The autocasts that ops ran under; last, as an empty text, the first op that computed under none."""
    found: _Parts = {}
    for op in sorted(ops, key=lambda op: not op.autocast):
        if op.autocast not in found and (op.autocast or _computes(op)):
            found[op.autocast] = graph.ran(recording, op)
    return found


def _own_ops(recording: Recording, root: str) -> dict[str, list[Op]]:
    found: dict[str, list[Op]] = defaultdict(list)
    for op in recording.ops:
        if op.module and op.phase == "forward":
            found[patterns.shown(op.module, root)].append(op)
    return found


def _inside(recording: Recording, root: str, module: str) -> set[int]:
    """The forward ops that run in a module or below it."""
    if module == ROOT:
        return {n for n, op in enumerate(recording.ops) if op.module and op.phase == "forward"}
    full = root + module
    return {
        n
        for n, op in enumerate(recording.ops)
        if op.phase == "forward" and (op.module == full or op.module.startswith(f"{full}."))
    }


def _inputs(recording: Recording, inside: set[int]) -> _Parts:
    """The floating dtypes that come in: operands that no parameter holds and that were made elsewhere."""
    found: _Parts = {}
    here = {recording.ops[n].module for n in inside}
    for number in sorted(inside):
        for i in recording.ops[number].inputs:
            if i.holder is None and i.producer not in inside and i.dtype in FLOATING and i.dtype not in found:
                made = recording.events[i.event].module if 0 <= i.event < len(recording.events) else ""
                if i.producer >= 0 or not made or made not in here:  # a factory inside is no input
                    found[i.dtype] = graph.origin(recording, i.event)
    return found


def _computed(recording: Recording, ops: Iterable[Op]) -> _Parts:
    """The floating dtypes of the results of what the module runs itself, casts and moves aside."""
    found: _Parts = {}
    for op in ops:
        for dtype in op.outputs if _computes(op) else ():
            if dtype in FLOATING and dtype not in found:
                found[dtype] = graph.ran(recording, op)
    return found


def _computes(op: Op) -> bool:
    return not is_move(op) and not is_cast(op) and any(i.dtype in FLOATING for i in op.inputs)


def _outputs(recording: Recording, inside: set[int]) -> _Parts:
    """The floating dtypes of what is made inside and read by a forward op outside."""
    found: _Parts = {}
    for number, op in enumerate(recording.ops):
        if number in inside or op.phase not in ("forward", "other"):
            continue
        for i in op.inputs:
            if i.producer in inside and i.dtype in FLOATING and i.dtype not in found:
                found[i.dtype] = graph.ran(recording, recording.ops[i.producer])
    return found


# ---------------------------------------------------------------- the text


def text(found: Mapping[str, Facts]) -> str:
    """The contract: the run's section, then one for each pattern of modules, sorted."""
    lines = [_HEAD]
    for name, values in sorted(_sections(found).items(), key=lambda item: (item[0] != RUN, item[0] != ROOT, item[0])):
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
    """The sections of a contract. Raises ContractError with the number of the line that is not one of a contract's."""
    sections: dict[str, dict[str, str]] = {}
    own: dict[str, str] | None = None
    for number, line in enumerate(written.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if section := _SECTION.fullmatch(line):
            own = sections.setdefault(section[1], {})
        elif own is not None and (fact := _FACT.fullmatch(line)):
            own[fact[1]] = fact[2]
        else:
            raise ContractError(f"line {number} is neither a [module] nor a fact: {line[:60]!r}")
    if RUN not in sections:
        raise ContractError(f"it has no section [{RUN}]")
    return sections


# ---------------------------------------------------------------- the check


def check(sections: Mapping[str, Mapping[str, str]], found: Mapping[str, Facts]) -> tuple[Breach, ...]:
    """What differs between a contract and the facts of a run, one breach for all modules that differ alike."""
    breaches: dict[tuple[str, str, str, str], list[str]] = {}
    causes: dict[tuple[str, str, str, str], Origin | None] = {}
    met: set[str] = set()
    for module, own in found.items():
        section = _section(sections, module)
        met |= {section} if section is not None else set()
        wanted = sections[section] if section is not None else {}
        for key in dict.fromkeys([*wanted, *own.values]):
            before, now = wanted.get(key, ""), own.values.get(key, "")
            if before != now:
                breach = (patterns.starred(module), key, before, now)
                breaches.setdefault(breach, []).append(module)
                causes.setdefault(breach, _cause(own, wanted, key))
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


def _cause(own: Facts, wanted: Mapping[str, str], key: str) -> Origin | None:
    """The event behind a fact that differs. What a module computes and gives follows from its parameters, autocast and
    inputs, an optimizer's state from the parameters: if those differ, too, theirs is the event."""
    for decides in _DECIDE.get(key, ()):
        if wanted.get(decides, "") != own.values.get(decides, ""):
            if decides == "autocast":  # it has no event of its own: the op ran under it
                break
            return _cause(own, wanted, decides)
    known, causes = wanted.get(key, "").split(", "), own.causes.get(key, {})
    return next((origin for part, origin in causes.items() if part not in known), next(iter(causes.values()), None))
