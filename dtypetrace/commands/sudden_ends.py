"""Calls that end a process at once, and the work to do before they do.

``os._exit``, ``os.abort`` and the ``os.exec`` family run no ``finally``, no ``atexit`` handler and no code of the
runner. :class:`SuddenEnds` does its work first (``commands.run`` gives it the report to write), then the call does what
it always does: no stream of the program is flushed, and the exit status is the same. Forked children are left alone.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from .signals import FatalSignals

_LIMIT = 20.0
"""Seconds that a thread waits for the work that another one has begun."""


class SuddenEnds:
    """Before such a call ends the process, calls ``work`` once, with the call's name and the exception that is being
    handled there.

    ``work`` returns the exit status to use in place of 0. ``signals``: those that end the process, too; one report is
    enough.
    """

    def __init__(self, work: Callable[[str, BaseException | None], int], signals: FatalSignals) -> None:
        self._work, self._signals = work, signals
        self._owner = os.getpid()
        self._done = threading.Event()
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def install(self) -> None:
        """Replaces the calls."""
        for name in ("_exit", "abort", "execv", "execve"):
            own = self._before(name, original := getattr(os, name))
            # the module that os takes them from, too: pickle looks them up there
            for module in (os, sys.modules[original.__module__]):
                self._replaced.append((module, name, getattr(module, name), own))
                setattr(module, name, own)

    def remove(self) -> None:
        """Restores them, unless the program has replaced them, too."""
        for module, name, original, own in self._replaced:
            if getattr(module, name) is own:
                setattr(module, name, original)
        self._replaced.clear()
        self._done.set()

    def _before(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def ends(*args: Any, **kwargs: Any) -> Any:
            if os.getpid() == self._owner and self._replaced and _would_end(name, args):
                status = self._worked(f"os.{name}")
                if name == "_exit" and args == (0,):
                    args = (status,)
            return original(*args, **kwargs)

        return ends

    def _worked(self, call: str) -> int:
        """Does the work; where another thread does it, waits until it is done."""
        if self._signals.busy:
            self._done.wait(_LIMIT)
            return 0
        try:
            with self._signals.held():
                return self._work(call, sys.exc_info()[1])
        except BaseException:  # even if the work fails, the process must end
            return 0
        finally:
            self._done.set()


def _would_end(name: str, args: tuple[Any, ...]) -> bool:
    """Whether a call with these arguments ends the process: ``execvp`` tries one folder after another."""
    if name == "_exit":
        return len(args) == 1 and isinstance(args[0], int)
    if not name.startswith("exec"):
        return True
    try:
        return isinstance(args[0], int) or os.path.isfile(args[0]) and os.access(args[0], os.X_OK)
    except (TypeError, ValueError, IndexError):
        return False
