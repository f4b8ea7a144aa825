"""The processes in which ``dtypetrace fix`` and ``plan`` run a program, and how they end with their parent.

Ctrl-C on a terminal reaches them, too, and the program cleans up behind itself. What does not end by that is asked
once more, and then ended by force, with all that it has started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_PATIENCE = 1.5
"""Seconds that a program has to end by itself, and again after it was asked."""
_running: list[subprocess.Popen[bytes]] = []


def run(
    command: Sequence[str], seconds: float | None = None, waiting: Callable[[float], None] | None = None, **options: Any
) -> int:
    """Runs a process and returns its exit status; ``options`` are those of ``subprocess.Popen``. ``waiting`` is told
    each second how many have passed. Raises subprocess.TimeoutExpired after so many seconds."""
    began = time.monotonic()
    process = subprocess.Popen(command, **options)
    _running.append(process)
    try:
        while waiting is not None and (seconds is None or time.monotonic() - began < seconds - 1):
            with suppress(subprocess.TimeoutExpired):
                return process.wait(1.0)
            waiting(time.monotonic() - began)
        return process.wait(None if seconds is None else max(seconds - (time.monotonic() - began), 0.0))
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process that still runs, and what it has started."""
    try:
        for asks in (False, True):
            if process.poll() is None:
                if asks:
                    _send([process.pid], signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_PATIENCE)
    finally:  # at a second Ctrl-C, too
        if process.poll() is None:
            _send(_family(process.pid), signal.SIGKILL)
            process.wait()
        if process in _running:
            _running.remove(process)


def end_all() -> None:
    """Ends every process that still runs, at once."""
    for process in tuple(_running):
        _send(_family(process.pid), signal.SIGKILL)


def _send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _family(pid: int) -> list[int]:
    """A process and what it, its children and theirs have started."""
    return [pid, *(p for child in _children(pid) for p in _family(child))]


def _children(pid: int) -> list[int]:
    """The processes that a process has started; none where the system does not say."""
    found: list[int] = []
    with suppress(OSError, ValueError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found
