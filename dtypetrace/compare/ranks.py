"""The traces of several ranks as one: equal findings once, with their ranks, and what the ranks disagree about."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .. import graph
from ..records import Finding, Operand, Place, Recording, Results, Sources
from ..rules import patterns

_MOST_NAMED = 4
_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """What one rank wrote."""

    rank: int
    results: Results

    @property
    def recording(self) -> Recording:
        return self.results.recording


def merge(parts: Sequence[Part], world: int = 0) -> Results:
    """One result for all ranks. world: how many ranks there were; 0: as many as the parts say, or as there are.

    The recording is that of the first rank; its ``not_seen`` says which ranks are missing. Findings come in this order:
    what the ranks disagree about, what only some ranks have, what all have. Raises ValueError without parts, and for
    two parts of one rank.
    """
    if not parts:
        raise ValueError("there is nothing to merge")
    parts = sorted(parts, key=lambda p: p.rank)
    twice = [rank for rank, count in Counter(p.rank for p in parts).items() if count > 1]
    if twice:
        raise ValueError(f"two traces are of rank {twice[0]}")
    ranks = [p.rank for p in parts]
    world = world or max([ranks[-1] + 1, *(int(p.recording.meta.get("world", 0)) for p in parts)])
    disagreements = list(_disagreements(parts))
    partial, common = _grouped(parts, world)
    sources = _sources(parts)
    findings = tuple(replace(f, sources=sources) for f in (*disagreements, *partial, *common))
    first = parts[0].recording
    missing = [rank for rank in range(world) if rank not in ranks]
    unseen = (
        [f"{named(missing, world)}: there is no trace of {'it' if len(missing) == 1 else 'them'}"] if missing else []
    )
    unseen += dict.fromkeys(reason for p in parts for reason in p.recording.not_seen)
    meta = {**first.meta, "world": world, "ranks": ", ".join(map(str, ranks))}
    return Results(replace(first, sources=sources, not_seen=tuple(unseen), meta=meta), findings)


def named(ranks: Sequence[int], world: int) -> str:
    """Ranks in words.

    >>> named([1], 4), named([0, 1, 2, 5], 8), named([0, 1], 2)
    ('rank 1', 'ranks 0 to 2, 5', 'all 2 ranks')
    """
    if len(ranks) == world:
        return f"all {world} ranks"
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    words = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(words)}"


def _sources(parts: Sequence[Part]) -> Sources:
    lines: dict[str, dict[str, str]] = {}
    begins: dict[str, dict[str, int]] = {}
    for p in reversed(parts):
        for file, own in p.recording.sources.lines.items():
            lines.setdefault(file, {}).update(own)
        for file, starts in p.recording.sources.begins.items():
            begins.setdefault(file, {}).update(starts)
    return Sources(lines, begins)


# ---------------------------------------------------------------- equal findings


def _grouped(parts: Sequence[Part], world: int) -> tuple[list[Finding], list[Finding]]:
    """Findings that some ranks have, and those that all have; each once, as the first rank has it."""
    groups: dict[_Key, list[tuple[int, Finding]]] = {}
    for p in parts:
        own: Counter[_Key] = Counter()
        for f in p.results.findings:
            key = _same(f)
            own[key] += 1
            groups.setdefault((*key, own[key]), []).append((p.rank, f))
    partial: list[Finding] = []
    common: list[Finding] = []
    for members in groups.values():
        ranks = [rank for rank, _ in members]
        found = replace(members[0][1], count=max(f.count for _, f in members))
        if len(ranks) == len(parts):
            common.append(found if world == 1 else _noted(found, f"on {named(ranks, world)}"))
        else:
            others = [p.rank for p in parts if p.rank not in ranks]
            partial.append(_noted(found, f"on {named(ranks, world)} only, not on {named(others, world)}"))
    return partial, common


def _noted(f: Finding, note: str) -> Finding:
    return replace(f, notes=(note, *f.notes))


def _same(f: Finding) -> _Key:
    """What two ranks' findings share that are one: not shapes, counts and measured numbers."""
    birth = f.flow[0].place if f.flow else Place()
    culprit = (f.culprit.name, f.culprit.dtype) if f.culprit else ()
    return f.code, f.kind, f.module, f.op, f.phase, culprit, (birth.file, birth.line), (f.site.file, f.site.line)


# ---------------------------------------------------------------- ranks that disagree


@dataclass(frozen=True, slots=True)
class _Seen:
    """The dtype of one thing on one rank, with the event that decided it and the place that used it."""

    dtype: str
    event: int
    place: int


_Table = Mapping[str, _Seen]


def _disagreements(parts: Sequence[Part]) -> Iterator[Finding]:
    """A finding for each set of parameters, gradients, collectives or entries of an optimizer's state that have other
    dtypes on other ranks."""
    reads: tuple[tuple[str, Callable[[Recording], _Table]], ...] = (
        ("parameter", _parameters),
        ("gradient", _gradients),
        ("collective", _collectives),
        *((("state", _state),) if _same_weights(parts) else ()),
    )
    for what, read in reads if _at_the_same_point(parts) else reads[1:]:
        tables = {p.rank: read(p.recording) for p in parts}
        alike: dict[tuple[tuple[int, str], ...], list[str]] = defaultdict(list)
        for name in dict.fromkeys(name for table in tables.values() for name in table):
            dtypes = tuple((rank, table[name].dtype) for rank, table in tables.items() if name in table)
            if len({dtype for _, dtype in dtypes}) > 1:
                alike[dtypes].append(name)
        for names in alike.values():
            yield _disagreement(what, names, {p.rank: p for p in parts}, tables)


