"""What compiled code that does otherwise than the program says costs, by the numbers of one call: those that it gave,
those that eager gives, and float64.

Different is not wrong. A finding stays a warning where compiled code is further from float64 than rounding explains and
than eager is; where two decisions about one value differ; and where a rounding that the program asks for is left out
and shows. Otherwise it is a note.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median

from ..records import Finding
from ..records.compiled import Graph, Measured, Node, Region, rounding
from ..tables.dtypes import HALF, REAL
from ..tables.english import percent as _percent

ONCE = "in the one call that was computed again"
_APART = 8
"""Roundings of a result's own dtype between compiled code and eager that are more than the order of sums."""


def percent(share: float) -> str:
    return _percent(share) if share else "0%"


@dataclass(frozen=True)
class Result:
    """A result of a region, or a decision in it."""

    graph: Graph
    node: Node
    measured: Measured

    @property
    def name(self) -> str:
        if "written" in self.node.ends:
            return "what it writes"
        if "returned" not in self.node.ends:
            return "what it saves for the backward"
        return "a gradient" if self.graph.phase == "backward" else "a result"


class Harm:
    """The numbers of one call of a region."""

    def __init__(self, region: Region) -> None:
        self._every = [Result(g, g.nodes[m.node], m) for g in region.graphs for m in g.measured]
        self._results = [r for r in self._every if not r.measured.decides]
        self.unit = rounding(n.dtype for g in region.graphs for n in g.nodes if n.dtype in HALF)
        self.known = region.measured

    @property
    def worst(self) -> Result | None:
        """The result of compiled code that is furthest from float64, of those that rounding does not explain."""
        far = [r for r in self._results if r.measured.is_far(self.unit)]
        return max(far, key=lambda r: (r.measured.lost - r.measured.eager_lost, r.measured.compiled), default=None)

    def judged(self, finding: Finding) -> Finding:
        """A warning with what it costs; a note where it costs nothing."""
        made = finding.culprit.dtype if finding.culprit is not None else ""
        whole = finding.code == "DT207" and made not in REAL  # what the program does with integers is not in the graph
        if not self._results or finding.severity != "warning" or whole:
            return finding
        said = next(self._costs(finding), "")
        if said:
            return replace(finding, notes=(*finding.notes, f"{ONCE}, {said}"))
        if not self.known:
            return finding
        return replace(finding, severity="note", notes=(*finding.notes, f"{ONCE}, it does no harm: {self.near()}"))

    def _costs(self, finding: Finding) -> Iterator[str]:
        if finding.code != "DT206":  # the graph that is computed again has the same dtypes
            yield from self._far_from_float64()
            return
        if (worst := self.worst) is not None:
            yield distance(worst)
        if finding.kind == "elided-cast":
            yield from self._unasked()
        if finding.kind == "saved-not-used":
            again = max((r.measured.twice for r in self._every), default=0.0)
            if again:
                yield f"{percent(again)} of the decisions of the backward are others than those of the forward"
        if finding.kind == "kept-wide-discontinuous":
            decided = [r.measured for r in self._every if r.measured.decides]
            most = max(decided, key=lambda m: m.compiled - m.eager, default=None)
            if most is not None and most.compiled > 2 * most.eager:
                eager = percent(most.eager)
                yield f"{percent(most.compiled)} of the decisions are others than in float64, in eager {eager}"

    def _far_from_float64(self) -> Iterator[str]:
        for r in sorted(self._results, key=lambda r: (-r.measured.lost, -r.measured.compiled)):
            if r.measured.lost:
                yield f"{percent(r.measured.lost)} of {r.name} is not finite; in float64 it is"
            elif r.measured.compiled > _APART * self.unit:
                yield f"{r.name} is {percent(r.measured.compiled)} of its size from float64"

    def _unasked(self) -> Iterator[str]:
        """Eager makes the roundings that the program asks for, so it is right."""
        apart = [r for r in self._results if r.measured.apart > _APART * rounding([r.node.dtype])]
        if apart:
            most = max(apart, key=lambda r: r.measured.apart)
            share = percent(most.measured.apart)
            yield f"{most.name} is {share} of its size from that of eager, which rounds as the program asks"

    def near(self) -> str:
        """How far the results are from float64, compiled and in eager."""
        compiled = median(r.measured.compiled for r in self._results)
        eager = median(r.measured.eager for r in self._results)
        nearer = "compiled code" if compiled < eager else "eager"
        nearer = f": {nearer} is nearer" if max(compiled, eager) > 2 * min(compiled, eager) else ""
        return (
            f"half of its results are within {percent(compiled)} of float64, in eager within {percent(eager)}{nearer}"
        )


def distance(result: Result) -> str:
    """How far a result is from float64, compiled and in eager."""
    m = result.measured
    if m.lost > m.eager_lost:
        eager = f"in eager {percent(m.eager_lost)}" if m.eager_lost else "eager's is, and float64's"
        return f"{percent(m.lost)} of {result.name} is not finite; {eager}"
    return (
        f"{result.name} is {percent(m.compiled)} of its size from float64, that of eager {percent(m.eager)}: "
        f"eager is nearer"
    )
