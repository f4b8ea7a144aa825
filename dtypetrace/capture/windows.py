"""Which optimizer steps are watched: the first ones, then perhaps one in every so many.

Between them nothing is installed but a hook that counts steps (``capture.global_hooks``). A watched step begins where
the step before it ended, so that a whole one is seen, with all batches whose gradients it adds up.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

from . import private
from .gradient_range import GradientRange
from .novelty import Novelty

_MORE = 3
"""After so many steps of other optimizers, beyond twice as many as ever before, the one that set the pace counts as
abandoned: another training has begun."""
_ELSEWHERE = "steps from other lines"


class Windows:
    """Counts the steps of one thread, and attaches and detaches its watch.

    ``first``: how many steps are watched from the beginning. ``every``: after that, each step whose number is a
    multiple of it and at least ``start`` is watched; with None no further step is watched. ``over``: a function that is
    called when nothing more will be watched. ``novelty``: decides in place of these which steps are watched.
    Of several optimizers, only the first one's steps are counted; a step of another one has the number of the first
    one's current step.
    """

    def __init__(
        self,
        first: int,
        every: int | None,
        over: Callable[[], None],
        novelty: Novelty | None = None,
        start: int = 1,
    ) -> None:
        self.first = first
        self.every = every
        self.start = start
        self.novelty = novelty
        self._over = over
        self.attach: Callable[[], None] = over
        self.detach: Callable[[], None] = over
        """Set by the watch."""
        self.busy: Callable[[], bool] = bool
        """Whether a torch function is running, which will put the function mode back; set by the watch."""
        self.enough: int | None = None
        """The program ends after this many steps of any optimizer."""
        self.attached = True
        self.waiting = False
        """Whether a watched step has ended where nothing can be removed: inside a backward pass."""
        self.missed = False
        """Whether a step could not be watched, because the one before it ended inside a backward pass."""
        self.steps = 0
        """Steps of any optimizer."""
        self.rounds = 0
        """Steps of the first optimizer, the only one that is counted."""
        self.watched = 0
        """How many of those were watched."""
        self._gradient = GradientRange()
        self._pace: weakref.ref[Any] = weakref.ref(Windows)
        self._others = self._most = 0
        """Steps of other optimizers since its last one; the most between two of its."""
        self._owner = os.getpid()

    @property
    def current(self) -> int:
        """The number of the step that is running, from 1 on."""
        return self.rounds + 1

    def step_ended(self, optimizer: Any, args: Any = None, kwargs: Any = None) -> None:
        """torch calls it after each step of any optimizer in the watched thread."""
        self.steps += 1
        if self._pace() is optimizer or self._takes_over(optimizer):
            self._most, self._others = max(self._most, self._others), 0
            self.rounds += 1
            self.watched += self.attached
        elif self.novelty is not None:
            return  # it judges whole rounds
        if self.novelty is not None and (self.attached or self.novelty.looks(self.rounds)):
            for what in filter(None, (_ELSEWHERE, self._gradient.leaves(optimizer))):
                if self.novelty.happens(what, sys._getframe(1)):
                    self.novelty.soon(what)
        wanted = self._wanted()
        if wanted is not self.attached:
            self._change(wanted)
        if self.enough is not None and self.steps >= self.enough:
            raise SystemExit(0)

    def wake(self, why: str) -> None:
        """Attaches in the middle of a step, because something new is about to happen."""
        assert self.novelty is not None
        self.novelty.woken(self.current, why)
        self.settle(True)

    def over(self) -> bool:
        """Called before a watched call of an outermost module: whether watching ends here."""
        return self.waiting or self.novelty is not None and self.novelty.over(self.current)

    def _takes_over(self, optimizer: Any) -> bool:
        known = self._pace()
        self._others += 1
        if known is None or known is Windows or self._others >= 2 * self._most + _MORE:
            self._pace, self._gradient = weakref.ref(optimizer), GradientRange()
            return True
        return False

    def _wanted(self) -> bool:
        """Whether the step that begins now is to be watched."""
        if self.novelty is not None:
            return self.novelty.wanted(self.current, self.attached)
        due = self.every is not None and self.current >= self.start and self.current % self.every == 0
        return self.steps < self.first or due

    def _change(self, wanted: bool) -> None:
        if os.getpid() != self._owner:  # a forked child trains by itself
            return
        if private.current_graph_task_id() != -1 or self.busy():  # the engine restores modes after a hook
            self.waiting, self.missed = not wanted, self.missed or wanted
            return
        self.settle(wanted)

    def settle(self, wanted: bool = False) -> None:
        """Attaches if ``wanted``, else detaches: for good if no later step will be watched."""
        self.waiting = False
        if wanted:
            self.attach()
        elif self.every is None and self.novelty is None:
            self._over()
        else:
            self.detach()
