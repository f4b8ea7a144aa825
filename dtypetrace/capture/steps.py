"""Which optimizer steps are running, and which of the ops inside are the step's own work.

A step may call a closure: LBFGS and SAM do, and Lightning passes one to every optimizer. The forward and backward pass
inside it belong to the model.
"""

from __future__ import annotations

import sys
import weakref
from array import array
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

import torch

from ..records import MOST_STEPS, Optimizer
from .ops import GrowingOp
from .stacks import Places

_WRAPPED = ("func", "__func__", "__wrapped__", "_torchdynamo_orig_callable")
"""Attributes that lead from a partial, a method, a decorated or a compiled function to the function inside."""


_MOST_ALIVE = 16
"""Optimizers that are kept in sight."""
_CONTAINERS: tuple[Any, ...] = (list, tuple, type({}.values()), torch.nn.ParameterList)


def _kind(given: Any) -> str:
    """What an optimizer is given, as :class:`~dtypetrace.records.Optimizer` says it. An iterator is not touched."""
    if not isinstance(given, _CONTAINERS):
        return "iterator" if isinstance(given, Iterator) else ""
    first = next(iter(given), None)
    kinds = ((torch.Tensor, "tensors"), (dict, "groups"), (tuple, "names"))
    return next((name for kind, name in kinds if isinstance(first, kind)), "")


class Running:
    """One call of an optimizer's ``step``."""

    __slots__ = ("ref", "frame", "place", "depth", "closures", "known")

    def __init__(self, optimizer: Any, given: Iterator[Any], frame: FrameType, place: int, depth: int) -> None:
        self.ref = weakref.ref(optimizer)
        self.frame = id(frame), frame.f_code  # the code too, because ids are used again
        self.place = place
        self.depth = depth  # how many modules were running when it began
        self.closures = frozenset(code for value in given for code in _codes(value))
        self.known: dict[int, bool] = {}


class Steps:
    """The optimizer steps that are running in the watched thread, innermost last."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self.running: list[Running] = []
        self.seen = 0
        """How many distinct ops had been seen at the end of the last step."""
        self._ran: dict[tuple[int, ...], list[int]] = {}
        """By the ops that ran in a step: the other numbers of ``Recording.step_ends``."""
        self._calls = array("q")
        """The calls of each op until the end of the last step."""
        self.made: dict[tuple[str, int], Optimizer] = {}
        """The optimizers that were made, by class and place: a program may make one for every batch."""
        self._made: list[weakref.ref[Any]] = []
        """Those of them that are alive, the last ones."""

    def is_made(self, making: FrameType, place: int, events: int) -> None:
        """An optimizer is made: ``making`` runs torch's ``__init__`` of all optimizers, after so many events."""
        # that function keeps its arguments alive by itself, so reading them here prolongs nothing
        given = making.f_locals
        optimizer = given.get("self")
        if optimizer is not None:
            alive = [made for made in self._made if made() is not None]
            self._made = [*alive[1 - _MOST_ALIVE :], weakref.ref(optimizer)]
        name = type(optimizer).__name__
        self.made.setdefault((name, place), Optimizer(name, place, _kind(given.get("params")), events))

    def done(self, number: int, ops: Sequence[GrowingOp]) -> None:
        """A step has ended; ``ops``: the distinct ops so far. What is kept is bounded, however many steps there are."""
        before, self._calls = self._calls, array("q", [op.count for op in ops])
        before.extend([0] * (len(ops) - len(before)))
        ran = _ranges([n for n, (then, now) in enumerate(zip(before, self._calls)) if now > then])
        self.seen = len(ops)
        entry = self._ran.get(ran)
        if entry is None and len(self._ran) == MOST_STEPS:
            last, entry = self._ran.popitem()
            both = {n for pairs in (last, ran) for a, b in zip(pairs[::2], pairs[1::2]) for n in range(a, b)}
            self._ran[_ranges(sorted(both))] = entry
        if entry is None:
            self._ran[ran] = [number, len(ops), number, 1]
        else:
            entry[2:] = number, entry[3] + 1

    def ended(self) -> tuple[tuple[int, ...], ...]:
        """See ``Recording.step_ends``."""
        return tuple((*entry, *ran) for ran, entry in self._ran.items())

    def begins(
        self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType, place: int, depth: int
    ) -> Running:
        """Records that a step is called with ``args`` and ``kwargs``, in torch's ``frame``, at a place, while ``depth``
        modules are running."""
        self.forget_left()
        step = Running(optimizer, iter((*args[1:], *kwargs.values())), frame, place, depth)
        # a step with this same frame id has been left: the memory of its frame is used again
        self.running[:] = [*(other for other in self.running if other.frame != step.frame), step]
        return step

    def ends(self, optimizer: Any) -> Running | None:
        """The step that ended; None where its beginning was not seen."""
        while self.running:
            step = self.running.pop()
            if step.ref() is optimizer:
                return step
        return None

    def forget_left(self) -> bool:
        """Removes steps that an exception has left, since no hook sees that; returns whether there were any."""
        on_stack = set()
        frame: FrameType | None = sys._getframe(1) if self.running else None
        while frame is not None:
            on_stack.add((id(frame), frame.f_code))
            frame = frame.f_back
        kept = [step for step in self.running if step.frame in on_stack]
        left = len(kept) < len(self.running)
        self.running[:] = kept
        return left

    def optimizer(self) -> Any:
        """The optimizer whose step is running, None outside any."""
        return self.running[-1].ref() if self.running else None

    def trained(self) -> Iterator[torch.Tensor]:
        """What the optimizers that are alive were given to train."""
        for made in self._made:
            groups = [g for g in getattr(made(), "param_groups", ()) if isinstance(g, dict)]
            for group in groups:  # until its __init__ has ended, one may have none
                yield from (p for p in group.get("params", ()) if isinstance(p, torch.Tensor) and p.requires_grad)

    def own_work(self, depth: int, place: int) -> bool:
        """Whether an op at a place, with ``depth`` modules running, is the innermost step's own work."""
        if not self.running:
            return False
        step = self.running[-1]
        if depth > step.depth:
            return False
        if not step.closures:
            return True
        known = step.known.get(place)
        if known is None:
            between = self._places.codes_between(place, step.place)
            known = step.known[place] = step.closures.isdisjoint(between)
        return known

    def raised_in(self, frames: list[FrameType]) -> bool:
        """Whether a traceback, innermost frame first, comes out of a step's own work."""
        steps = {step.frame: step for step in self.running}
        inside: set[CodeType] = set()
        for frame in frames:
            step = steps.get((id(frame), frame.f_code))
            if step is not None:
                return step.closures.isdisjoint(inside)
            inside.add(frame.f_code)
        return False


def _ranges(numbers: Sequence[int]) -> tuple[int, ...]:
    """Rising numbers as pairs of a first one and the one after the last: ``0 1 2 7`` is ``0 3 7 8``."""
    found: list[int] = []
    for number in numbers:
        if found and found[-1] == number:
            found[-1] = number + 1
        else:
            found += number, number + 1
    return tuple(found)


def _codes(value: Any) -> Iterator[CodeType]:
    """The code that runs when a callable is called, through partials, methods, decorators and ``__call__``."""
    seen: set[int] = set()
    waiting: list[Any] = [value] if callable(value) else []
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        code = getattr(one, "__code__", None)
        if isinstance(code, CodeType):
            yield code
        inner: list[Callable[..., Any]] = [found for name in _WRAPPED if callable(found := getattr(one, name, None))]
        if code is None and not inner:
            call = type(one).__call__
            inner = [call] if hasattr(call, "__code__") else []
        waiting += inner
