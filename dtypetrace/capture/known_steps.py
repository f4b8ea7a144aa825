"""Optimizer steps whose ops are known, in a window of a run that sleeps: their ops are not seen one by one.

An optimizer's step is judged as a whole, by what it does to weights and state (:mod:`.updates`). Of its ops only those
in 16 bits are measured in later steps, and those near the limits of their dtype. Where no op of a step is, where each
watched step of this optimizer ran the same ops, and where its parameters, gradients, state and settings are as they
were then, its ops show nothing. So the modes are off inside it, and its ops are counted as they ran before.
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from . import private
from .novelty import Novelty
from .ops import GrowingOp
from .session import Session
from .steps import Running

Tensor = torch.Tensor
_LEAST = 2
"""Steps in a row that ran the same ops, before another one is known."""
_PLAIN = (type(None), bool, str, torch.dtype)


class _Known:
    """What the watched steps of one optimizer had in common."""

    __slots__ = ("ref", "signature", "ran", "steps", "varies")

    def __init__(self, optimizer: Any) -> None:
        self.ref = weakref.ref(optimizer)
        self.signature = 0
        self.ran: list[tuple[int, int]] = []
        """The ops that ran, with the number of their calls."""
        self.steps = 0
        """In how many steps in a row."""
        self.varies = False
        """Whether steps that looked alike ran other ops."""


class KnownSteps:
    """Takes the modes off in known steps of one run. ``off`` and ``on``: take the modes off, and put them back."""

    def __init__(self, recorder: Session, novelty: Novelty, off: Callable[[], bool], on: Callable[[], bool]) -> None:
        self._recorder, self._novelty = recorder, novelty
        self._off, self._on = off, on
        self._known: dict[int, _Known] = {}
        self._running: Running | None = None
        """The step that is being watched as a whole."""
        self.inside: Running | None = None
        """The known step that runs, or that an exception has left."""
        self._signature = 0
        self._before = array("q")

    def begins(self, optimizer: Any, step: Running, number: int) -> None:
        """A step of an optimizer begins, in the step ``number`` of the run."""
        self._running = None
        if self.inside is not None or step.depth or step.closures or private.current_graph_task_id() != -1:
            return
        with private.DisableTorchFunction():
            signature = _signature(optimizer, step.place)
        if signature is None:
            return
        known = self._of(optimizer)
        same = known.signature == signature and known.steps >= _LEAST and not known.varies
        if same and self._novelty.by_schedule(number) and self._shows_nothing(known):
            self.inside = step  # first: an interrupt may come before the modes are off
            if self._off():
                for op, calls in known.ran:
                    self._recorder.ops[op].count += calls
                self._recorder.origins.still |= set(_ids(optimizer.state))
            else:
                self.inside = None
            return
        self._running, self._signature = step, signature
        self._before = array("q", [op.count for op in self._recorder.ops])

    def ends(self, optimizer: Any, step: Running | None) -> bool:
        """A step has ended; returns whether it was a known one."""
        if self.inside is not None and self.inside is step:
            self._come_back()
            return True
        running, self._running = self._running, None
        if running is not None and running is step:
            self._learn(self._of(optimizer))
        return False

    def look(self) -> None:
        """Puts the modes back after an exception has left a known step."""
        if self.inside is not None and self.inside not in self._recorder.running_steps:
            self._come_back()

    def _come_back(self) -> None:
        if self._on():
            self.inside = None
            self._recorder.thread_state().sequence = private.next_sequence_number()

    def _of(self, optimizer: Any) -> _Known:
        known = self._known.get(id(optimizer))
        if known is None or known.ref() is not optimizer:
            self._known = {key: one for key, one in self._known.items() if one.ref() is not None}
            known = self._known[id(optimizer)] = _Known(optimizer)
        return known

    def _learn(self, known: _Known) -> None:
        ops, before = self._recorder.ops, self._before
        ran = [(n, op.count - then) for n, (op, then) in enumerate(zip(ops, before)) if op.count != then]
        ran += [(n, ops[n].count) for n in range(len(before), len(ops))]
        if known.signature != self._signature:
            known.signature, known.ran, known.steps, known.varies = self._signature, ran, 1, False
        elif ran == known.ran:
            known.steps += 1
        else:
            known.varies = True

    def _shows_nothing(self, known: _Known) -> bool:
        """Whether none of the ops of a step is measured."""
        recorder = self._recorder
        if recorder.reference is not None or recorder.broken:
            return False
        return not any(_tells(recorder, recorder.ops[n]) for n, _ in known.ran)


def _tells(recorder: Session, op: GrowingOp) -> bool:
    """Whether a later call of an op may be judged by itself."""
    dtypes = (*op.outputs, *[operand[0] for operand in op.operands])
    if op.phase != "optimizer" or op.unsure or any(d.itemsize < 4 and d is not torch.bool for d in dtypes):
        return True
    return recorder.values is not None and recorder.values.looks_at(op)


def _signature(optimizer: Any, place: int) -> int | None:
    """A number for all that decides which ops a step runs, in which dtypes; None where hooks or classes of the
    program's own take part."""
    if any(getattr(optimizer, name, None) for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")):
        return None
    seen: list[Any] = [place, torch.get_default_dtype(), torch.is_grad_enabled(), private.any_autocast_enabled()]
    states = optimizer.state
    for group in optimizer.param_groups:
        seen += [(name, _setting(value)) for name, value in group.items() if name != "params"]
        for parameter in group["params"]:
            if type(parameter) not in (Tensor, torch.nn.Parameter):
                return None
            gradient, state = parameter.grad, states.get(parameter)
            if gradient is not None and type(gradient) is not Tensor:
                return None
            seen += id(parameter), parameter.dtype, parameter.device, parameter.requires_grad
            seen += (None,) if gradient is None else (gradient.dtype, gradient.layout)
            if isinstance(state, Mapping):
                seen += [(name, _setting(value)) for name, value in state.items()]
    return hash(tuple(seen))


def _setting(value: Any) -> Any:
    """What decides dtypes about a setting or an entry of the state."""
    if isinstance(value, Tensor):
        return type(value), value.dtype, value.device, value.dim()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return type(value), not value
    if isinstance(value, (tuple, list)):
        return type(value), *map(_setting, value)
    return value if isinstance(value, _PLAIN) else type(value)


def _ids(states: Any) -> Iterator[int]:
    for state in states.values():
        if isinstance(state, Mapping):
            yield from [id(value) for value in state.values() if isinstance(value, Tensor)]
