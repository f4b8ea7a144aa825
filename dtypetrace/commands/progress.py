"""What ``dtypetrace run`` shows on a terminal while the script runs: one transient piece of text at the right edge.

The script may write to the same terminal, and owns its cursor. So the text stands at the right edge of the cursor's
line, the cursor goes back to where the script left it, and the text is erased before the next thing that the script
writes through Python. No thread and no timer is used: a program that forks would notice them.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable
from typing import Any

AFTER = 3.0
"""Seconds of running before anything is shown."""
EVERY = 1.0
"""Seconds between two changes of the text."""
_ROOM = 24
"""Columns that stay free for the script's own text; on a narrower terminal nothing is shown."""


def for_terminal(stream: Any, *, quiet: bool = False) -> Progress | None:
    """The progress on a stream, None where it would not be seen or not be understood."""
    try:
        shown = not quiet and stream is not None and stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    except ValueError:  # closed
        return None
    return Progress(stream) if shown else None


def on_terminal(name: str) -> Progress | None:
    """The progress on a terminal of another process, by its name (``/dev/pts/3``), None where there is no such
    terminal; for a run whose own streams lead elsewhere."""
    if not name:
        return None
    try:
        stream = os.fdopen(os.open(name, os.O_WRONLY | os.O_NOCTTY), "w")
    except OSError:
        return None
    return for_terminal(stream)


class Progress:
    """One transient text. ``clock``: seconds, for tests."""

    def __init__(self, stream: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._began = clock()
        self._next = self._began + AFTER
        self._owner = os.getpid()
        self._size = 0
        self._watched: list[Any] = []

    def watching(self, count: Callable[[], int], steps: int) -> None:
        """The script has run so many optimizer steps; ``count`` is asked for the number of ops only where it is
        shown."""
        now = self._clock()
        if now >= self._next and os.getpid() == self._owner:  # not in a forked worker
            self._next = now + EVERY
            plural = "s" if steps != 1 else ""
            self.show(f"dtypetrace: {count():,} ops, {steps:,} step{plural}, {now - self._began:.0f} s")

    @property
    def late(self) -> bool:
        """Whether the run lasts long enough that people wait for it."""
        return self._clock() >= self._began + AFTER

    def show(self, text: str) -> None:
        """Shows a text in place of the one before."""
        self.clear()
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
            if len(text) + _ROOM > columns:
                return
            self._size = len(text)
            self._write(_at_right_edge(len(text), text))
        except (OSError, ValueError):  # no terminal any more
            self._size = 0
            return
        self._erase_before_writes()

    def clear(self) -> None:
        """Erases the text. The script's streams are as before."""
        for stream in self._watched:
            vars(stream).pop("write", None)
        self._watched.clear()
        if self._size and os.getpid() == self._owner:
            try:
                self._write(_at_right_edge(self._size, "\x1b[K"))
            except (OSError, ValueError):
                pass
        self._size = 0

    def _write(self, text: str) -> None:
        self._stream.flush()
        os.write(self._stream.fileno(), text.encode())

    def _erase_before_writes(self) -> None:
        """Lets the next write to a stream on a terminal erase the text first."""
        for stream in (sys.stdout, sys.stderr):
            plain = type(stream) is io.TextIOWrapper and not stream.closed and "write" not in vars(stream)
            if plain and stream.isatty():
                stream.write = self._erasing(stream)  # type: ignore[method-assign]
                self._watched.append(stream)

    def _erasing(self, stream: Any) -> Callable[[str], int]:
        def write(text: str) -> int:
            self.clear()
            return io.TextIOWrapper.write(stream, text)

        return write


def _at_right_edge(size: int, text: str) -> str:
    """Writes a text of so many columns at the end of the line and returns to where the cursor was."""
    return f"\x1b7\x1b[999C\x1b[{size - 1}D{text}\x1b8"
