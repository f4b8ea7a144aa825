"""The silent changes of dtype in a run (DT2xx): the rules that look for what nothing refused."""

from __future__ import annotations

from ..records import Finding, Recording
from . import downcasts, narrow_tables, promotions, round_trips
from .silent import Run


def find(recording: Recording) -> list[Finding]:
    """Every silent change of a recording, as findings."""
    run = Run(recording)
    return [f for rule in (promotions, downcasts, round_trips, narrow_tables) for f in rule.find(run)]
