"""What a run has shown before: watching ends while nothing is new, and begins again before something is.

A call of an outermost module, and a few calls that change models, have a signature: the lines that lead to it, how the
module is set, autocast, and the dtypes of its arguments and weights. Only one that was not seen before is new. What is
kept is bounded, so a program of which each step is new is not watched for ever.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

from . import private

_FIRST = 12
"""Steps that are watched first. What is judged over several steps (weights that do not move, an optimizer's state,
casts that autocast keeps) is measured in nearly each of them, and short scripts are watched as a whole."""
_CALLS, _APART = 12_000, 200
"""Calls of operators that are recorded however much that costs. A model of so many that its first steps exceed them
is watched only while something is new, and then in one of so many steps."""
_QUIET = 3
"""Steps, or calls outside of steps, that show nothing new before watching ends."""
_LONGEST = 64
"""Steps that are watched in a row, at most: some programs show something new in each."""
_LINGERS = 48
"""Steps, or calls outside of steps, that are watched when damage to values begins: sums are judged by most of their
terms."""
_SPARE = 8
"""Calls from one line without a step between, or steps, after which watching is due when their number has doubled."""
_MANY = "many calls without a step"
_KNOWN, _LOOKS = 16, 5
"""After so many steps, only one in so many is looked at from outside. Odd, for steps that take turns."""
_HEARD, _FEW, _MOST_HEARD = 64, 16, 4096
"""Calls that are listened to after a step, beyond the usual ones; how many of a program that calls more modules in each
step, since listening costs some microseconds; and how many where there were never so many before."""
_MOST_PLACES, _MOST_AT_ONE = 512, 8
"""Lines that are distinguished, and signatures of one line: a value that differs in each call is not new for ever."""
_DEEPEST, _MOST_STACKS = 48, 512
"""The program's frames that are compared; stacks that are kept."""
_MOST_LEAVES = 64
"""Arguments of one call that are compared."""
_AT_ONCE = 8
"""Submodules whose weights are compared at each call, none where it does not pay to look: the dtypes of a large model
are compared over some steps."""
_MOST_SAID = 12
"""Ranges of watched steps that a report names."""
_NO_SHAPES: list[Any] = []
_PLAIN = (type(None), bool, torch.dtype)
_AUTOCAST = "cpu", "cuda"
"""The kinds of devices for which autocast may be on."""

_FOLDERS = private.TORCH_FOLDER, str(Path(__file__).parents[1]) + os.sep
_stacks: dict[tuple[int, ...], int] = {}
"""By the code and the instruction of each frame: the number of its lines. Python moves an instruction that it
specialises for what it is usually given: not the instruction is new, but the line."""
Look = Callable[[], tuple[int, ...]]
"""Counts what was recorded so far."""


class Span:
    """Steps that were watched in a row, and why."""

    __slots__ = ("first", "last", "why")

    def __init__(self, first: int, why: str = "") -> None:
        self.first, self.last, self.why = first, first, why


