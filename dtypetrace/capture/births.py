"""Which event decided a tensor's dtype: the choice behind every event.

Called only where an operator's output does not simply have its operands' dtype, and where the function mode knows more
than the dispatch mode: a dtype that the call names, the tensor that it was read from, autocast, the registration of a
parameter.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any, NamedTuple

import torch

from ..tables.operators import CAST_METHODS, NAMED_CASTS, names, tagged
from . import private
from .calls import (
    LIFT_FRESH,
    TO_COPY,
    autocast_dtype,
    decider,
    named_dtype,
    named_tensor,
    op_name,
    tensors_in,
)
from .clock import Clock
from .marks import Mark, Origins, RawEvent, RawRead
from .running import ARGS, AUTOCAST, FUNCTION, KWARGS, InnerRead, RunningCall, SeenRead, Thread

Tensor = torch.Tensor
_KEPT_READS = 16
"""Reads of ``tensor.dtype`` that are remembered: a dtype is usually used soon after it was read."""
_READ_DEPTH = 6
"""Frames that are compared to recognise a frame that is still running."""
_CANDIDATES = 4
"""Reads that are recorded for one call; when the trace ends, the program's text decides between them."""

LIKE = frozenset(getattr(torch.ops.aten, name).default for name in names("like") if hasattr(torch.ops.aten, name))
_VIEW_DTYPE = torch.ops.aten.view.dtype
_SET_STORAGE = torch.ops.aten.set_.source_Storage_storage_offset
_RETURNS_ITS_OWN = NAMED_CASTS | {"as_tensor", "asarray"}
"""Calls that may name the dtype that a tensor has, and return this tensor."""
_DECIDED_BY_CALL = frozenset({"cast", "factory", "promotion", "conversion"})
"""Kinds of events where the call itself may have named the dtype."""


class Made(NamedTuple):
    """One output of an operator: the operator, its operands, the place, and the torch function around it, if any."""

    func: Any
    inputs: Sequence[Tensor]
    dtypes: tuple[torch.dtype, ...]
    made: torch.dtype
    place: int
    module: int
    call: RunningCall | None
    forward_op: int = -1

    @property
    def name(self) -> str:
        """The name of the function that the code called."""
        return op_name(self.call[FUNCTION] if self.call else self.func)

    @property
    def floating(self) -> list[tuple[Tensor, torch.dtype]]:
        """The operands that take part in floating point promotion."""
        return [(t, d) for t, d in zip(self.inputs, self.dtypes) if d.is_floating_point or d.is_complex]

    @property
    def wide(self) -> bool:
        """Whether an operand with dimensions is of the output's kind: those without any do not widen it."""
        return any(t.dim() and d.is_complex == self.made.is_complex for t, d in self.floating)

    @property
    def source(self) -> tuple[torch.dtype, ...]:
        """The floating dtypes of the operands."""
        return tuple(dict.fromkeys(d for _, d in self.floating))

    @property
    def distinct(self) -> tuple[torch.dtype, ...]:
        """All dtypes of the operands."""
        return tuple(dict.fromkeys(self.dtypes))

    @property
    def explicit(self) -> bool:
        """Whether the call names a dtype."""
        return self.call is not None and named_dtype(self.call[ARGS], self.call[KWARGS]) is not None

    def event(self, how: str, source: tuple[torch.dtype, ...], **more: Any) -> RawEvent:
        """An event at this place, to the dtype of the output."""
        return RawEvent(how, self.name, self.place, self.module, source, self.made, **more)


class Called(NamedTuple):
    """A torch function that has returned, as the function mode sees it; ``frame`` called it."""

    thread: Thread
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any] | None
    out: Any
    frame: FrameType | None


