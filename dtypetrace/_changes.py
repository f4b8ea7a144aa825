"""The silent changes of dtype in a run (DT2xx): the rules that look for what nothing refused."""

from __future__ import annotations

from . import _downcasts, _narrow_tables, _promotions, _roundtrips
from ._silent import Run
from .records import Finding, Recording


def find(recording: Recording) -> list[Finding]:
    """Every silent change of a recording, as findings."""
    run = Run(recording)
    return [f for rule in (_promotions, _downcasts, _roundtrips, _narrow_tables) for f in rule.find(run)]
