"""What is known of each live tensor: which event decided its dtype, and which op made it.

A mark hangs on a tensor by weak reference, so marking keeps nobody alive and leaves no attribute on
the tensor (which ``torch.save`` and ``deepcopy`` would carry along). Following a dtype costs one
table look-up an op; steps are shared between identical events, so a loop adds none.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import NamedTuple

import torch

_DEEPEST = 24
_ROOM = 1024
"""So many marks may be of tensors that are gone."""


class RawRead(NamedTuple):
    """See :class:`dtypetrace.records.Read`."""

    dtype: torch.dtype
    place: int
    step: int
    frames_up: int


class RawStep(NamedTuple):
    """See :class:`dtypetrace.records.Step`; module is a number, dtypes are torch's."""

    how: str
    op: str
    place: int
    module: int
    source: tuple[torch.dtype, ...]
    to: torch.dtype
    parents: tuple[int, ...] = ()
    reads: tuple[RawRead, ...] = ()
    name: str = ""
    default: int = -1
    explicit: bool = False


class Ref(weakref.ref):
    """A weak reference of dtypetrace's: Python shares a plain one with the program, and torch refuses to swap tensors
    that the program holds weakly. See :func:`not_ours`."""

    __slots__ = ()


class Mark(Ref):
    """A weak reference to a tensor with what is known of it.

    value, kept: where numerics are on (``values``, ``increments``); was: the step before ``.data =``.
    """

    __slots__ = ("step", "op", "value", "kept", "was")


def not_ours(references: list[weakref.ref]) -> list[weakref.ref]:
    """Those weak references to a tensor that are not dtypetrace's."""
    return [reference for reference in references if not isinstance(reference, Ref)]


class Origins:
    """Marks of live tensors and the table of steps."""

    def __init__(self) -> None:
        self.marks: dict[
            int, Mark
        ] = {}  # by id; an entry whose tensor is gone stays until the id is used again, or sweep()
        self.room = _ROOM
        self.steps: list[RawStep] = []
        self._numbers: dict[RawStep, int] = {}
        self._gradients: dict[int, tuple[Ref, Ref]] = {}  # by the id of whose gradient it is

    def mark(self, tensor: torch.Tensor, step: int, op: int) -> Mark:
        # No callback: it would run in the middle of the program, where a Ctrl-C is delivered and lost ("Exception
        # ignored in"), and most ids are used again at once.
        mark = Mark(tensor)
        mark.step = step
        mark.op = op
        self.marks[id(tensor)] = mark
        self.tidy()
        return mark

    def swap(self, first: torch.Tensor, second: torch.Tensor) -> tuple[Mark | None, Mark | None]:
        """Exchanges what is known of two tensors whose contents were exchanged; gives their marks."""
        known = self.of(first), self.of(second)
        for tensor, mark in ((first, known[1]), (second, known[0])):
            self.marks.pop(id(tensor), None)
            if mark is not None:
                moved = self.marks[id(tensor)] = Mark(tensor)
                for name in Mark.__slots__:
                    if hasattr(mark, name):
                        setattr(moved, name, getattr(mark, name))
        return self.of(first), self.of(second)

    def tidy(self) -> None:
        """Sweeps where the table has doubled since, so that the cost is spread over the marks made in between."""
        if len(self.marks) > self.room:
            self.sweep()

    def sweep(self) -> None:
        """Drops the marks of tensors that are gone."""
        marks = self.marks
        for key, mark in list(marks.items()):
            if mark() is None and marks.get(key) is mark:
                marks.pop(key, None)  # another thread of the engine may have been faster
        self.room = 2 * len(marks) + _ROOM
        for key, (gradient, _) in list(self._gradients.items()):
            if gradient() is None:
                self._gradients.pop(key, None)

    def of(self, tensor: torch.Tensor) -> Mark | None:
        """The tensor's mark. An id that was reused is told by the weak reference."""
        mark = self.marks.get(id(tensor))
        return mark if mark is not None and mark() is tensor else None

    def gradient(self, gradient: torch.Tensor, owner: torch.Tensor) -> None:
        """A watched thread has read or written a tensor's ``.grad``."""
        known = self._gradients.get(id(owner))
        if known is None or known[0]() is not gradient or known[1]() is not owner:
            self._gradients[id(owner)] = Ref(gradient), Ref(owner)

    def gradients(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The gradients that watched threads have read or written, each with the tensor whose it is.

        Nobody's ``.grad`` is read for it: another thread's backward may be writing it, without the GIL.
        """
        for known in list(self._gradients.values()):
            gradient, owner = known[0](), known[1]()
            if gradient is not None and owner is not None:
                yield gradient, owner

    def step(self, step: RawStep) -> int:
        """Number of a step, one per distinct step.

        A stream that a loop widens again and again would grow a chain without end. The same event
        met above itself adds nothing to the story, so the earlier one is given back.
        """
        number = self._numbers.get(step)
        if number is not None:
            return number
        if step.parents:
            event = step[:6]
            above, depth = step.parents[0], 0
            while above >= 0:
                known = self.steps[above]
                if known[:6] == event:
                    return above
                depth += 1
                above = known.parents[0] if known.parents else -1
            if depth >= _DEEPEST:
                return step.parents[0]
        number = self._numbers[step] = len(self.steps)
        self.steps.append(step)
        return number

    def root(self, step: int) -> int:
        """The first step of a chain, following first parents."""
        while step >= 0 and self.steps[step].parents:
            step = self.steps[step].parents[0]
        return step

    def clear(self) -> None:
        self.marks.clear()
        self._gradients.clear()
