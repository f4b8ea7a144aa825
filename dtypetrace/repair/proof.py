"""The proof that a patch repairs a program: the values of two runs, compared."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from .. import rules
from ..records import Finding, Recording, Update
from ..records.ledger import Numbers, Pass
from ..tables.dtypes import DTYPES, FLOATING, narrower
from .runs import Outcome

TOLERANCE = {"float8_e5m2": 0.5, "float8_e4m3fn": 0.3, "bfloat16": 0.1, "float16": 0.02, "float32": 1e-3}
"""Relative tolerance, by the coarsest dtype that is used: about ten roundings of it, because the two runs cast at
different places."""
_FINEST = 1e-6
"""For runs in float64 only, whose sums may still be computed in another order."""
_ROUNDED = 1.001
"""Room for the rounding of a difference between two printed numbers."""
_LARGEST = 32.0
"""Of a tensor with a larger norm (a thousand ones), such as unscaled data, one rounding may be a number that counts."""
_FEW = 8
"""Of fewer sampled numbers, the share that moved says nothing."""
_MEASURES: tuple[Literal["value", "norm"], ...] = ("value", "norm")


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of a repair. ``proven``: the patched program ran without a refusal, and as the healed one did."""

    proven: bool
    why: str
    rounds: int = 0


def tolerance(recording: Recording) -> float:
    """The largest relative difference between two runs whose values agree."""
    seen = {dtype for op in recording.ops for dtype in (*op.outputs, *(i.dtype for i in op.inputs))} & FLOATING
    return max((TOLERANCE.get(dtype, _FINEST) for dtype in seen), default=_FINEST)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One kind of numbers that two runs both have: how many there are, and their largest relative difference."""

    count: int
    named: str
    apart: float

    @property
    def what(self) -> str:
        return f"{self.count} {self.named}"


def evidence(healed: Outcome, patched: Outcome) -> list[Evidence]:
    """Everything by which two runs can be compared; empty where there is nothing.

    Training is compared by its backward passes and by what the optimizer did to the weights, inference by the outputs
    of modules. What the program's file holds or prints counts where there is none of these.
    """
    a, b = healed.ledger, patched.ledger
    found = [
        *_evidence(len(a["passes"]), "backward pass{es} (loss and gradient norm)", compare(a["passes"], b["passes"])),
        *_evidence(*_steps(healed.recording, patched.recording)),
        *_outputs(a["outputs"], b["outputs"]),
    ]
    if not a["passes"]:
        found += _outputs(a["graphed"], b["graphed"])
    if found:
        return found
    same = [name for name in a["variables"] if name in b["variables"]]
    pairs = [(a["variables"][name], b["variables"][name]) for name in same]
    found = [
        *_evidence(len(same), "tensor{s} that the program holds at its end", _numbers(pairs)),
        *_evidence(*_printed(a["printed"], b["printed"], _noise(healed, patched, pairs))),
    ]
    return found


def _outputs(one: list[Numbers], other: list[Numbers]) -> Iterator[Evidence]:
    yield from _evidence(len(one), "module output{s}", _numbers(zip(one, other)))


def _evidence(count: int, what: str, apart: float | None) -> Iterator[Evidence]:
    if apart is not None:
        plural = what.replace("{es}", "es" if count != 1 else "").replace("{s}", "s" if count != 1 else "")
        yield Evidence(count, plural, apart)


def compare(healed: Sequence[Pass], patched: Sequence[Pass]) -> float | None:
    """The largest relative difference between two runs' values and gradient norms, over the passes that both made; None
    where there are none."""
    pairs = [(a[key], b[key]) for a, b in zip(healed, patched) for key in _MEASURES]
    return max((_apart(x, y) for x, y in pairs if x is not None and y is not None), default=None)


def _numbers(pairs: Iterable[tuple[Numbers, Numbers]]) -> float | None:
    """The largest difference between two tensors of each pair, relative to the norm of the larger one."""
    return max((max(_apart(a["norm"], b["norm"]), _along(a, b)) for a, b in pairs), default=None)


def _along(a: Numbers, b: Numbers) -> float:
    size = max(a["norm"], b["norm"])
    if not size or not math.isfinite(size):
        return _apart(a["along"], b["along"])
    return abs(a["along"] - b["along"]) / size


def _steps(healed: Recording, patched: Recording) -> tuple[int, str, float | None]:
    """What the optimizers' steps did to each weight: its mean change in a step.

    A weight in a narrow dtype moves in roundings of its own size: a difference of one rounding is none.
    """
    pairs = [(a, b) for a, b in _pairs(healed, patched) if a.steps and b.steps]
    return (
        len(pairs),
        "weight{s} after the optimizer's steps",
        max((_moved_apart(a, b) for a, b in pairs), default=None),
    )


def _pairs(healed: Recording, patched: Recording) -> Iterator[tuple[Update, Update]]:
    """The weights of two runs that are the same one. A program may train several models of one kind one after the
    other: of weights that are called alike, the first is the first."""
    known: dict[tuple[object, ...], list[Update]] = {}
    for u in healed.updates:
        known.setdefault(_key(u), []).append(u)
    for u in patched.updates:
        if alike := known.get(_key(u)):
            yield alike.pop(0), u


def _key(update: Update) -> tuple[object, ...]:
    return update.optimizer, update.name, update.shape, update.place


def _moved_apart(a: Update, b: Update) -> float:
    rounding = max(DTYPES[u.dtype].rounding for u in (a, b)) * max(a.magnitude, b.magnitude)
    return 0.0 if abs(a.change - b.change) <= rounding else _apart(a.change, b.change)


# not in a name: of "0.weight" no digit is a number that a program computed
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?!\w|\.\w)|\b(?:nan|inf)\b")


def _noise(healed: Outcome, patched: Outcome, held: Sequence[tuple[Numbers, Numbers]]) -> float:
    """The size up to which a printed number may be rounding alone, as an error that a program measures is: one rounding
    of the norm of each tensor that it holds, or, where it holds none, of the largest number that it prints, and of one
    at most. 0 in 16 bits, whose roundings are no small numbers."""
    coarsest = max(tolerance(healed.recording), tolerance(patched.recording))
    if coarsest > TOLERANCE["float32"]:
        return 0.0
    dtype = DTYPES["float32" if coarsest == TOLERANCE["float32"] else "float64"]
    printed = (_NUMBER.findall(run.ledger["printed"]) for run in (healed, patched))
    largest = [max((abs(float(n)) for n in found if _last_digit(n)), default=0.0) for found in printed]
    norms = [n["norm"] for pair in held for n in pair] or [1.0, *largest]
    return dtype.rounding * min(_LARGEST, *norms)


def _printed(healed: str, patched: str, noise: float) -> tuple[int, str, float | None]:
    """The numbers that two runs print. A number is as exact as its last digit; other text must be the same. Of numbers
    that differ, those that are rounding alone in both runs say nothing."""
    one, other = _NUMBER.findall(healed), _NUMBER.findall(patched)
    what = "number{s} that the program prints"
    if not one or not other or _words(healed) != _words(patched):
        return len(one), what, math.inf if one and other else None
    apart = [(max(abs(float(x)), abs(float(y))), _digits_apart(x, y)) for x, y in zip(one, other)]
    said = [share for size, share in apart if not share or not size <= noise]
    return len(said), what, max(said, default=None)


def _words(text: str) -> list[str]:
    """A printed text without its numbers, and without the dtypes' names, which a patch may change."""
    return re.sub(r"\b(?:torch\.)?(?:b?float|half|double)\d*\b|, dtype=", "", _NUMBER.sub("", text)).split()


