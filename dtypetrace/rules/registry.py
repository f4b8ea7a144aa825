"""The rules for damage that torch does not refuse: one entry for each family of codes, in the order in which they
run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..records import Finding, Recording
from . import (
    averages,
    compiled,
    downcasts,
    integers,
    measured,
    narrow_losses,
    narrow_tables,
    no_gradient,
    plans,
    promotions,
    ranges,
    recasts,
    round_trips,
    spot_checks,
    training,
    wide_models,
)
from .making import tensor_of
from .run_facts import Run


@dataclass(frozen=True, slots=True)
class Rule:
    """One family of silent findings: the codes it can give, and the function that looks for them."""

    codes: tuple[str, ...]
    find: Callable[[Run], Iterable[Finding]]
    screens: bool = False
    """Whether it estimates what a reference in higher precision measures; not needed where a reference ran."""
    measures: bool = False
    """Whether it judges what the reference measured."""
    adds: bool = False
    """Whether its findings are left out where another rule has found the same: see :func:`known`."""

    def applies(self, recording: Recording) -> bool:
        """Whether a recording has what the rule judges, and nothing that judges it better."""
        if self.adds and recording.spot_checks:
            return True  # of what first ran when the reference's steps were over
        return not self.screens if recording.precisions else not self.measures

    def looks_further(self, recording: Recording) -> bool:
        """Whether the rule sees more of a run than a reference, which follows its first steps only."""
        return self.screens and not self.adds and bool(recording.precisions)


OF_VALUES = frozenset({"overflow", "underflow", "downcast", "lost-update", "precision-loss", "zero-gradient"})
"""Kinds of findings about damaged values."""


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
    Rule(("DT204", "DT301", "DT302", "DT303", "DT304", "DT305", "DT307", "DT308"), measured.find, measures=True),
    Rule(("DT301", "DT302"), ranges.find, screens=True),
    Rule(("DT301", "DT303", "DT304", "DT305"), _of(training.find), screens=True),
    Rule(("DT306",), _of(training.gradient_dtypes)),
    Rule(("DT305",), _of(no_gradient.find)),
    Rule(("DT307",), averages.find, screens=True),
    Rule(("DT401", "DT402", "DT403", "DT404", "DT405", "DT501", "DT502", "DT503"), _of(plans.find)),
    Rule(("DT201",), promotions.find),
    Rule(("DT201",), wide_models.find),
    Rule(("DT203",), downcasts.find),
    Rule(("DT202",), round_trips.find),
    Rule(("DT205",), recasts.find),
    Rule(("DT206", "DT207", "DT406"), compiled.find),
    Rule(("DT204",), narrow_tables.find, screens=True),
    Rule(("DT203", "DT204", "DT301"), integers.find),
    Rule(("DT308",), narrow_losses.find),
    Rule(("DT204", "DT301", "DT302", "DT307", "DT308"), spot_checks.find, screens=True, adds=True),
)
