"""The stacks of modes of the calling thread: ours is put on and taken off, the others stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from . import private

Opened = tuple[list[Any], list[Any]]


class Stack:
    """One of the two stacks, by torch's functions for it."""

    def __init__(
        self, count: Callable[[], int], at: Callable[[int], Any], pop: Callable[[], Any], push: Callable[[Any], Any]
    ) -> None:
        self._count, self._at, self._pop = count, at, pop
        self.push = push

    def modes(self) -> list[Any]:
        """The modes that are on in this thread, outermost first."""
        return [self._at(i) for i in range(self._count())]

    def replace(self, modes: list[Any]) -> None:
        """Puts others on instead, outermost first."""
        while self._count():
            self._pop()
        for mode in modes:
            self.push(mode)

    def remove(self, mode: Any) -> None:
        """Takes the innermost occurrence of a mode off; others keep their order. It may be gone: an interrupt inside
        one of torch's own functions that had removed it for a moment loses it."""
        modes = self.modes()
        if modes and modes[-1] is mode:
            self._pop()
        elif mode in modes:
            del modes[max(i for i, other in enumerate(modes) if other is mode)]
            self.replace(modes)

    def end(self, mode: Any, before: list[Any], error: BaseException | None) -> None:
        """Takes every occurrence of a mode off. ``before``: the modes that were on before it; ``error``: the exception
        that ends the block.

        It may be gone, for two reasons. The program left another mode and torch popped the innermost instead (a
        generator that was dropped inside the block): that other one was below ours, the last of those that were there
        before. Or an interrupt came while torch had removed modes for a moment, and they never came back; then an error
        is leaving.
        """
        modes = self.modes()
        kept = [other for other in modes if other is not mode]
        if error is not None:
            kept = before if len(kept) <= len(before) else kept
        elif len(kept) == len(modes) and 0 < len(before) <= len(kept):
            del kept[len(before) - 1]
        if kept != modes:
            self.replace(kept)

    def insert(self, mode: Any, opened: list[Any]) -> list[Any]:
        """Puts a mode where it was when its trace was opened, and returns the modes below it.

        A mode that the program has put on since stays above: its end takes the innermost mode off, which must be its
        own. ``opened``: the modes that were on when the trace was opened.
        """
        modes, same = self.modes(), 0
        while same < min(len(modes), len(opened)) and modes[same] is opened[same]:
            same += 1
        if same == len(modes):
            self.push(mode)
        else:
            self.replace([*modes[:same], mode, *modes[same:]])
        return modes[:same]


functions = Stack(
    private.function_mode_count, private.function_mode_at, private.pop_function_mode, private.push_function_mode
)
dispatch = Stack(
    private.dispatch_mode_count, private.dispatch_mode_at, private.pop_dispatch_mode, private.push_dispatch_mode_above
)
"""Without the flags that a mode's ``__enter__`` sets: all threads share them, and modes that end in another order than
they began would leave them wrong for good."""


@contextmanager
def function_mode_on(mode: private.TorchFunctionMode, *, below: bool = False) -> Iterator[None]:
    """Puts a function mode on during a block, then takes it off, wherever it is. below: below all others, so that it
    gets what they pass on and is the only one left in its handler."""
    if below:
        functions.replace([mode, *functions.modes()])
    else:
        functions.push(mode)
    try:
        yield
    finally:
        functions.remove(mode)


def settle() -> None:
    """Makes the thread's dispatch keys agree with its dispatch modes: the first one on sets them, the last one off
    removes them."""
    modes = dispatch.modes()
    dispatch.replace(modes or [private.TorchDispatchMode()])
    if not modes:
        dispatch.replace([])


@contextmanager
def top_dispatch_mode_off(kind: type[private.TorchDispatchMode]) -> Iterator[None]:
    """Takes the innermost dispatch mode off during a block, if it is of that kind."""
    mode = private.current_dispatch_mode()
    if not isinstance(mode, kind):
        yield
        return
    private.pop_dispatch_mode()
    try:
        yield
    finally:
        private.push_dispatch_mode_above(mode)


@contextmanager
def modes_off(function_kind: type, dispatch_kind: type[private.TorchDispatchMode]) -> Iterator[None]:
    """Takes the function modes of one kind off during a block, wherever they are; also the innermost dispatch mode,
    if it is of ``dispatch_kind``."""
    modes = functions.modes()
    functions.replace([m for m in modes if not isinstance(m, function_kind)])
    try:
        with top_dispatch_mode_off(dispatch_kind):
            yield
    finally:
        functions.replace(modes)
