"""The rules for damage that torch does not refuse: one entry for each family of codes, in the order in which they
run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..records import Finding, Recording
from ..tables.codes import KINDS, OF_VALUES
from . import (
    asked,
    averages,
    compiled,
    decisions,
    downcasts,
    integers,
    lost_copies,
    made_again,
    measured,
    narrow_tables,
    no_gradient,
    phases,
    plans,
    promotions,
    quantised,
    ranges,
    recasts,
    round_trips,
    scaled_gradients,
    training,
)
from .run_facts import Run
from .silent_findings import tensor_of

SAMPLED, EVERY_CALL, CLOSEST = range(3)
"""The looks at values: a few small ops in higher precision; all calls, each by itself; and steps that a reference
followed. Everything that a recording holds of dtypes is seen as closely as can be, too."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One family of silent findings: the codes it can give, and the function that looks for them."""

    codes: tuple[str, ...]
    find: Callable[[Run], Iterable[Finding]]
    look: int = CLOSEST
    """How closely it looks at values: its findings are left out where a closer look has named the same line."""

    @property
    def of_values(self) -> bool:
        """Whether it gives findings about damaged values."""
        return any(KINDS.get(code) in OF_VALUES for code in self.codes)


def known(finding: Finding, others: Iterable[Finding]) -> bool:
    """Whether a warning about values names the line where a finding is met, or where its tensor got its dtype."""
    lines = _lines(finding)
    return any(f.severity != "note" and f.kind in OF_VALUES and lines & _lines(f) for f in others)


def _lines(finding: Finding) -> set[tuple[str, int]]:
    frames = (*finding.site.stack[:1], *tensor_of(finding))
    return {(frame.file, frame.line) for frame in frames}


def _of(find: Callable[[Recording], Iterable[Finding]]) -> Callable[[Run], Iterable[Finding]]:
    """Adapts a rule that only needs the recording."""
    return lambda run: find(run.recording)


RULES: tuple[Rule, ...] = (
    Rule(("DT204", "DT301", "DT302", "DT303", "DT304", "DT305", "DT307", "DT308"), measured.find),
    Rule(("DT301", "DT302"), ranges.find, EVERY_CALL),
    Rule(("DT301", "DT303", "DT304", "DT305"), training.find, EVERY_CALL),
    Rule(("DT306",), _of(training.gradient_dtypes)),
    Rule(("DT305",), _of(no_gradient.find)),
    Rule(("DT307",), averages.find, EVERY_CALL),
    Rule(("DT307",), made_again.find, EVERY_CALL),
    Rule(("DT401", "DT402", "DT403", "DT404", "DT405", "DT501", "DT502", "DT503"), _of(plans.find)),
    Rule(("DT504",), scaled_gradients.find),
    Rule(("DT309", "DT407", "DT408", "DT409", "DT410", "DT505"), asked.find),
    Rule(("DT201",), promotions.find),
    Rule(("DT203",), downcasts.find),
    Rule(("DT202",), round_trips.find),
    Rule(("DT205",), recasts.find),
    Rule(("DT206", "DT207", "DT406"), compiled.find),
    Rule(("DT204",), narrow_tables.find, EVERY_CALL),
    Rule(("DT204",), decisions.coarse_draws),
    Rule(("DT308",), phases.find),
    Rule(("DT304",), lost_copies.find),
    Rule(("DT203", "DT204", "DT301", "DT307"), integers.find),
    Rule(("DT203",), quantised.find),
    Rule(("DT204", "DT301", "DT302", "DT307", "DT308"), measured.sampled, SAMPLED),
)
