"""Installs everything that a dry run needs, and removes it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ..capture import mode_stacks, private
from ..program import AfterImport
from ..tables.english import some
from . import hub, loaders, loading, parallel, pretend
from .autocast import Autocast
from .dispatch import DryMode
from .functions import DryFunctions
from .prediction import Oracle
from .values import ValueAnswers

_MOST_NAMED = 5


class DryRun:
    """From :meth:`start` to :meth:`stop`, large tensors have no values, and devices are pretended.

    steps_done: the number of optimizer steps so far.
    """

    def __init__(self, steps_done: Callable[[], int]) -> None:
        self.passes = loaders.Passes(steps_done)
        self.oracle = Oracle()
        self.values = ValueAnswers()
        self.autocast = Autocast()
        self.running = False
        self._undo: list[Callable[[], None]] = []

    def start(self) -> None:
        """Installs everything, for the calling thread; the patches act in the whole process."""
        self.running = True
        pretend.install(self.replace)
        loading.install(self.replace)
        parallel.install(self.replace)
        loaders.install(self.replace, self.passes)
        for name, change in {**hub.MODULES, "safetensors.torch": loading.safetensors}.items():
            self._after_import(name, change)
        self.autocast.install()
        self._mode = DryMode(self.oracle, self.values)
        self._functions = DryFunctions()
        mode_stacks.dispatch.push(self._mode)
        private.push_function_mode(self._functions)

    def stop(self) -> None:
        """Removes everything. Can be called twice."""
        if not self.running:
            return
        self.running = False
        mode_stacks.functions.remove(self._functions)
        mode_stacks.dispatch.remove(self._mode)
        self.autocast.remove()
        while self._undo:
            self._undo.pop()()

    def _after_import(self, name: str, change: Callable[[Any, pretend.Replace], None]) -> None:
        """Changes a module as soon as it is imported."""
        waiting = AfterImport(name, lambda: change(sys.modules[name], self.replace))
        waiting.install()
        self._undo.append(waiting.remove)

    def replace(self, owner: Any, name: str, new: Any) -> None:
        """Sets an attribute until the dry run ends."""
        had, old = name in vars(owner), vars(owner).get(name)  # not getattr: a class method stays one
        setattr(owner, name, new)

        def restore() -> None:
            if had:
                setattr(owner, name, old)
            else:
                delattr(owner, name)

        self._undo.append(restore)

    def notes(self, user: Callable[[str], bool]) -> Iterator[str]:
        """What limits this run, in words. ``user``: whether a file is the user's own."""
        rules = f"torch {self.oracle.table.torch} on {self.oracle.table.device}"
        yield f"what depends on values: a dry run has none. Its dtype rules are those of {rules}"
        if self.oracle.unknown:
            named = [f"{name} ({count})" for name, count in self.oracle.unknown.most_common()]
            without = "dtype errors of operators for which it has no rule (with the number of calls)"
            yield f"{without}: {some(named, _MOST_NAMED)}"
        lines = [
            f"{os.path.basename(file)}:{line} ({what})"
            for file, line, what, _ in self.values.lines()
            if user(file) and what != "item"
        ]
        if lines:
            yield f"branches that were not taken, because a condition asked for a value: {some(lines, _MOST_NAMED)}"
