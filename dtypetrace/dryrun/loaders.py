"""Data loaders: a pass ends as soon as it would only repeat what was seen."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.data.dataloader as loading

from .pretend import Replace

STEPS = (2, 1)
"""Optimizer steps in the first passes over a loader; later ones are empty."""
_MOST_BATCHES = 16
"""Batches of a pass in which no optimizer steps."""
_WITHOUT_GRADIENTS = (2, 1)
"""Batches of the first passes under ``no_grad``; later ones have one."""


class Passes:
    """Ends passes early. ``steps_done``: the number of optimizer steps so far."""

    def __init__(self, steps_done: Callable[[], int]) -> None:
        self.steps_done = steps_done
        self.emptied = False
        """Whether a pass was empty that would not have been: what the program does with nothing is not its fault."""
        self._count: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """Passes over each loader."""
        self._running: weakref.WeakKeyDictionary[Any, _Pass] = weakref.WeakKeyDictionary()
        self._process = os.getpid()

    def begins(self, iterator: Any, loader: Any) -> None:
        """A pass over a loader begins."""
        number = self._count.get(loader, 0)
        self._count[loader] = number + 1
        self._running[iterator] = _Pass(number, self.steps_done())

    def goes_on(self, iterator: Any) -> bool:
        """Whether the pass has another batch."""
        current = self._running.get(iterator)
        if current is None or os.getpid() != self._process:
            return True
        number = min(current.number, len(STEPS))
        if not torch.is_grad_enabled():
            most = (*_WITHOUT_GRADIENTS, 1)[number]
        elif self.steps_done() - current.steps >= (*STEPS, 0)[number]:
            most = 0
        else:
            most = _MOST_BATCHES
        self.emptied |= not most and not current.batches
        current.batches += 1
        return current.batches <= most


class _Pass:
    """One pass over a loader: its number, the optimizer steps before it, and the batches that it had."""

    def __init__(self, number: int, steps: int) -> None:
        self.number, self.steps, self.batches = number, steps, 0


def install(replace: Replace, passes: Passes) -> None:
    """Ends passes early, for every loader of torch's."""
    base: Any = loading._BaseDataLoaderIter
    prepare, following = base.__init__, base.__next__

    def __init__(self: Any, loader: Any) -> None:
        prepare(self, loader)
        passes.begins(self, loader)

    def __next__(self: Any) -> Any:
        if not passes.goes_on(self):
            raise StopIteration
        return following(self)

    replace(base, "__init__", __init__)
    replace(base, "__next__", __next__)
