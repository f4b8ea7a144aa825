"""Ctrl-C and other signals while a trace opens or closes: afterwards it is either open or closed, never half open.

A handler written in Python runs between any two bytecodes of the main thread, and may raise: Ctrl-C's does. While
something must not be half done, the handlers are held back (:class:`held`) and called afterwards. This does not
cover the moment when ``__exit__`` begins: an interrupt there leaves the block before any line of ours has run.
So a ``with`` statement gets an exit object whose end is noticed (:class:`Leaving`). Standard library only.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # without the enums of signal, which cost ten times as much
import threading
import weakref
from collections.abc import Callable
from functools import partial
from types import FrameType, MethodType
from typing import Any, Protocol

_NUMBERS = tuple(sorted(int(number) for number in _signal.valid_signals()))


class held:
    """A block in which no Python signal handler runs. Handlers that were due run once each when it ends.

    Does nothing outside the main thread, where no handler runs.
    """

    __slots__ = ("_handlers", "_due")

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._due: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> held:
        if threading.get_ident() == threading.main_thread().ident:
            try:
                for number in _NUMBERS:
                    handler = _signal.getsignal(number)
                    if callable(handler):  # else the system's default, ignored, or not Python's
                        self._handlers[number] = handler
                        _signal.signal(number, self._hold)
            except BaseException:  # a signal came just before its own handler was held
                self._release()
                raise
        return self

    def __exit__(self, *error: object) -> None:
        handlers = dict(self._handlers)
        try:
            self._release()
        finally:
            self._deliver(handlers)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self._due.append((number, frame))

    def _deliver(self, handlers: dict[int, Callable[[int, FrameType | None], Any]]) -> None:
        """Calls the handlers that were due, even if one of them raises."""
        try:
            while self._due:
                number, frame = self._due.pop(0)
                handlers[number](number, frame)
        finally:
            if self._due:
                self._deliver(handlers)

    def _release(self) -> None:
        """Restores every signal's handler, even if a handler that is already restored raises during that."""
        try:
            for number in reversed(_NUMBERS):
                if number in self._handlers:
                    _signal.signal(number, self._handlers[number])
                    del self._handlers[number]
        finally:
            if self._handlers:
                self._release()


class Closing(Protocol):
    """What a ``with`` statement opens."""

    guard: weakref.ref[Any] | None
    """Set to None once it is closed."""

    @property
    def is_open(self) -> bool: ...

    def stop(self) -> None: ...


class Leaving:
    """Replaces ``__exit__`` by an object that closes the trace when the ``with`` statement drops it.

    The statement looks ``__exit__`` up before it opens anything and holds it until the block ends in any way. If
    an interrupt comes before the first line of the function runs, the statement only drops it. It is written in C,
    so no frame of a traceback keeps it alive.
    """

    def __init__(self, leave: Callable[..., None]) -> None:
        self._leave = leave

    def __get__(self, opened: Any, kind: type | None = None) -> Callable[..., None]:
        if opened is None:
            return self._leave
        if opened.is_open:  # asked for while the block runs, it is a method like any other
            return MethodType(self._leave, opened)
        leave = partial(self._leave, opened)
        opened.guard = weakref.ref(leave, partial(_dropped, opened))
        return leave


def _dropped(opened: Closing, leave: object) -> None:
    if opened.is_open:
        opened.stop()
