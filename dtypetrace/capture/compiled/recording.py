"""The ledger as records, when a trace ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...records import Frame
from ...records.compiled import Region
from ...tables.dtypes import REAL
from ..stacks import Places, file_named
from . import eager, entries
from .ledger import Captured, Ledger, Refuses, complete, kept_going

_Stack = tuple[tuple[str, int, str], ...]
SECONDS = 60.0
"""With no further graph from torch's cache is begun after that time."""


class Reading:
    """Turns a ledger into records. Made while the places still grow; :meth:`regions` may be called later."""

    def __init__(self, ledger: Ledger, places: Places, is_user: Callable[[str], bool]) -> None:
        self._ledger = ledger
        self._known: dict[_Stack, int] = {}
        for captured in ledger.captured:
            for node in captured.nodes:
                frames = [
                    Frame(file_named(file), line, function, is_user(file))
                    for file, line, function in node.stack
                    if not places.hidden(file)
                ]
                self._known[node.stack] = places.given(tuple(frames)) if frames else -1

    def _place(self, stack: _Stack) -> int:
        return self._known.get(stack, -1)

    def regions(self) -> tuple[Region, ...]:
        """All regions that were compiled; equal ones once."""
        refuses = self._ledger.refuses
        complete(self._ledger, SECONDS)
        found: dict[Region, None] = {}
        for captured in self._ledger.captured:
            with kept_going("a region", self._ledger):
                region = entries.region(captured, self._place)
                found[_with_refusals(region, captured, refuses) if refuses is not None else region] = None
        return tuple(found)


def _with_refusals(region: Region, captured: Captured, refuses: Refuses) -> Region:
    if not captured.kept.whole or len({n.dtype for n in captured.nodes} & REAL) < 2:
        return region
    refused = eager.refused(captured.kept, refuses)
    named = [n for n in captured.nodes if n.op not in ("input", "constant")]
    steps = tuple(
        replace(step, refused=refused[n.name].op, given=refused[n.name].dtypes) if n.name in refused else step
        for step, n in zip(region.steps, named)
    )
    return replace(region, steps=steps)