class Births:
    """Decides the events of one recording."""

    def __init__(self, clock: Clock, origins: Origins) -> None:
        self.clock = clock
        self.origins = origins
        self.places = clock.places
        self.unchanged: dict[tuple[int, int, int, int], tuple[str, torch.dtype, tuple[RawRead, ...], bool]] = {}
        """Casts that changed nothing, by place, module, and the tensor's event and op."""

    def decide(self, outcome: Made) -> int:
        """The event of an output whose dtype not all operands share."""
        func, made = outcome.func, outcome.made
        named_cast = outcome.call is not None and outcome.name in NAMED_CASTS
        if named_cast and func is not TO_COPY:  # in inference mode `to` and `type_as` arrive undecomposed
            source = outcome.source or outcome.dtypes[:1]
            return self.origins.event(outcome.event("cast", source, explicit=True))
        same = [t for t, d in zip(outcome.inputs, outcome.dtypes) if d is made]
        if same and (same[decider(same)].dim() or not outcome.wide):
            return self._of_operand(outcome, same)
        if func is TO_COPY:
            return self._cast(outcome)
        if func is _VIEW_DTYPE:
            return self.origins.event(outcome.event(_birth_kind("reinterpret"), outcome.dtypes))
        if made.is_floating_point or made.is_complex:
            return self._floating_of_others(outcome)
        return self.origins.event(outcome.event("factory", outcome.source))

    def _of_operand(self, outcome: Made, same: list[Tensor]) -> int:
        """Some operand already has the output's dtype: it promoted the narrower ones, if any."""
        made = outcome.made
        mark = self.origins.adopt(same[decider(same)], outcome.place, outcome.forward_op)
        if not (made.is_floating_point or made.is_complex):
            return mark.event
        dims = any(t.dim() for t in same)
        for tensor, dtype in outcome.floating:
            if dtype is not made and dtype.itemsize <= made.itemsize and (tensor.dim() or not dims):
                return self.origins.event(outcome.event("promotion", outcome.source, parents=(mark.event,)))
        return mark.event

    def _cast(self, outcome: Made) -> int:
        """A copy in another dtype: the program's cast, or autocast's."""
        call, made = outcome.call, outcome.made
        source = outcome.source or outcome.dtypes[:1]
        if call is None or outcome.name in NAMED_CASTS or outcome.explicit or not call[AUTOCAST]:
            return self.origins.event(outcome.event("cast", source, explicit=True))
        # autocast's own cast: to its dtype, or to the widest operand of an op on its promote list
        for other in tensors_in(call[ARGS], call[KWARGS]):
            if other.dtype is made:
                mark = self.origins.mark_of(other, outcome.place)
                return self.origins.event(outcome.event("promotion", (*outcome.source, made), parents=(mark.event,)))
        return self.origins.event(outcome.event("autocast", source))

    def _floating_of_others(self, outcome: Made) -> int:
        """A floating output whose dtype no operand has."""
        made, floating, source = outcome.made, outcome.floating, outcome.source
        if outcome.explicit and tagged(outcome.name, "like"):  # ones_like(x, dtype=...) takes only the shape of x
            return self.origins.event(outcome.event("factory", (), explicit=True))
        if outcome.explicit:
            return self.origins.event(outcome.event("cast", source or outcome.distinct, explicit=True))
        if not floating:
            default = self._default_place(made)
            return self.origins.event(outcome.event("promotion", outcome.distinct, default=default))
        parents = tuple(
            dict.fromkeys(self.origins.adopt(t, outcome.place, outcome.forward_op).event for t, _ in floating)
        )
        if len(source) == 1 and source[0].is_complex != made.is_complex:
            # abs, view_as_real, fft: the same precision in another form
            return self.origins.event(outcome.event("form", source, parents=parents))
        if made.itemsize >= max(d.itemsize for d in source):
            return self.origins.event(outcome.event("promotion", source, parents=parents))
        return self.origins.event(outcome.event("cast", source))

    def _default_place(self, made: torch.dtype) -> int:
        """Where the default dtype was set, if the output has its dtype because that is the default."""
        return self.clock.default_place if made is torch.get_default_dtype() else -1

    def birth(self, outcome: Made, thread: Thread) -> int:
        """The event of a tensor that was made from no other tensor."""
        func, made, call = outcome.func, outcome.made, outcome.call
        name, explicit = outcome.name, outcome.explicit
        if explicit and thread.inside is not None and thread.inside.dtype is made and self._inside(thread.inside.frame):
            return thread.inside.event  # torch.eye(n, dtype=x.dtype) in torch's own code: x decided
        if call is not None and not explicit and func is not LIFT_FRESH:
            like = next((t for t in tensors_in(call[ARGS], call[KWARGS]) if t.dtype is made), None)
            if like is not None:  # pad_sequence: an empty tensor made inside the call, in the dtype of its argument
                return self.origins.mark_of(like, outcome.place).event
        how = "factory"
        if func is LIFT_FRESH or tagged(name, "conversion") or func is _SET_STORAGE:
            how = "conversion"
            if name == "lift_fresh":
                name = "from_numpy"
        default = self._default_place(made) if not explicit else -1
        event = RawEvent(how, name, outcome.place, outcome.module, (), made, default=default, explicit=explicit)
        number = self.origins.number(event)
        if number is None:
            how = _birth_kind(how)
            number = self.origins.event(event._replace(how=how))
            if how != event.how:
                self.origins.same_as(event, number)
        return number

    def like(self, outcome: Made) -> int:
        """The event of integers or booleans made by a function such as ``ones_like``.

        Called by the program, ``ones_like(tokens)`` decides that its ones are integers. Called inside another torch
        function, it decides nothing.
        """
        name = op_name(outcome.func)
        if outcome.call is None or outcome.name != name:
            return self.origins.mark_of(outcome.inputs[0], outcome.place).event
        return self.origins.event(outcome.event("factory", (), explicit=outcome.explicit))

    def _inside(self, frame_id: int) -> bool:
        """Whether torch's own code, in the frame of that id, makes the call."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and self.places.own(frame.f_code.co_filename):
            frame = frame.f_back
        return frame is not None and id(frame) == frame_id and self.places.hidden(frame.f_code.co_filename)

    # ------------------------------------------------------------ what only the function mode knows

    def read_dtype(self, thread: Thread, tensor: Tensor, dtype: torch.dtype, frame: FrameType | None) -> None:
        """Remembers a read of ``tensor.dtype``: the value may decide another tensor's dtype."""
        if frame is None:
            return
        if self.places.hidden(frame.f_code.co_filename):
            known = self.origins.of(tensor)
            thread.inside = InnerRead(id(frame), dtype, known.event) if known is not None else None
            return
        mark = self.origins.of(tensor)
        if mark is None:
            mark = self.origins.mark_of(tensor, self.clock.place(thread, frame))
        place = self.clock.place(thread, frame)
        reads = thread.reads
        event = self._before_settled(mark.event)
        reads.append(SeenRead(dtype, place, event, self._stack(frame), len(thread.modules), mark.op))
        if len(reads) > _KEPT_READS:
            del reads[0]

    def _names_dtype(self, event: int) -> bool:
        """Whether a cast on the way to an event named the dtype that was there already."""
        while event >= 0:
            known = self.origins.events[event]
            if known.how == "attribute" and known.explicit:
                return True
            event = known.parents[0] if known.parents else -1
        return False

    def _before_settled(self, event: int) -> int:
        """The event of a tensor whose dtype is read, without casts that changed nothing: what such a cast returned is
        the tensor itself, so whether the reader means that result cannot be seen."""
        known = self.origins.events[event]
        while known.how == "attribute" and known.explicit and known.parents:
            event = known.parents[0]
            known = self.origins.events[event]
        return event

    def _stack(self, frame: FrameType | None) -> list[tuple[int, int]]:
        """The nearest frames outside torch, as ids of frame and code: enough to recognise a frame that is still
        running."""
        frames: list[tuple[int, int]] = []
        while frame is not None and len(frames) < _READ_DEPTH:
            if not self.places.hidden(frame.f_code.co_filename):
                frames.append((id(frame), id(frame.f_code)))
            frame = frame.f_back
        return frames

    def reads_for(self, thread: Thread, dtype: torch.dtype, frame: FrameType | None) -> tuple[RawRead, ...]:
        """The reads that may have given a call its dtype argument, nearest first: reads in the same running frame, or
        else in one of its callers. When the trace ends, the program's text decides between them."""
        here = self._stack(frame)
        found: dict[int, tuple[int, RawRead]] = {}
        for read in reversed(thread.reads):
            if read.dtype is not dtype or read.place in found:
                continue
            up = next((i for i, f in enumerate(read.frames) if f in here), -1)
            if up >= 0:
                down = here.index(read.frames[up])
                # an id may have belonged to another frame that has ended; for the same running frame, the callers are
                # the same too
                if all(a == b for a, b in zip(read.frames[up:], here[down:])):
                    found[read.place] = (down, RawRead(dtype, read.place, read.event, up, read.op))
        nearest = sorted(found.values(), key=lambda entry: entry[0])[:_CANDIDATES]
        return tuple(read for _, read in nearest)

    def called(self, call: Called) -> None:
        """After a torch function: what only the function mode knows of its output's dtype."""
        args, kwargs, out = call.args, call.kwargs, call.out
        if not isinstance(out, Tensor):
            if isinstance(out, tuple) and tagged(op_name(call.func), "values_and_indices"):
                self._fixed(call, op_name(call.func), out[1:])
            return
        name = op_name(call.func)
        mark = self.origins.of(out) or self._unseen(call)
        if tagged(name, "indices"):
            self._fixed(call, name, (out,))
        elif tagged(name, "like"):
            self._made_like(call, mark, name)
        other: Any = named_dtype(args, kwargs)
        if other is None and name in NAMED_CASTS:
            other = named_tensor(args, kwargs)
        if args and out is args[0] and (other is not None or name in CAST_METHODS) and name in _RETURNS_ITS_OWN:
            self._note_unchanged(call, mark, other, name)
            if other is None:
                self._settled(call, mark, name)
        if other is not None:
            self._attribute(call, mark, other, name)
        elif name not in NAMED_CASTS and private.any_autocast_enabled() and out.dtype == autocast_dtype(out):
            tensors = tensors_in(args, kwargs)
            operands = {t.dtype for t in tensors if t.dtype.is_floating_point}
            if operands - {out.dtype} and not any(out is t for t in tensors):
                source = tuple(sorted(operands, key=str))
                event = RawEvent(
                    "autocast", name, self.clock.place(call.thread, call.frame), call.thread.module, source, out.dtype
                )
                mark.event = self.origins.event(event)

    def _made_like(self, call: Called, mark: Mark, name: str) -> None:
        """A floating tensor that the program made like another one: it chose that tensor, and names no dtype."""
        args, out = call.args, call.out
        if not (args and isinstance(args[0], Tensor) and args[0].dtype is out.dtype and out.is_floating_point()):
            return
        if named_dtype(args, call.kwargs) is not None or self._is_hidden(call):
            return
        place = self.clock.place(call.thread, call.frame)
        known = self.origins.mark_of(args[0], place)
        reads = (RawRead(out.dtype, place, known.event, -1, known.op),)
        mark.event = self.origins.event(
            RawEvent("factory", name, place, call.thread.module, (), out.dtype, reads=reads)
        )

    def _is_hidden(self, call: Called) -> bool:
        """Whether torch's own code made a call."""
        frame = self.places.outside(call.frame)
        return frame is None or self.places.hidden(frame.f_code.co_filename)

    def _fixed(self, call: Called, name: str, made: Sequence[Any]) -> None:
        """Results that always have one integer dtype: the call is their birth, not the operands."""
        place = self.clock.place(call.thread, call.frame)
        for out in made:
            if isinstance(out, Tensor) and not out.is_floating_point() and (mark := self.origins.of(out)) is not None:
                mark.event = self.origins.event(RawEvent("factory", name, place, call.thread.module, (), out.dtype))

    def _unseen(self, call: Called) -> Mark:
        """Marks the output of a function that the dispatch mode did not see run."""
        place, out = self.clock.place(call.thread, call.frame), call.out
        operands = [t for t in tensors_in(call.args, call.kwargs) if t.dtype is out.dtype]
        if operands:
            known = self.origins.mark_of(operands[decider(operands)], place)
            return self.origins.mark(out, known.event, known.op)
        running: RunningCall = [call.func, call.args, call.kwargs, place, False]
        outcome = Made(call.func, (), (), out.dtype, place, -1, running)
        return self.origins.mark(out, self.birth(outcome, call.thread), -1)

    def _reads(self, call: Called, other: Any, place: int) -> tuple[RawRead, ...]:
        """The reads that may have given a call its dtype argument."""
        if isinstance(other, Tensor):  # x.to(other), type_as: certainly the other tensor's dtype
            known = self.origins.mark_of(other, place)
            return (RawRead(other.dtype, place, self._before_settled(known.event), -1, known.op),)
        given = other is not None and call.thread.reads
        return self.reads_for(call.thread, call.out.dtype, call.frame) if given else ()

    def _note_unchanged(self, call: Called, mark: Mark, other: Any, name: str) -> None:
        """Remembers a cast to the dtype that the tensor already has: for another dtype, it would have been real."""
        if call.out.dtype.is_floating_point:
            place, frame = self.clock.place(call.thread, call.frame), self.places.outside(call.frame)
            reads = self._reads(call, other, place)
            key = place, call.thread.module, mark.event, mark.op
            by_module = frame is not None and frame.f_code.co_filename.endswith("torch/nn/modules/module.py")
            self.unchanged.setdefault(key, (name, call.out.dtype, reads, by_module))

    def _attribute(self, call: Called, mark: Mark, other: Any, name: str) -> None:
        """The call named a dtype. If the dtype was read from a tensor, that tensor's origin matters too."""
        origins, out = self.origins, call.out
        place = self.clock.place(call.thread, call.frame)
        reads = self._reads(call, other, place)
        event = origins.events[mark.event]
        same = bool(call.args) and out is call.args[0]
        if not reads:
            if same and name in _RETURNS_ITS_OWN:
                self._settled(call, mark, name)
            return
        if same:  # nothing changed
            own = origins.root(mark.event)
            others = tuple(r for r in reads if origins.root(r.event) != own)
            if not others and self._names_dtype(mark.event):
                mark.event = reads[0].event  # it was computed from that tensor: a cast that named the dtype is undone
            reads = others
            if reads and not (event.how == "attribute" and event.place == place and event.reads == reads):
                module, dtype = call.thread.module, out.dtype
                new = RawEvent("attribute", name, place, module, (dtype,), dtype, (mark.event,), reads)
                mark.event = origins.event(new)
        elif event.how in _DECIDED_BY_CALL and event.place == place and not event.parents:
            mark.event = origins.event(event._replace(reads=reads))

    def _settled(self, call: Called, mark: Mark, name: str) -> None:
        """A cast that names the dtype that a tensor has already: it changed nothing, but it decides the dtype.

        A parameter keeps its module's story, and what torch's own code casts keeps its own.
        """
        dtype = call.out.dtype
        if self.origins.events[mark.event].how == "parameter" or not dtype.is_floating_point or self._is_hidden(call):
            return
        place, module = self.clock.place(call.thread, call.frame), call.thread.module
        new = RawEvent("attribute", name, place, module, (dtype,), dtype, (mark.event,), explicit=True)
        mark.event = self.origins.event(new)

    def assigned(self, tensor: Tensor, value: Tensor, place: int, module: int) -> int:
        """The event of a tensor after ``tensor.data = value``.

        The value's own where it was made for this, or is what the tensor had before. But a value that was made
        elsewhere, such as an average of the weights, may rightly have another dtype: then the assignment decided.
        """
        known, given = self.origins.of(tensor), self.origins.mark_of(value, place).event
        if known is None or known.event == given:
            return given
        had, made = self.origins.events[known.event], self.origins.events[given]
        before = self.origins.replaced.get(known.event, ())
        if had.to is made.to or given in before or made.how == "load" or self.places.within_call(made.place, place):
            return given
        return self.origins.event(RawEvent("cast", "data", place, module, (had.to,), made.to, explicit=True))

    def given(self, args: tuple[Any, ...], place: int) -> None:
        """The arguments of an outermost module: tensors made before tracing started are named after the argument."""
        for index, value in enumerate(args):
            parts: tuple[tuple[str, Tensor], ...] = ()
            if isinstance(value, Tensor):
                parts = ((f"#{index}", value),)
            elif isinstance(value, dict):
                parts = tuple((f"#{index}[{key!r}]", v) for key, v in value.items() if isinstance(v, Tensor))
            for name, tensor in parts:
                with private.DisableTorchFunction():
                    self.origins.mark_of(tensor, place, name)

    def registered(self, name: str, tensor: Tensor, frame: FrameType | None) -> None:
        """A parameter or buffer was set on a module; if the module's constructor has just made it, its kind is
        ``parameter``."""
        place = self.clock.place(self.clock.thread_state(), frame)
        mark = self.origins.of(tensor)
        if mark is None:
            event = RawEvent("parameter", "", place, -1, (), tensor.dtype, name=name)
            self.origins.mark(tensor, self.origins.event(event), -1)
            return
        event = self.origins.events[mark.event]
        if event.how == "factory" and (event.place == place or self._in_constructor(event.place, place)):
            mark.event = self.origins.event(event._replace(how="parameter", name=name))

    def _in_constructor(self, made: int, registered: int) -> bool:
        """Whether a library's constructor made a tensor and registered it: ``self.weight = Parameter(ones(n))``."""
        code = self.places.same_call(made, registered)
        return code is not None and code.co_name == "__init__" and not self.clock.user(code.co_filename)


def _birth_kind(how: str) -> str:
    """Finds out from the frames on the stack whether the tensor comes from a checkpoint load or a worker's batch."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.endswith(("torch/serialization.py", "safetensors/torch.py")):
            return "load"
        if name.endswith("torch/multiprocessing/reductions.py"):
            return "worker"
        frame = frame.f_back
    return how
