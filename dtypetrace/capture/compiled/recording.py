"""The ledger as records, when a trace ends."""

from __future__ import annotations

from collections.abc import Callable

from ...records import Frame
from ...records.compiled import Region
from ..stacks import Places, file_named
from . import entries
from .ledger import Ledger, kept_going

_Stack = tuple[tuple[str, int, str], ...]


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
        found: dict[Region, None] = {}
        for captured in self._ledger.captured:
            with kept_going("a region", self._ledger):
                found[entries.region(captured, self._place)] = None
        return tuple(found)
