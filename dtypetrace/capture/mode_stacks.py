"""The stacks of modes of the calling thread: ours is put on and taken off, the others stay as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import private

Opened = tuple[list[Any], list[Any]]


@contextmanager
def last_function_mode(mode: private.TorchFunctionMode) -> Iterator[None]:
    """Puts a mode below all others during a block: it gets what they pass on, and is the only one left in its
    handler."""
    set_function_modes([mode, *(private.function_mode_at(i) for i in range(private.function_mode_count()))])
    try:
        yield
    finally:
        remove_function_mode(mode)


def dispatch_modes() -> list[Any]:
    """The dispatch modes that are on in this thread, outermost first."""
    return [private.dispatch_mode_at(i) for i in range(private.dispatch_mode_count())]


def push_dispatch_mode(mode: private.TorchDispatchMode) -> None:
    """Pushes a dispatch mode without the flags that its ``__enter__`` sets: all threads share them, and modes that end
    in another order than they began would leave them wrong for good."""
    private.push_dispatch_mode_above(mode)


def insert(
    dispatch_mode: private.TorchDispatchMode, function_mode: private.TorchFunctionMode, opened: Opened
) -> Opened:
    """Puts a pair of modes where they were when their trace was opened, and returns the modes below them.

    A mode that the program has put on since stays above: its end takes the innermost mode off, which must be its own.
    ``opened``: the dispatch modes and the function modes that were on when the trace was opened.
    """
    modes, functions = dispatch_modes(), function_modes()
    below = modes[: _common(modes, opened[0])], functions[: _common(functions, opened[1])]
    if len(below[0]) == len(modes):
        private.push_dispatch_mode_above(dispatch_mode)
    else:
        set_dispatch_modes([*below[0], dispatch_mode, *modes[len(below[0]) :]])
    if len(below[1]) == len(functions):
        private.push_function_mode(function_mode)
    else:
        set_function_modes([*below[1], function_mode, *functions[len(below[1]) :]])
    return below


def settle() -> None:
    """Makes the thread's dispatch keys agree with its dispatch modes: the first one on sets them, the last one off
    removes them."""
    modes = dispatch_modes()
    set_dispatch_modes(modes or [private.TorchDispatchMode()])
    if not modes:
        set_dispatch_modes([])


def _common(modes: list[Any], before: list[Any]) -> int:
    """How many modes from the outermost on are the same in both lists."""
    same = 0
    while same < min(len(modes), len(before)) and modes[same] is before[same]:
        same += 1
    return same


def function_modes() -> list[Any]:
    """The function modes that are on in this thread, outermost first."""
    return [private.function_mode_at(i) for i in range(private.function_mode_count())]


@contextmanager
def function_mode_on(mode: private.TorchFunctionMode) -> Iterator[None]:
    """Puts a function mode on during a block, then takes it off, wherever it is. It may be gone: an interrupt inside
    one of torch's own functions that had removed it for a moment loses it."""
    private.push_function_mode(mode)
    try:
        yield
    finally:
        remove_function_mode(mode)


def remove_function_mode(mode: private.TorchFunctionMode) -> None:
    """Takes the innermost occurrence of a mode off the function-mode stack; others keep their order."""
    modes = function_modes()
    if modes and modes[-1] is mode:
        private.pop_function_mode()
    elif mode in modes:
        del modes[_last(modes, mode)]
        set_function_modes(modes)


def remove_dispatch_mode(mode: private.TorchDispatchMode) -> None:
    """The same for the dispatch-mode stack."""
    modes = dispatch_modes()
    if mode in modes:
        del modes[_last(modes, mode)]
        set_dispatch_modes(modes)


def end_function_mode(mode: private.TorchFunctionMode, before: list[Any], error: BaseException | None) -> None:
    """Takes every occurrence of a mode off the function-mode stack. ``before``: the modes that were on before it;
    ``error``: the exception that ends the block."""
    modes = function_modes()
    kept = _without(modes, mode, before, error)
    if kept != modes:
        set_function_modes(kept)


def end_dispatch_mode(mode: private.TorchDispatchMode, before: list[Any], error: BaseException | None) -> None:
    """The same for the dispatch-mode stack."""
    modes = dispatch_modes()
    kept = _without(modes, mode, before, error)
    if kept != modes:
        set_dispatch_modes(kept)


def _without(modes: list[Any], mode: object, before: list[Any], error: BaseException | None) -> list[Any]:
    """The modes that should be on after a mode's end, wherever it is.

    It may be gone, for two reasons. The program left another mode and torch popped the innermost instead (a generator
    that was dropped inside the block): that other one was below ours, the last of those that were there before. Or an
    interrupt came while torch had removed modes for a moment, and they never came back; then an error is leaving.
    """
    kept = [other for other in modes if other is not mode]
    if error is not None:
        return before if len(kept) <= len(before) else kept
    if len(kept) == len(modes) and 0 < len(before) <= len(kept):
        del kept[len(before) - 1]
    return kept


def _last(modes: list[Any], mode: object) -> int:
    return max(i for i, other in enumerate(modes) if other is mode)


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
    modes = [private.function_mode_at(i) for i in range(private.function_mode_count())]
    set_function_modes([m for m in modes if not isinstance(m, function_kind)])
    try:
        with top_dispatch_mode_off(dispatch_kind):
            yield
    finally:
        set_function_modes(modes)


def set_dispatch_modes(modes: list[Any]) -> None:
    """Replaces the dispatch-mode stack, outermost first."""
    while private.dispatch_mode_count():
        private.pop_dispatch_mode()
    for mode in modes:
        private.push_dispatch_mode_above(mode)


def set_function_modes(modes: list[Any]) -> None:
    """Replaces the function-mode stack, outermost first."""
    while private.function_mode_count():
        private.pop_function_mode()
    for mode in modes:
        private.push_function_mode(mode)
