"""Which trace watches the calling thread.

Modes are thread-local, but patches and torch's global hooks act in every thread. They ask here first, and ignore
threads that no trace watches: the tensors of another thread may change, without the GIL, while we look at them.
"""

from __future__ import annotations

import os
from threading import RLock, get_ident

from . import mode_stacks, private
from .protocols import Listens, Watching
from .session import Session

_watches: dict[int, Watching] = {}
"""By thread: the Watches that were started there."""
_counters: dict[int, Listens] = {}
"""By thread: what listens for a Watch that is detached."""
_lock = RLock()


def add(watch: Watching, ident: int) -> None:
    """Records that a Watch begins to watch a thread."""
    _watches[ident] = watch
    _counters.pop(ident, None)


def discard(watch: Watching, counter: Listens | None = None) -> None:
    """Records that a Watch has ended, in whichever thread, or that from now on only its ``counter`` is on."""
    ident = watch.recorder.thread
    for known in [known for known, other in list(_watches.items()) if other is watch]:
        del _watches[known]
    if counter is not None:
        _counters[ident] = counter
    elif _watches.get(ident) is None:
        _counters.pop(ident, None)


def counter() -> Listens | None:
    """What listens in the calling thread for a Watch that is detached, None where nothing does."""
    return _counters.get(get_ident())


def asleep() -> Listens | None:
    """The same while the calling thread is watched, too."""
    watch = here()
    return watch.hooks.asleep if watch is not None else counter()


def counters() -> list[Listens]:
    """What listens in any thread."""
    return list(_counters.values())


def deaf() -> bool:
    """Whether no thread is watched, and nothing listens for calls of modules in any."""
    return not _watches and True not in [one.armed for one in list(_counters.values())]


def everyone() -> list[Watching]:
    """Every Watch that is running."""
    return list(_watches.values())


def here() -> Watching | None:
    """The Watch of the calling thread, None if it has none.

    A thread of the autograd engine belongs to the Watch of the thread that called backward, because the engine copies
    that thread's modes.
    """
    watch = _watches.get(get_ident())
    if watch is None and _watches and private.current_graph_task_id() != -1:
        modes = mode_stacks.dispatch.modes()
        for other in everyone():
            if other.dispatch_mode in modes:
                return other
    return watch


def watched_by(recorder: Session) -> bool:
    """Whether the calling thread is watched for this recorder, and the recorder still records."""
    watch = here()
    return watch is not None and watch.recorder is recorder and not recorder.broken


def lock() -> RLock:
    """Held while anything that all threads share is installed or removed."""
    return _lock


def _new_lock() -> None:
    global _lock
    _lock = RLock()


os.register_at_fork(after_in_child=_new_lock)  # a thread that held it does not exist in the child