def _same_weights(parts: Sequence[Part]) -> bool:
    """Whether all ranks made steps with the same weights; those of a pipeline hold others."""
    names = {frozenset(u.name for u in p.recording.updates) for p in parts}
    return len(names) == 1 and frozenset() not in names


def _at_the_same_point(parts: Sequence[Part]) -> bool:
    """Whether the parameters' dtypes can be compared: where they are sharded, they have another dtype while their
    module runs, so a rank that was stopped in the middle says nothing."""
    sharded = any(op.module and "allgather" in op.aten for p in parts for op in p.recording.ops)
    stopped = any(p.recording.meta.get("stopped") or any(r.left for r in p.recording.refused) for p in parts)
    return not sharded or not stopped and len({p.recording.meta.get("steps") for p in parts}) == 1


def _parameters(recording: Recording) -> _Table:
    return {p.name: _Seen(p.dtype, p.event, _place(recording, p.event)) for p in recording.parameters}


def _gradients(recording: Recording) -> _Table:
    return {u.name: _Seen(u.gradient_dtype, u.gradient_event, u.place) for u in recording.updates if u.gradient_dtype}


def _state(recording: Recording) -> _Table:
    """Whether there is a loss scaler, and the optimizers' state."""
    check = graph.scaler_check(recording)
    active = "active" if graph.has_scaler(recording) else "off"
    found = {"the loss scaler": _Seen(active, -1, check.place if check is not None else -1)}
    for s in recording.state:
        key = f"{s.optimizer}'s {s.name}"
        before = f"{found[key].dtype}, " if key in found else ""
        found[key] = _Seen(before + s.dtype, s.event, s.place)
    return found


def _collectives(recording: Recording) -> _Table:
    """The tensors of each collective, in the order of their first calls at each line."""
    found: dict[str, _Seen] = {}
    counts: Counter[str] = Counter()
    for op in recording.ops:
        if not op.aten.startswith(("c10d.", "_c10d_functional.")) or not op.inputs:
            continue
        frame = graph.place_of(recording, op.place).user_frame
        at = f"{op.op.strip('_')} at {frame.file}:{frame.line}" if frame else op.op.strip("_")
        counts[at] += 1
        found[at if counts[at] == 1 else f"{at}, the {counts[at]}th"] = _Seen(
            ", ".join(dict.fromkeys(i.dtype for i in op.inputs)), op.inputs[0].event, op.place
        )
    return found


def _place(recording: Recording, event: int) -> int:
    return recording.events[event].place if 0 <= event < len(recording.events) else -1


def _disagreement(what: str, names: Sequence[str], parts: Mapping[int, Part], tables: Mapping[int, _Table]) -> Finding:
    name = names[0]
    by_dtype: dict[str, list[int]] = defaultdict(list)
    for rank, table in tables.items():
        if name in table:
            by_dtype[table[name].dtype].append(rank)
    ordered = sorted(by_dtype.items(), key=lambda item: len(item[1]))  # the fewest ranks first
    odd = ordered[0][1][0] if len(ordered[0][1]) < len(ordered[-1][1]) else ordered[-1][1][0]
    seen, recording = tables[odd][name], parts[odd].recording
    operands = tuple(
        _operand(index, name, tables[ranks[0]][name], parts[ranks[0]].recording)
        for index, (_, ranks) in enumerate(sorted(by_dtype.items(), key=lambda item: item[1][0] != odd))
    )
    shown = list(patterns.collapsed(names)) if what != "collective" else [n.rpartition("/")[2] for n in names]
    more = f" and {len(shown) - _MOST_NAMED} more" if len(shown) > _MOST_NAMED else ""
    sides = " and ".join(
        f"{dtype} on {named(ranks, 0)}" for dtype, ranks in sorted(by_dtype.items(), key=lambda i: i[1])
    )
    subject = f"the gradient of {shown[0]}" if what == "gradient" else shown[0]
    title = f"{subject} is {sides}"
    notes = [f"the same {what}s: {', '.join(shown[1:_MOST_NAMED])}{more}"] if len(shown) > 1 else []
    harm = "exchange tensors of different dtypes hang, fail or read wrong numbers"
    notes.append(f"ranks that {'step otherwise drift apart' if what == 'state' else harm}")
    clear = len(ordered[0][1]) < len(ordered[-1][1])
    return Finding(
        code="DT117",
        kind="rank-disagreement",
        severity="error",
        title=title,
        phase="other",
        op=what,
        aten=None,
        module=name.rpartition(".")[0] if what != "collective" else "",
        count=1,
        predicted=True,
        site=graph.place_of(recording, seen.place),
        operands=operands,
        culprit=operands[0] if clear else None,
        flow=graph.flow(recording, seen.event) if clear else (),
        fix=None,
        exception=None,
        notes=tuple(notes),
    )


def _operand(index: int, name: str, seen: _Seen, recording: Recording) -> Operand:
    return Operand(index, name, seen.dtype, (), "", None, graph.origin(recording, seen.event, None, name))
