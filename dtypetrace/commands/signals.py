"""Signals that end a process, and the work to do before they end it.

SLURM, ``timeout`` and torchrun end jobs with SIGTERM, a closed terminal with SIGHUP, a limit with SIGXCPU. By default
Python does nothing about them and the process ends at once. :class:`FatalSignals` does its work first (``commands.run``
gives it the report to write) and then lets the process die by the same signal. It leaves the program's own handlers,
and ignored signals, as they are.

A Python handler runs only when the main thread is executing Python, which a rank that waits in a collective never does.
So an extra thread reads the signal's number from a pipe (``signal.set_wakeup_fd``) and does the work where the main
thread does not.
"""

from __future__ import annotations

import _thread
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any, NoReturn

NAMES = ("SIGTERM", "SIGHUP", "SIGXCPU")
_PATIENCE = 0.5
"""Seconds that the main thread has to begin the work itself."""
_LIMIT = 20.0
"""After this many seconds the process dies, finished or not: torchrun and SLURM kill after 30."""
_AGAIN = 2.0
"""A signal that comes again later than this ends the process at once."""

_armed: FatalSignals | None = None


class FatalSignals:
    """Calls ``work`` once, with the signal's name, before one of these signals ends the process. For the main
    thread."""

    def __init__(self, work: Callable[[str], None]) -> None:
        self._work = work
        self._numbers = {int(getattr(signal, name)) for name in NAMES if hasattr(signal, name)}
        self._owner = os.getpid()
        self._claim = threading.Lock()
        self._ours: set[int] = set()
        self._pipe: tuple[int, int] | None = None
        self._holding = False
        self._held: int | None = None

    # ------------------------------------------------------------ life

    def install(self) -> None:
        """Starts handling the signals; does nothing outside the main thread."""
        global _armed
        if threading.current_thread() is not threading.main_thread() or _armed is not None:
            return
        self._ours = {number for number in self._numbers if _signal.getsignal(number) is signal.SIG_DFL}
        if not self._ours:
            return
        _armed = self
        signal.signal, signal.getsignal = _signal_as_without, _getsignal_as_without
        for number in self._ours:
            _signal.signal(number, self._handle)
        self._listen()

    def remove(self) -> None:
        """Restores everything."""
        global _armed
        if _armed is not self:
            return
        _armed = None
        for name, own, original in (
            ("signal", _signal_as_without, _signal.signal),
            ("getsignal", _getsignal_as_without, _signal.getsignal),
        ):
            if getattr(signal, name) is own:
                setattr(signal, name, original)
        for number in self._ours:
            if _signal.getsignal(number) == self._handle:
                _signal.signal(number, signal.SIG_DFL)
        self._hang_up()

    def _listen(self) -> None:
        reading, writing = self._pipe = os.pipe()
        os.set_blocking(writing, False)
        other = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        if other != -1:  # somebody else uses the wakeup fd: only the main thread's handler remains
            signal.set_wakeup_fd(other)
            self.close()
            return
        # not a threading.Thread: the program may count those
        _thread.start_new_thread(self._watch, (reading,))

    def _hang_up(self) -> None:
        if self._pipe is None:
            return
        current = signal.set_wakeup_fd(-1)
        if current != self._pipe[1]:
            signal.set_wakeup_fd(current)  # the program has set its own since
        with suppress(OSError):
            os.write(self._pipe[1], b"\0")  # the reader closes its end
        os.close(self._pipe[1])
        self._pipe = None

    def close(self) -> None:
        """Closes the pipe."""
        for end in self._pipe or ():
            os.close(end)
        self._pipe = None

    @property
    def busy(self) -> bool:
        """Whether the work is being done, or was."""
        return self._claim.locked()

    @contextmanager
    def held(self) -> Iterator[None]:
        """The block does the same work itself: a signal that comes during it ends the process after it."""
        self._holding = self._claim.acquire(blocking=False) and _armed is self
        try:
            yield
        finally:
            if self._held is not None:
                _die(self._held)
            self._holding = False

    @contextmanager
    def postponed(self) -> Iterator[None]:
        """A signal that comes during the block is handled after it: the block imports what the work imports, too, and a
        module whose import was interrupted is not whole."""
        self._holding = _armed is self
        try:
            yield
        finally:
            self._holding = False
            number, self._held = self._held, None
            if number is not None:
                self._handle(number, None)

    # ------------------------------------------------------------ a signal came

    def _handle(self, number: int, frame: Any) -> None:
        """Runs in the main thread."""
        if os.getpid() == self._owner:
            if self._holding:
                self._held = number
                return
            if not self._claim.acquire(blocking=False):
                _wait_for_the_end()
            self._do(number)
        _die(number)

    def _watch(self, reading: int) -> None:
        """Runs in a thread of its own until the pipe is closed or a signal ends the process."""
        try:
            number = self._next(reading, None)
            if number is None:
                return
            began = time.monotonic()
            time.sleep(_PATIENCE)
            if self._claim.acquire(blocking=False):
                _thread.start_new_thread(self._do_and_die, (number,))
            while (left := began + _LIMIT - time.monotonic()) > 0:
                if self._next(reading, left) is None or time.monotonic() - began > _AGAIN:
                    break
            _die(number)
        finally:
            os.close(reading)

    def _next(self, reading: int, timeout: float | None) -> int | None:
        """The next signal that is ours; None at the timeout or when the trace has ended."""
        while select.select([reading], [], [], timeout)[0]:
            number = (os.read(reading, 1) or b"\0")[0]
            if number == 0:
                return None
            if number in self._ours and _signal.getsignal(number) == self._handle:
                return number
        return None

    def _do_and_die(self, number: int) -> None:
        self._do(number)
        _die(number)

    def _do(self, number: int) -> None:
        with suppress(BaseException):  # even if the work fails, the process must end by the signal
            self._work(signal.Signals(number).name)


