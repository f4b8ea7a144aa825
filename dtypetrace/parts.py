"""Parts of dtypetrace's own work: if one fails, only that part is lost, and the report says which.

A bug in a remedy, a view or a rule must not cost the other findings. The code that combines the parts collects the
failures (:func:`collected`) and shows them under ``not seen``. Outside such a block, a failure is raised. Standard
library only.
"""

from __future__ import annotations

import gc
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from .terminal import seen

_Made = TypeVar("_Made")
_Other = TypeVar("_Other")
_LONGEST = 100
_collecting: ContextVar[dict[str, None] | None] = ContextVar("dtypetrace_failed_parts", default=None)


@contextmanager
def collected() -> Iterator[dict[str, None]]:
    """During the block a part that fails is left out; the keys are sentences that say what failed.

    >>> with collected() as failed:
    ...     attempt("the sum", lambda: 1 / 0, 0)
    0
    >>> "the sum" in next(iter(failed))
    True
    """
    failed: dict[str, None] = {}
    token = _collecting.set(failed)
    try:
        yield failed
    finally:
        _collecting.reset(token)


def attempt(part: str, make: Callable[[], _Made], instead: _Other) -> _Made | _Other:
    """The result of ``make``; ``instead`` if it fails inside :func:`collected`."""
    try:
        return make()
    except Exception as failure:
        failed = _collecting.get()
        if failed is None:
            raise
        failed[_sentence(part, failure)] = None
        return instead


def _sentence(part: str, failure: Exception) -> str:
    """One sentence: what failed, of which part, and where in dtypetrace."""
    own = os.path.dirname(__file__) + os.sep
    frames = [f for f in traceback.extract_tb(failure.__traceback__) if f.filename.startswith(own)]
    at = f" at {frames[-1].filename.removeprefix(own)}:{frames[-1].lineno}" if frames else ""
    text = seen(" ".join(str(failure).split()))[:_LONGEST]
    why = f"{type(failure).__name__}{at}{': ' if text else ''}{text}"
    return f"{part}: dtypetrace itself failed here ({why}). Please report this"


@contextmanager
def collector_paused() -> Iterator[None]:
    """A block that makes many objects and no garbage: with all of torch's in memory, one look at every object takes as
    long as all of dtypetrace's imports."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
