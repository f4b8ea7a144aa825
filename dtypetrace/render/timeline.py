"""The dtype timeline: all distinct ops on one axis, in the order in which they first ran, a lane for each phase.

Above the lanes: where findings are, and the bytes that later ops still use, by dtype.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from ..records import MOST_STEPS, Finding, Recording
from ..tables.operators import result_bytes
from . import listings
from .action import size
from .listings import OpRow, family

NAMES = {
    "f64": "float64",
    "f32": "float32",
    "bf16": "bfloat16",
    "f16": "float16",
    "f8": "float8",
    "other": "integers and others",
    "": "no tensor",
}
PHASES = "init", "outside", "forward", "recompute", "backward", "optimizer"
COLUMNS = 200
_HEIGHT = 40
_PEAK = 60
"""Height of the drawing of bytes."""
_MOST_MARKS = 12


@dataclass
class Strip:
    """One phase: its drawing, and the same in words."""

    phase: str
    ops: int
    calls: int
    drawing: str
    words: str
    shares: list[tuple[str, int]]
    """(family, percent of the ops), the largest first."""


@dataclass(frozen=True)
class Mark:
    """Where a finding is on the axis, in percent; ``more``: findings at the same spot besides this one."""

    anchor: str
    code: str
    title: str
    severity: str
    at: float
    more: int = 0


@dataclass(frozen=True)
class StepLane:
    """The optimizer steps in which the same ops ran: those ops drawn, and as ranges of their numbers, ``0-59 80-99``.
    ``union``: each of them ran in one of the steps or more."""

    label: str
    ops: int
    drawing: str
    ran: str
    union: bool


@dataclass
class Timeline:
    """Everything on the axis. ``ops``: how many distinct ops it has, ``columns``: into how many it is cut."""

    ops: int = 0
    columns: int = 0
    strips: list[Strip] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    steps: list[StepLane] = field(default_factory=list)
    live: str = ""
    """The drawing of the bytes that later ops still use; empty where no shapes were recorded."""
    live_words: str = ""


def timeline(recording: Recording, rows: Sequence[OpRow], findings: Sequence[tuple[str, Finding]] = ()) -> Timeline:
    """The timeline of a recording; ``findings`` come with the names of their anchors."""
    if not rows:
        return Timeline()
    live, words = _live(recording, min(COLUMNS, len(rows)))
    inside: dict[int, Counter[str]] = {}
    for made in listings.inside_compiled(recording):
        inside.setdefault(made.op, Counter())[family(made.dtype)] += 1
    return Timeline(
        len(rows),
        min(COLUMNS, len(rows)),
        strips(rows, inside),
        _marks(recording, findings, len(rows)),
        step_lanes(recording, rows, inside),
        live,
        words,
    )


# ---------------------------------------------------------------- lanes


def strips(
    rows: Sequence[OpRow], inside: Mapping[int, Counter[str]] = MappingProxyType({}), *, ops: int = 0, run: str = ""
) -> list[Strip]:
    """One strip for each phase that ran, all with the same axis; each column is split by the dtypes in it. inside: by
    number of an op, how many operators of each family the compiled code has that it stands for. ops: how many the axis
    has, if not just these. run: which of two runs this is."""
    made = []
    phases = listings.phases(rows)
    for phase in PHASES:
        own = [r for r, shown in zip(rows, phases) if shown == phase]
        counted = _families(own, inside)
        if set(counted) - {""}:  # what makes no tensor has no dtype to draw
            shares = [(f, round(100 * n / counted.total())) for f, n in counted.most_common()]
            words = ", ".join(f"{share}% {NAMES[f]}" for f, share in shares if share)
            made.append(
                Strip(
                    phase,
                    len(own),
                    sum(r.count for r in own),
                    _lane(f"{phase} {run}".strip(), own, ops or len(rows), words, inside),
                    words,
                    shares,
                )
            )
    return made


def _families(rows: Iterable[OpRow], inside: Mapping[int, Counter[str]]) -> Counter[str]:
    """How many ops of each family some rows are; those of compiled code instead of the op that stands for it."""
    counted: Counter[str] = Counter()
    for row in rows:
        counted.update(inside.get(row.number) or [family(row.outputs[0]) if row.outputs else ""])
    return counted


class _Bars:
    """Bars of a drawing by family: neighbours of the same height are one."""

    def __init__(self) -> None:
        self.paths: dict[str, list[str]] = {}
        self._open: dict[str, list[int]] = {}

    def column(self, number: int, standing: dict[str, tuple[int, int]]) -> None:
        """The bars of one column: (top, height) of each family."""
        for name in list(self._open):
            if standing.get(name) != tuple(self._open[name][1:]):
                self._close(name, number)
        for name, (top, tall) in standing.items():
            self._open.setdefault(name, [number, top, tall])

    def _close(self, name: str, end: int) -> None:
        begin, top, tall = self._open.pop(name)
        self.paths.setdefault(name, []).append(f"M{begin} {top}h{end - begin}v{tall}h{begin - end}z")

    def drawn(self, columns: int) -> str:
        self.column(columns, {})
        return "".join(f'<path class="s {name or "none"}" d="{"".join(p)}"/>' for name, p in self.paths.items())


def _stacked(amounts: Counter[str], height: int, whole: int) -> dict[str, tuple[int, int]]:
    """Where each family begins and how tall it is in a stack, if the whole amount has this height."""
    top, before, standing = 0, 0, {}
    for name in NAMES:
        if amounts[name]:
            before += amounts[name]
            standing[name] = (top, round(height * before / whole) - top)
            top += standing[name][1]
    return standing


def _lane(
    name: str, rows: Sequence[OpRow], ops: int, words: str, inside: Mapping[int, Counter[str]], *, is_step: bool = False
) -> str:
    """The drawing of the ops of one phase, or of one step, on an axis of so many ops."""
    bars = _Bars()
    casts: list[int] = []
    columns = min(COLUMNS, ops)
    at = 0
    for column in range(columns):
        begin = at
        while at < len(rows) and rows[at].number < (column + 1) * ops // columns:
            at += 1
        own = rows[begin:at]
        counted = _families(own, inside)
        bars.column(column, _stacked(counted, _HEIGHT, counted.total()))
        if any(r.change for r in own) and not is_step:
            casts.append(column)
    ticks = "".join(f"M{c} {_HEIGHT + 3}h{columns / 400:.3g}v5h-{columns / 400:.3g}z" for c in casts)
    tick = f'<path class="tick" d="{ticks}"/>' if ticks else ""
    kind = 'class="strip step"' if is_step else f'class="strip" data-phase="{name}"'
    height = _HEIGHT if is_step else _HEIGHT + 8
    return (
        f'<svg {kind} role="img" aria-label="{name}: {words}" viewBox="0 0 {columns} {height}" '
        f'preserveAspectRatio="none">{bars.drawn(columns)}{tick}</svg>'
    )


# ---------------------------------------------------------------- findings


def _marks(recording: Recording, findings: Sequence[tuple[str, Finding]], ops: int) -> list[Mark]:
    found: dict[int, Mark] = {}
    for anchor, f in findings:
        number = min(_number(recording, f), ops)
        if number < 0:
            continue
        column = round(100 * number / ops)
        if column in found:
            there = found[column]
            found[column] = Mark(there.anchor, there.code, there.title, there.severity, there.at, there.more + 1)
        elif len(found) < _MOST_MARKS:
            found[column] = Mark(anchor, f.code, f.title, f.severity, round(100 * number / ops, 2))
    return sorted(found.values(), key=lambda mark: mark.at)


def _number(recording: Recording, f: Finding) -> int:
    """Before which op a finding is: a refused call's own count, else the first op at its place; -1 where neither is
    known."""
    for r in recording.refused:
        place = listings.place(recording, r.place)
        if (r.op, r.phase, place.stack[:1]) == (f.op, f.phase, f.site.stack[:1]) and r.after >= 0:
            return r.after
    there = [n for n, op in enumerate(recording.ops) if listings.place(recording, op.place) == f.site]
    return next((n for n in there if recording.ops[n].op == f.op), there[0] if there and f.site.stack else -1)


# ---------------------------------------------------------------- steps


def step_lanes(
    recording: Recording, rows: Sequence[OpRow], inside: Mapping[int, Counter[str]] = MappingProxyType({})
) -> list[StepLane]:
    """A lane for all watched steps in which the same ops ran; none without a step, or in traces of older versions."""
    made: list[StepLane] = []
    begins = next((r.number for r in rows if r.module), 0)  # what runs before the first module makes the model
    for first, _, last, count, *pairs in (end for end in recording.step_ends if len(end) > 3):
        parts = [(max(a, begins), b) for a, b in zip(pairs[::2], pairs[1::2]) if b > begins]
        own = [row for a, b in parts for row in rows[a:b]]
        name, ran = _steps(first, last, count), " ".join(f"{a}-{b - 1}" for a, b in parts)
        drawing = _lane(name, own, len(rows), f"{len(own):,} distinct ops", inside, is_step=True)
        made.append(StepLane(name, len(own), drawing, ran, len(made) == MOST_STEPS - 1 and count > 1))
    return made


def _steps(first: int, last: int, count: int) -> str:
    if count == 1:
        return f"step {first:,}"
    return f"steps {first:,} to {last:,}" if last - first + 1 == count else f"{count:,} steps, {first:,} to {last:,}"


# ---------------------------------------------------------------- bytes


def _live(recording: Recording, columns: int) -> tuple[str, str]:
    """The bytes of results that a later op still uses, by dtype, as a drawing and in words.

    When a tensor is freed is not recorded: its last use is. Each op counts with its first call.
    """
    ops = recording.ops
    if not any(op.shape for op in ops):
        return "", ""
    most, at = _most_by_column(recording, columns)
    peak = max((sum(c.values()) for c in most), default=0)
    if peak <= 0:
        return "", ""
    bars = _Bars()
    for column, counted in enumerate(most):
        standing = _stacked(counted, _PEAK, peak)
        bars.column(column, {name: (_PEAK - top - tall, tall) for name, (top, tall) in standing.items() if tall})
    highest = max(range(columns), key=lambda n: sum(most[n].values()))
    parts = [f"{size(n)} {NAMES[name]}" for name, n in most[highest].most_common() if n]
    total = parts[0] if len(parts) == 1 else f"{size(peak)} ({', '.join(parts)})"
    words = f"at most {total}, at op {at[highest]:,}"
    drawing = (
        f'<svg class="strip live" role="img" aria-label="Bytes that later ops still use: {words}" '
        f'viewBox="0 0 {columns} {_PEAK}" preserveAspectRatio="none">{bars.drawn(columns)}</svg>'
    )
    return drawing, words


def _most_by_column(recording: Recording, columns: int) -> tuple[list[Counter[str]], list[int]]:
    """For each column the bytes by family where they were most, and at which op that was."""
    ops = recording.ops
    ends = _last_uses(recording)
    leaving: dict[int, list[tuple[str, int]]] = {}
    now: Counter[str] = Counter()
    most: list[Counter[str]] = [Counter() for _ in range(columns)]
    at = [0] * columns
    for number, op in enumerate(ops):
        if op.outputs and op.effect not in ("view", "write") and ends[number] > number:
            amount = (family(op.outputs[0]), result_bytes(op))
            now[amount[0]] += amount[1]
            leaving.setdefault(ends[number], []).append(amount)
        column = min(columns - 1, number * columns // len(ops))
        if sum(now.values()) > sum(most[column].values()):
            most[column], at[column] = Counter(now), number
        for name, amount_of in leaving.pop(number, ()):
            now[name] -= amount_of
    return most, at


def _last_uses(recording: Recording) -> list[int]:
    """The last op that uses each op's result, or a view of it."""
    ends = list(range(len(recording.ops)))
    for number in range(len(recording.ops) - 1, -1, -1):
        op = recording.ops[number]
        last = ends[number] if op.effect in ("view", "write") else number
        for operand in op.inputs:
            if 0 <= operand.producer < number:
                ends[operand.producer] = max(ends[operand.producer], last)
    return ends