def _digits_apart(x: str, y: str) -> float:
    a, b = float(x), float(y)
    last = max(_last_digit(x), _last_digit(y))
    return 0.0 if abs(a - b) <= last * _ROUNDED else _apart(a, b)


def _last_digit(number: str) -> float:
    """The size of a printed number's last digit; 0 for an integer.

    >>> _last_digit("2.50"), _last_digit("3e-05"), _last_digit("12")
    (0.01, 1e-05, 0.0)
    """
    mantissa, _, power = number.lower().partition("e")
    places = len(mantissa.partition(".")[2])
    return float(f"1e{int(power or 0) - places}") if places or power else 0.0


def finite(outcome: Outcome) -> int:
    """How many numbers a run computed, if all of them are finite, else 0."""
    ledger = outcome.ledger
    tensors = [*ledger["outputs"], *ledger["graphed"], *ledger["variables"].values()]
    found = [n for p in ledger["passes"] for n in (p["value"], p["norm"]) if n is not None] + [
        t["norm"] for t in tensors
    ]
    return len(found) if all(map(math.isfinite, found)) else 0


def learns_less(healed: Recording, patched: Recording) -> list[str]:
    """The weights of which the optimizer changes less than half as many numbers as in the healed run."""
    known = ((a, b) for a, b in _pairs(healed, patched) if min(a.steps, b.steps) and min(a.reached, b.reached) >= _FEW)
    return [b.name for a, b in known if b.moved / b.reached < a.moved / a.reached / 2]