def _die(number: int) -> NoReturn:
    """Ends the process by the signal, as if nobody had handled it."""
    try:
        _signal.signal(number, signal.SIG_DFL)
    except ValueError:  # not the main thread
        import ctypes

        ctypes.CDLL(None).signal(number, 0)
    os.kill(os.getpid(), number)
    time.sleep(1)  # it is delivered to some thread
    os._exit(128 + number)


def _wait_for_the_end() -> NoReturn:
    while True:
        time.sleep(_LIMIT)


# ---------------------------------------------------------------- what the program sees of it: nothing


_signal = SimpleNamespace(signal=signal.signal, getsignal=signal.getsignal)


def _shown(number: Any, handler: Any) -> Any:
    """A handler as the program should see it."""
    return signal.SIG_DFL if _armed is not None and handler == _armed._handle else handler


def _signal_as_without(signalnum: Any, handler: Any) -> Any:
    """Replaces ``signal.signal``: where the program sets the default action, our handler runs before it."""
    if _armed is not None and handler == signal.SIG_DFL and signalnum in _armed._ours:
        handler = _armed._handle
    return _shown(signalnum, _signal.signal(signalnum, handler))


def _getsignal_as_without(signalnum: Any) -> Any:
    """Replaces ``signal.getsignal``."""
    return _shown(signalnum, _signal.getsignal(signalnum))


_masks: dict[int, set[Any]] = {}  # by thread: the signals that it blocked before it forked


def _before_fork() -> None:
    """Blocks the signals during the fork: Python loses a signal that reaches the child before it resets its
    handlers."""
    if _armed is not None:
        _masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, _armed._ours)


def _unblock() -> None:
    mask = _masks.pop(threading.get_ident(), None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _after_fork() -> None:
    """In the child, the signals have their usual effect, without our work."""
    global _armed
    armed, _armed = _armed, None
    if armed is not None:
        signal.signal, signal.getsignal = _signal.signal, _signal.getsignal
        with suppress(ValueError):
            signal.set_wakeup_fd(-1)  # else the parent would read the child's signals
            for number in armed._ours:
                if _signal.getsignal(number) == armed._handle:
                    _signal.signal(number, signal.SIG_DFL)
        with suppress(OSError):
            armed.close()
    _unblock()


os.register_at_fork(before=_before_fork, after_in_parent=_unblock, after_in_child=_after_fork)


# ---------------------------------------------------------------- Ctrl-C


@contextmanager
def said(command: str) -> Iterator[None]:
    """A block in which Ctrl-C is said in one line. A signal that ends the command ends its processes, too."""
    from ..repair import children  # a run of a script needs none

    signals = FatalSignals(lambda name: children.end_all())
    signals.install()
    try:
        yield
    except KeyboardInterrupt:
        begins = "\n" * sys.stderr.isatty()  # a terminal has shown ^C
        print(f"{begins}dtypetrace {command}: interrupted", file=sys.stderr)
        raise
    finally:
        signals.remove()
