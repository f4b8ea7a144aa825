"""The casts that healing inserts, and their record in the refusal that they heal."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import torch

from ..capture.calls import dtype_name
from ..capture.marks import RawEvent
from ..capture.protocols import Context
from ..records import Cast
from .handled import handled

Tensor = torch.Tensor


class Casting:
    """Casts tensors for the refusals of one trace."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.recorder = context.recorder

    def may_heal(self, error: Exception) -> bool:
        """Whether nothing inside the trace handles the exception: healing leaves alone what the program handles
        itself."""
        return not handled(error, sys._getframe(1), self.recorder.places.hidden, self.context.opened)

    def cast(self, value: Tensor, dtype: torch.dtype, others: list[Any], number: int) -> Tensor:
        """The tensor in another dtype. The cast's origin is that of the operand whose dtype it takes; where no operand
        has it, that of the value, and the event names the refusal (``number``).

        Autograd sees the cast; the recording does not, because the program did not write it.
        """
        with self.context.unrecorded():
            made = value.to(dtype)
        if type(made) is not type(value) and type(value) not in (torch.nn.Parameter, torch.nn.Buffer):
            made = made.as_subclass(type(value))  # torch functions are off for subclasses here
        origins = self.recorder.origins
        alike = (origins.of(t) for t in others if isinstance(t, Tensor) and t.dtype is dtype)
        mark = next((m for m in alike if m is not None), None)
        own = origins.mark_of(value)
        before: int | None = getattr(own, "was", None)
        if before is not None and origins.events[before].to is dtype:  # the step before the program changed its dtype
            origins.mark(made, before, own.op)
        elif mark is not None:
            origins.mark(made, mark.event, mark.op)
        else:
            origins.mark(made, self._decided(own.event, value.dtype, dtype, number), own.op)
        return made

    def swap(self, number: int, name: str, tensor: Tensor, dtype: torch.dtype, owner: Tensor | None = None) -> None:
        """Gives a tensor that is in no graph another dtype for good; the object stays the same. ``owner``: the
        parameter whose dtype that is, for its gradient."""
        was = tensor.dtype
        self.note_one(number, name, was, dtype)
        with self.context.unrecorded(), torch.no_grad():
            tensor.data = tensor.detach().to(dtype)
        origins = self.recorder.origins
        if owner is None:
            own = origins.mark_of(tensor)
            origins.mark(tensor, self._decided(own.event, was, dtype, number), own.op)
        elif (mark := origins.of(owner)) is not None:
            origins.mark(tensor, mark.event, -1)

    def _decided(self, event: int, was: torch.dtype, dtype: torch.dtype, number: int) -> int:
        """The event of a dtype that only healing gave to a tensor which that event had made."""
        origins = self.recorder.origins
        step = RawEvent("cast", "to", origins.events[event].place, -1, (was,), dtype, healed=number)
        return origins.event(step)

    def note(self, number: int, casts: list[Cast]) -> None:
        """Adds what was inserted to a refusal: each distinct cast with its count."""
        kept = {(c.argument, c.source, c.to): c for c in self.recorder.refusals.records[number].casts}
        for c in casts:
            known = kept.get((c.argument, c.source, c.to))
            kept[c.argument, c.source, c.to] = replace(known, count=known.count + 1) if known else c
        self.recorder.refusals.update(number, healed=True, casts=tuple(kept.values()))

    def note_one(self, number: int, argument: str, source: torch.dtype, to: torch.dtype) -> None:
        """Like :meth:`note`, for one argument."""
        self.note(number, [Cast(argument, dtype_name(source), dtype_name(to))])