def narrowed(before: Recording, after: Recording) -> list[str]:
    """The weights that an optimizer trains and that are narrower in a patched run, in a dtype that no other trained
    weight had."""
    if not after.meta.get("trains"):
        return []
    stepped, trained = _stepped(before), _trained(before)
    return [
        name
        for name, dtype in _trained(after).items()
        if narrower(dtype, trained.get(name)) and dtype not in (stepped if name in stepped else trained).values()
    ]


def _stepped(recording: Recording) -> dict[str, str]:
    """The dtype of each weight that an optimizer steps; no module may hold it."""
    return {u.name: u.dtype for u in recording.updates}


def _trained(recording: Recording) -> dict[str, str]:
    """The dtype of each weight that is trained, as far as that is known: a step may not have been reached."""
    return {p.name: p.dtype for p in recording.parameters if p.trained} | _stepped(recording)


@dataclass(frozen=True)
class Touched:
    """What a patch changes: lines, as (file, line), and the dtypes that it casts to; "" for one that is not known."""

    lines: frozenset[tuple[str, int]]
    dtypes: frozenset[str]

    def leads_to(self, finding: Finding) -> bool:
        """Whether a finding leads over a changed line, and is about a dtype that the patch writes there: what else is
        found in the part that now runs is the program's own."""
        born = [finding.culprit.origin.place] if finding.culprit is not None else []
        frames = (place.user_frame for place in (finding.site, *born, *(step.place for step in finding.flow)))
        over = any((frame.file, frame.line) in self.lines for frame in frames if frame is not None)
        about = {finding.culprit.dtype if finding.culprit is not None else "", *(step.to for step in finding.flow)}
        return over and ("" in self.dtypes or not about.isdisjoint(self.dtypes))


def new_findings(before: Recording, after: Recording, touched: Touched | None = None) -> list[str]:
    """The serious findings of a patched run, of a kind that the healed run had not; ``touched``: and to which what a
    patch changes leads."""
    known = {_sort(f) for f in rules.find(before)} | {"collision"}
    new = (f for f in rules.find(after) if f.severity != "note" and _sort(f) not in known)
    return [f"{f.code}: {f.title}" for f in new if touched is None or touched.leads_to(f)]


def _sort(finding: Finding) -> str:
    """What makes two findings alike: their kind; of settings, which setting it is."""
    return finding.code if finding.kind == "plan" else finding.kind


def _apart(x: float, y: float) -> float:
    if x == y or math.isnan(x) and math.isnan(y):
        return 0.0
    if not math.isfinite(x) or not math.isfinite(y):
        return math.inf
    return abs(x - y) / max(abs(x), abs(y))