class Novelty:
    """Decides which steps are watched, from what is new in them.

    look: counts what was recorded; where no count rises during a step, the step has shown nothing new. first: steps
    that are watched first.
    """

    def __init__(self, first: int | None = None, look: Look = tuple) -> None:
        self.first = first or _FIRST
        self.look = look
        self.damaging: Callable[[], frozenset[int]] = frozenset
        """Asks which ops do damage to values; set by the watch. It may wait for a device, so it is asked seldom."""
        self.calls: Callable[[], int] = int
        """Asks how many calls of operators were recorded; set by the watch."""
        self._all_first = first is not None
        self._watched = 0
        """Steps that were watched."""
        self._damaging: frozenset[int] = frozenset()
        self._until = 0
        """The step up to which damage that has just begun is watched."""
        self.spans = [Span(1)]
        self._known: dict[int, _Line] = {}
        self._weights: dict[int, _Weights] = {}
        self._seen: tuple[int, ...] = ()
        self._quiet = 0
        self._settled = False
        """Whether the first steps are over."""
        self._soon = ""
        """Why the next step is watched, if that is known."""
        self._new_at = 0
        """The last step that showed something new after the first ones."""
        self._calls = self._quiet_calls = 0
        """Calls of outermost modules since the last step; those since the last new thing."""
        self._counts: list[int] = []
        """The calls of each of the first steps."""
        self._usual = 1
        """Their median."""
        self._steps = 0
        """Steps that have ended."""
        self._longest_yet = False
        """Whether the last call's line was never called so often between two steps."""
        self._evaluates = False
        """Whether watching began before a call without gradients: a loop that samples computes with its own results."""

    # ------------------------------------------------------------ which steps

    def wanted(self, number: int, awake: bool) -> bool:
        """Whether step ``number``, which begins now, is to be watched. ``awake``: whether the one before it was."""
        self._count(number)
        soon, self._soon = self._soon, ""
        if not awake:
            return (bool(soon) or self._due(number)) and self._begins(number, soon)
        span, showed = self.spans[-1], self._shows_new()
        span.last = number - 1
        self._watched += 1
        self._quiet = 0 if showed else self._quiet + 1
        if showed and self._settled:
            self._new_at = number - 1
        dear = self._is_dear(number)
        if number < self._until or number <= self.first and (self._all_first or not dear):
            return True
        news = span.why not in ("", _MANY)
        enough = _QUIET - dear if not self._settled else _QUIET if news and not dear else 1
        if self._quiet < enough and number - span.first < (_LONGEST if self._settled else self.first + _LONGEST):
            return True
        begins, settled = self._damage_begins(), self._settled
        self._settled = True
        if settled and begins:
            self._until = number + _LINGERS
        return settled and begins

    def _damage_begins(self) -> bool:
        before, now = self._damaging, self.damaging()
        self._damaging |= now
        return not now <= before

    def _count(self, number: int) -> None:
        if not self._settled and number > 1:  # before the first step, models are made and perhaps evaluated
            self._counts.append(self._calls)
            self._usual = sorted(self._counts)[len(self._counts) // 2]
        self._steps += 1
        self._calls = self._quiet_calls = 0

    def _due(self, number: int) -> bool:
        """Rarer and rarer: each time that the number of steps has doubled, from the beginning and from the last step
        that was new. A counter in 16 bits stops at a power of two, so it is the step after one."""
        done = number - 1
        since = done - self._new_at if self._new_at else 0
        due = not done & done - 1 or since >= _SPARE and not since & since - 1
        return due and not self._is_dear(number)

    def _is_dear(self, number: int) -> bool:
        """Whether more was recorded until step ``number`` than pays where nothing is new."""
        calls = self.calls()
        return (calls - _CALLS) * self._watched * _APART > calls * number

    def _begins(self, number: int, why: str) -> bool:
        self._seen, self._quiet = self.look(), 0
        self.spans.append(Span(number, why))
        return True

    def looks(self, number: int) -> bool:
        """Whether it pays to look where step ``number`` was called, and at a gradient: that takes longer than all else
        that is done in a step that is not watched. A call of a module has shown most of what is new."""
        return not self._calls or number <= _KNOWN or not number % _LOOKS

    def by_schedule(self, number: int) -> bool:
        """Whether step ``number``, which is watched, is so by schedule alone: nothing new has woken the Watch."""
        span = self.spans[-1]
        return self._settled and not span.why and span.first == number

    def soon(self, why: str) -> None:
        """Something new happened where watching cannot begin: the next step is watched."""
        self._soon = why

    def woken(self, number: int, why: str) -> None:
        """Watching begins in step ``number``, before something new."""
        self._begins(number, why)
        self._quiet_calls = 0
        self._evaluates = not torch.is_grad_enabled() and why != _MANY

    def _shows_new(self) -> bool:
        before, self._seen = self._seen, self.look()
        return self._seen != before

    def over(self, number: int) -> bool:
        """Called before a call of an outermost module that is watched, in step ``number``: whether watching ends here,
        because the calls before it have shown nothing new and no step has ended for long."""
        self.spans[-1].last = number
        self._quiet_calls = 0 if self._shows_new() else self._quiet_calls + 1
        enough = _QUIET - (self.spans[-1].why == _MANY)
        if self._evaluates and not self._is_dear(number):
            enough = _LINGERS
        if not self._settled or self._quiet_calls < enough or self._calls < self._usual + _QUIET:
            return False
        if begins := self._damage_begins():
            self._quiet_calls = -_LINGERS
        return not begins

    def hears(self, heard: int) -> bool:
        """Whether the next call is listened to, after so many since the last step."""
        if self._longest_yet:
            return heard <= _MOST_HEARD
        return heard <= (self._usual + _HEARD if self._usual <= _FEW else _FEW)

    def said(self, steps: int) -> dict[str, Any]:
        """Which of so many steps were watched, for a recording's ``meta``: the number of those watched, of all, and in
        words: ``14 of 5,000 steps: 1-6, 200 (a new optimizer), 1,024``; empty where all were."""
        within = [s for s in self.spans if s.first <= steps]
        watched = {n for s in within for n in range(s.first, min(s.last, steps) + 1)}
        if len(watched) >= steps:
            return {}
        parts = [_named(s.first, min(s.last, steps), s.why) for s in within]
        if len(within) < len(self.spans):
            parts.append("after the last one")
        if len(parts) > _MOST_SAID:
            parts[_MOST_SAID - 2 : -1] = [f"{len(parts) - _MOST_SAID + 1:,} more times"]
        said = f"{len(watched):,} of {steps:,} steps: {', '.join(parts)}"
        return {"watched": said, "watched_steps": len(watched), "all_steps": steps}

    # ------------------------------------------------------------ what is new

    def called(
        self,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        frame: FrameType,
        counts: Callable[[], bool] = lambda: True,
    ) -> str:
        """An outermost module, or a compiled function, is called, in torch's ``frame``: what is new about it, empty for
        nothing. Where ``counts`` says no, something new stays new."""
        module = function if isinstance(function, nn.Module) else getattr(function, "__self__", None)
        self._calls += 1
        with private.DisableTorchFunction():
            seen: list[Any] = [type(module), torch.is_grad_enabled(), torch.is_inference_mode_enabled()]
            shapes: list[Any] = []
            _describe((args, kwargs) if kwargs else args, seen, shapes)
            if private.any_autocast_enabled():
                seen += [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in _AUTOCAST]
            if isinstance(module, nn.Module):
                seen += getattr(module, "training", None), self._dtypes(module)  # a frozen script has none
        line = self._line(_stack(frame))
        self._longest_yet = line is not None and line.counts(self._steps)
        if line is None:
            return ""
        if line.is_new(tuple(seen), shapes, counts):
            return "a call that was not seen before"
        if not self._longest_yet:
            return ""
        done = line.calls - 1
        doubled = done >= _SPARE and not done & done - 1
        return _MANY if doubled and (done >= _HEARD or not self._is_dear(self._steps)) and counts() else ""

    def happens(self, what: str, frame: FrameType | None, *, each: bool = False) -> bool:
        """Something that changes models or dtypes is about to happen; returns whether it is new at these lines. each:
        the first few times at one line are new, too."""
        line = self._line(_stack(frame))
        return line is not None and line.is_new((what, len(line.seen) if each else 0), _NO_SHAPES)

    def _line(self, place: int) -> _Line | None:
        line = self._known.get(place)
        if line is None and len(self._known) < _MOST_PLACES:
            line = self._known[place] = _Line()
        return line

    def _dtypes(self, module: nn.Module) -> int:
        known = self._weights.get(id(module))
        if known is None or known.module() is not module:
            if len(self._weights) >= _MOST_PLACES:
                self._weights.clear()
            known = self._weights[id(module)] = _Weights(module)
        return known.dtypes(_AT_ONCE if self.looks(self._steps + 1) else 0)


def _named(first: int, last: int, why: str) -> str:
    steps = f"{first:,}" if first == last else f"{first:,}-{last:,}"
    return f"{steps} ({why})" if why else steps


class _Line:
    """What was called from a line, and how often since the last step."""

    __slots__ = ("seen", "calls", "_longest", "_step")

    def __init__(self) -> None:
        self.seen: dict[Any, list[Sequence[int]]] = {}
        """By signature: the sizes that never varied, -1 for others."""
        self.calls = self._longest = self._step = 0

    def is_new(self, signature: Any, shapes: list[Any], counts: Callable[[], bool] = lambda: True) -> bool:
        known = self.seen.get(signature)
        if known is None:
            if len(self.seen) >= _MOST_AT_ONE or not counts():
                return False
            self.seen[signature] = shapes
            return True
        return known != shapes and counts() and _varies(known, shapes)

    def counts(self, step: int) -> bool:
        """Counts a call after so many steps; returns whether there were never so many between two steps."""
        if step != self._step:
            self._longest, self.calls, self._step = max(self._longest, self.calls), 0, step
        self.calls += 1
        return self.calls > self._longest


class _Weights:
    """The dtypes of a model's weights, compared bit by bit. It keeps no reference to a tensor."""

    def __init__(self, module: nn.Module) -> None:
        self.module = weakref.ref(module)
        self._read(module)

    def _read(self, module: nn.Module) -> None:
        self._parts = [(weakref.ref(part), _of(part)) for part in module.modules() if part._parameters]
        self._digest = hash(tuple([dtypes for _, dtypes in self._parts]))
        self._next = 0

    def dtypes(self, at_once: int = _AT_ONCE) -> int:
        end = self._next + at_once
        for ref, dtypes in self._parts[self._next : end]:
            if (part := ref()) is None or _of(part) != dtypes:
                module = self.module()
                if module is not None:
                    self._read(module)
                return self._digest
        self._next = end if end < len(self._parts) else 0
        return self._digest


def _of(part: nn.Module) -> tuple[Any, ...]:
    return tuple([(p.dtype, p.requires_grad) for p in part._parameters.values() if p is not None])


def _stack(frame: FrameType | None) -> int:
    """A number for the program's lines that lead to a frame: those of torch and ours differ in watched steps."""
    each: list[int] = []
    append, above, left = each.append, frame, 4 * _DEEPEST
    while above is not None and left:
        append(id(above.f_code))
        append(above.f_lasti)
        above = above.f_back
        left -= 1
    key = tuple(each)
    known = _stacks.get(key)
    if known is None:
        if len(_stacks) >= _MOST_STACKS:
            _stacks.clear()
        known = _stacks[key] = _of_lines(frame)
    return known


def in_folders(frame: FrameType) -> bool:
    """Whether a frame is torch's or ours."""
    return frame.f_code.co_filename.startswith(_FOLDERS)


def _of_lines(frame: FrameType | None) -> int:
    lines: list[int] = []
    while frame is not None and len(lines) < 2 * _DEEPEST:
        if not in_folders(frame):
            lines += id(frame.f_code), frame.f_lineno
        frame = frame.f_back
    return hash(tuple(lines))


def _describe(arguments: Iterable[Any], seen: list[Any], shapes: list[Any]) -> None:
    """Appends what decides dtypes about arguments, and the shapes of tensors."""
    for value in arguments:
        if len(seen) > _MOST_LEAVES:
            return
        if isinstance(value, torch.Tensor):
            shape = value.shape if not value.is_nested else ()
            shapes.append(shape)
            seen.append((type(value), value.dtype, value.device, value.layout, value.requires_grad, len(shape)))
        elif isinstance(value, dict):
            seen += [key if isinstance(key, str) else type(key) for key in islice(value, _MOST_LEAVES)]
            _describe(value.values(), seen, shapes)
        elif isinstance(value, (tuple, list)):
            seen.append(type(value))
            _describe(value, seen, shapes)
        else:
            seen.append(value if isinstance(value, _PLAIN) else type(value))


def _varies(known: list[Sequence[int]], shapes: list[Sequence[int]]) -> bool:
    """Whether a size differs that was the same in all calls before; from now on it may differ."""
    new = False
    for index, (before, now) in enumerate(zip(known, shapes)):
        if before != now and any(old != size and old >= 0 for old, size in zip(before, now)):
            known[index], new = [old if old == size else -1 for old, size in zip(before, now)], True
    return new
