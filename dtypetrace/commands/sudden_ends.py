"""``os._exit``, which ends a process at once, and the work to do before it does.

It runs no ``finally``, no ``atexit`` handler and no code of the runner. :class:`SuddenEnds` does its work first
(``commands.run`` gives it the report to write), then the call does what it always does: no stream of the program is
flushed, and the exit status is the same. Forked children are left alone.
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
    """Before ``os._exit`` ends the process, calls ``work`` once, with the exception that is being handled there.

    ``work`` returns the exit status to use in place of 0. ``signals``: those that end the process, too; one report is
    enough.
    """

    def __init__(self, work: Callable[[BaseException | None], int], signals: FatalSignals) -> None:
        self._work, self._signals = work, signals
        self._owner = os.getpid()
        self._done = threading.Event()
        self._original: Any = None

    def install(self) -> None:
        """Replaces the call."""
        original = self._original = os._exit

        @wraps(original)
        def ends(*args: Any, **kwargs: Any) -> Any:
            if os.getpid() == self._owner and self._original is not None and len(args) == 1:
                status = self._worked()
                args = (status,) if args == (0,) else args
            return original(*args, **kwargs)

        self._own: Any = ends
        self._set(ends)

    def _set(self, call: Any) -> None:
        # the module that os takes it from, too: pickle looks it up there
        for module in (os, sys.modules[self._original.__module__]):
            setattr(module, "_exit", call)  # noqa: B010 -- it is not in the type stubs of all

    def remove(self) -> None:
        """Restores it, unless the program has replaced it, too."""
        if self._original is not None and os._exit is self._own:
            self._set(self._original)
        self._original = None
        self._done.set()

    def _worked(self) -> int:
        """Does the work; where another thread does it, waits until it is done."""
        if self._signals.busy:
            self._done.wait(_LIMIT)
            return 0
        try:
            with self._signals.held():
                return self._work(sys.exc_info()[1])
        except BaseException:  # even if the work fails, the process must end
            return 0
        finally:
            self._done.set()
