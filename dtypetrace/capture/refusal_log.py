"""The refusals that were recorded, and which exception belongs to which refusal on its way out."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from textwrap import shorten
from typing import NamedTuple

from ..records import Refused

_LONGEST = 100
"""Characters of another exception's text that are kept."""


class _Raised(NamedTuple):
    """What is kept of an exception. The exception itself is not kept: its traceback would keep the model alive."""

    number: int
    text: str
    depth: int


def _depth(error: BaseException) -> int:
    """How many frames an exception has passed through."""
    depth, tb = 0, error.__traceback__
    while tb is not None:
        depth, tb = depth + 1, tb.tb_next
    return depth


class RefusalLog:
    """Distinct refusals with their counts."""

    def __init__(self) -> None:
        self.records: list[Refused] = []
        self._numbers: dict[tuple[object, ...], int] = {}
        self._raised: dict[int, _Raised] = {}
        """By the exception's id. Ids are used again, so the text and the depth show whether it is the same
        exception."""
        self.memories: dict[int, dict[int, Hashable]] = {}
        """Where the operands of each refusal were in memory, by index."""

    def add(self, key: tuple[object, ...], error: BaseException, make: Callable[[], Refused]) -> int:
        """Counts a refusal and returns its number. ``make`` is called for the first of its key."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.records)
            self.records.append(make())
        else:
            self.update(number, count=self.records[number].count + 1)
        self._raised[id(error)] = _Raised(number, str(error), _depth(error))
        return number

    def update(self, number: int, **changes: object) -> None:
        """Replaces fields of one record."""
        self.records[number] = replace(self.records[number], **changes)  # type: ignore[arg-type]  # any field

    def not_healed(self, error: BaseException, other: Exception) -> None:
        """With casts, the call of the refusal that an exception comes from raised another exception. If that was its
        first call, it is not healed."""
        number = self.number_of(error)
        if number is not None and self.records[number].count == 1:
            said = shorten(str(other), _LONGEST, placeholder="...")
            self.update(number, healed=False, casts=(), in_vain=f"{type(other).__name__}: {said}")

    def number_of(self, error: BaseException) -> int | None:
        """Number of the refusal that an exception comes from, None where none was recorded."""
        entry = self._raised.get(id(error))
        return entry.number if entry is not None and entry.text == str(error) else None

    def knows(self, error: BaseException) -> bool:
        """Whether an exception was already recorded in an inner call and is on its way out.

        A new exception with the same text can get the id of one that is gone. Raised at the same place, its traceback
        is not longer than the old one's was.
        """
        return self.number_of(error) is not None and _depth(error) > self._raised[id(error)].depth

    def replaced_by(self, error: BaseException, inner: int, text: str) -> None:
        """C++ replaced a recorded exception, given by its id and text, by another one."""
        entry = self._raised.get(inner)
        if entry is not None and entry.text == text:
            self._raised[id(error)] = _Raised(entry.number, str(error), 0)

    def ended_by(self, error: BaseException, look: Callable[[BaseException], None]) -> tuple[BaseException, int] | None:
        """The exception left the block: its refusal is the one that ended the run. ``look`` records an exception that
        is not known. Returns the exception that torch raised, and the number of its refusal, where they are known."""
        chain: BaseException | None = error
        seen: set[int] = set()
        while chain is not None and id(chain) not in seen:
            seen.add(id(chain))
            if self.number_of(chain) is None:
                look(chain)
            number = self.number_of(chain)
            if number is not None:
                self.update(number, left=True)
                return chain, number
            chain = chain.__cause__ or chain.__context__
        # an interpreter in C++ (TorchScript) raises an exception of its own, with or without the text
        text = str(error)
        for entry in reversed(self._raised.values()):
            if entry.text in text or "TorchScript interpreter" in text:
                self.update(entry.number, left=True)
                break
        return None
