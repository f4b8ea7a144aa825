"""What the hooks write to: distinct ops, the events that decided dtypes, the calls that were refused.

Called by ``hooks`` for every operator, so the work done each time is short: one walk over the frames since the last
module call, one table look-up, one mark for each output. Everything else is done once for each distinct op, or when the
recording is read (``capture.snapshot``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from threading import get_ident
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import nn

from . import measuring, private, refused_calls
from .autograd_nodes import ACCUMULATES
from .births import LIKE, Made
from .calls import LIFT_FRESH, TO_COPY, autocast_of, decider, named_dtype, op_name, tensors_in
from .increments import Call
from .marks import Mark
from .ops import (
    MOST_INPUTS,
    NO_FORMS,
    Form,
    GrowingOp,
    Operator,
    form_of,
    is_parameter,
    made_by,
    one_more,
    operator,
    peak_of,
    size_of,
)
from .running import AUTOCAST, FUNCTION, PLACE, RunningCall, Thread
from .schemas import written
from .session import Session
from .stacks import UserCode
from .values import UNMEASURED

Tensor = torch.Tensor
_ENGINE = private.ENGINE_CODE
_current_node: Any = private.current_autograd_node
_current_graph_task = private.current_graph_task_id
_next_sequence = private.next_sequence_number
_PLAIN = (Tensor, nn.Parameter)
_FEW = 8
"""Ops with fewer operands are distinguished by the dtype of each operand, ops with more by the set of their dtypes."""
_COMPARED = 8
"""The first calls of an op in which it is seen which ops had made its operands: loops go over few different things."""


class _Site(NamedTuple):
    """Where an op is called: ``forward_op`` is that whose backward it is, ``call`` the torch function around it."""

    place: int
    module: int
    phase: str
    dtypes: tuple[torch.dtype, ...]
    """Of the operands."""
    thread: Thread
    call: RunningCall | None
    forward_op: int


def _on_stack(wanted: Callable[[FrameType], bool]) -> bool:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not wanted(frame):
        frame = frame.f_back
    return frame is not None


class Recorder(Session):
    """The session that records operators."""

    def __init__(self, user: UserCode | None = None, numerics: bool = False) -> None:
        super().__init__(user, numerics)
        self._steady: dict[tuple[object, ...], GrowingOp] = {}
        """Short keys (operator, place, module, phase): the op last seen there, if all its tensors have one dtype."""

    # ------------------------------------------------------------ dispatch: every operator

    def saw(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, out: Any, frame: FrameType | None
    ) -> None:
        """Records one operator call that has run.

        Most calls were seen before at the same place, and all their tensors have one floating dtype. Those take a short
        path: they are counted, and their output gets the event of the operand that decides (``calls.decider``).
        """
        # ---- where: in backward it is the forward op's; else place, module and phase
        key: tuple[object, ...]
        thread: Thread | None
        call: RunningCall | None
        if frame is None or frame.f_code is _ENGINE:
            thread = call = None
            forward_op, inside_a_call = self.nodes.forward_op(), False
            key = (id(func), forward_op) if forward_op >= 0 else (id(func), forward_op, self.backward_place)
        else:
            thread = self.threads.get(get_ident()) or self.thread_state()
            forward_op, inside_a_call = -1, func is TO_COPY and self._inside_a_call(frame)
            modules = thread.modules
            if thread.calls and not inside_a_call:
                call = thread.calls[-1]
                place = call[PLACE]
                if place is None:
                    place = call[PLACE] = self.place(thread, frame)
            else:
                call = None
                place = self.place(thread, frame)
            if _current_graph_task() != -1:
                phase = "recompute" if modules and modules[-1][4] else "backward"  # in_backward
            elif self.running_steps and self.stepping.own_work(len(modules), place):
                phase = "optimizer"
            else:
                phase = "forward" if modules else "other"
            # by id: hashing an operator runs Python code
            key = (id(func), place, modules[-1][1] if modules else -1, phase)  # number

        op = self._steady.get(key)
        form = self._again(op, args, kwargs, out, forward_op) if op is not None else None
        if op is not None and form is not None:
            number = op.number
            if op.manner and self.values is not None and (op.near or self.values.looking):
                measuring.again(self, op, form, args, kwargs, out)
        else:
            number = self._look(key, func, args, kwargs, out, thread, call, forward_op)
        if self.reference is not None:
            self.reference.after(number, func, args, kwargs, out)

        # ---- link the autograd node just made, so that its backward op finds this op
        if forward_op < 0 and not inside_a_call:  # an op inside a torch call leaves the node to that call
            thread = thread or self.thread_state()
            risen = _next_sequence()
            if risen != thread.sequence:
                self.nodes.link(thread, risen, number)

    def _again(
        self, op: GrowingOp, args: tuple[Any, ...], kwargs: dict[str, Any] | None, out: Any, forward_op: int
    ) -> Form | None:
        """The short path: counts a call that is like an earlier one of ``op``, and marks its outputs.

        Returns the call's form, None if it is not like that one.
        """
        makes = type(out)
        form = op.forms.get(
            (makes, *map(type, args), *map(type, kwargs.values())) if kwargs else (makes, *map(type, args))
        )
        if (
            form is None or op.unsure or form.several and not args[form.tensors[0]].dim()
        ):  # then another operand may decide
            return None
        dtype = op.steady
        for i in form.tensors:
            if args[i].dtype is not dtype:
                return None
        made = (out,) if makes is Tensor else made_by(out, makes)
        for o in made:
            if o is not None and o.dtype is not dtype:
                return None
        owner = args[op.owner] if forward_op != ACCUMULATES else self._owner_of_gradient(args[op.owner])
        marks = self.origins.marks
        mark = marks.get(id(owner))
        if mark is None or mark() is not owner:
            mark = self._as_in_watched_steps(op, form, owner) or self.origins.adopt(owner, op.place, forward_op)
        op.count += 1
        if op.count <= _COMPARED:
            self._compare(op, [args[i] for i in form.tensors])
        number = op.number
        if out is owner:  # written in place
            mark.op = number
            return form
        event = mark.event
        for o in made:
            if o is not None:
                marks[id(o)] = mark = Mark(o)  # as Origins.mark does it
                mark.event = event
                mark.op = number
        if len(marks) > self.origins.room:
            self.origins.sweep()
        return form

    def _look(
        self,
        key: tuple[Any, ...],
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        out: Any,
        thread: Thread | None,
        call: RunningCall | None,
        forward_op: int,
    ) -> int:
        """The long path: examines a call completely and returns the number of its op."""
        known = operator(func)
        form = form_of(args, kwargs)
        inputs: list[Tensor] = [args[i] for i in form.tensors] if form.simple else tensors_in(args, kwargs)
        located = thread is not None or forward_op != -1  # the key has the place and the module
        if thread is not None:
            _, place, module, phase = key
        else:
            thread, phase = self.thread_state(), "backward"
            if forward_op >= 0:
                place, module = self.ops[forward_op].place, self.ops[forward_op].module
            else:
                place, module = self.backward_place, self.owner() if forward_op == -1 else -1

        # ---- which distinct op
        outputs: Sequence[Tensor] = (out,) if type(out) is Tensor else tensors_in((out,))
        made = outputs[0].dtype if outputs else None
        dtypes = tuple([t.dtype for t in inputs])
        name: tuple[object, ...] = (
            id(func), place, module, phase, made, dtypes if len(dtypes) < _FEW else tuple(dict.fromkeys(dtypes)),
        )  # fmt: skip
        uncached = ""
        if known.casts and is_parameter(inputs[0]):
            name = (*name, "parameter")  # a model is cast with its buffers, which may be tables
            if call is not None and call[AUTOCAST]:
                uncached = _why_uncached(inputs[0])
                name = (*name, uncached, id(inputs[0]))
        site = _Site(place, module, phase, dtypes, thread, call, forward_op)
        op = self.op_of.get(name)
        if op is None:
            if phase == "optimizer" and self.stepping.forget_left():
                key = (*key[:3], self.phase(thread, place))
                return self._look(key, func, args, kwargs, out, thread, call, forward_op)
            op = self._new_op(name, known, site, inputs, outputs)
            op.uncached = uncached
            op.written = written(func, args, kwargs, inputs[:MOST_INPUTS]) if known.mutable else ()
        else:
            op.count += 1
            if op.count <= _COMPARED:
                self._compare(op, inputs)
            if op.unsure:
                self._look_again(op, inputs, forward_op)

        # ---- which events decided the outputs' dtypes: O(1), no history
        for o in outputs:
            self._mark_output(op, known, o, inputs, site)

        if self.values is not None and (op.near or self.values.looking):
            measuring.long_path(self, Call(op.number, func, args, kwargs or {}, inputs, outputs, phase), call)
        steady = made or (dtypes[0] if dtypes else None)
        alike = steady is not None and steady.is_floating_point and {*dtypes} == {steady}
        if located and alike and form.plain and len(form.tensors) == len(inputs):
            self._shorten(key, op, known, form, args, out)
        return op.number

    def _new_op(
        self,
        name: tuple[object, ...],
        known: Operator,
        site: _Site,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
    ) -> GrowingOp:
        call, forward_op = site.call, site.forward_op
        op = GrowingOp()
        func = op.func = known.func
        op.op = op_name(call[FUNCTION]) if call else known.name
        op.phase, op.module, op.place = site.phase, site.module, site.place
        if op.phase == "other" and torch.is_grad_enabled() and any(t.requires_grad for t in inputs):  # else: init
            seeds = _on_stack(lambda frame: frame.f_code is private.SEEDS_CODE)
            op.phase = "backward" if seeds else "forward"
        op.autocast = autocast_of(inputs, on=True) if call is not None and call[AUTOCAST] else ""
        op.named = named_dtype(call[1], call[2]) if call is not None else None
        op.root = self.ops[forward_op].root if forward_op >= 0 else None
        if site.thread.modules:
            op.root = site.thread.modules[0].root.ref
        op.operands = self._operands(func, inputs, site.place, forward_op)
        op.unsure = self._is_unsure(op)
        op.outputs = tuple([o.dtype for o in outputs])
        op.of = max(forward_op, -1)
        op.peak = peak_of(inputs[0], outputs[0]) if func is TO_COPY and inputs else None
        op.shape = size_of(outputs[0]) if outputs else ()
        op.device = outputs[0].device if outputs else inputs[0].device if inputs else None
        op.steady, op.forms, op.owner, op.manner, op.near = None, NO_FORMS, 0, UNMEASURED, True
        op.number, op.count, op.uncached, op.written = len(self.ops), 1, "", ()
        self.ops.append(op)  # complete: an interrupt may come at once
        self.op_of[name] = op
        if self.checks is not None and self.reference is None and self.checks.begins_with(op, inputs):
            self.reference = self.checks
        return op

    def _operands(
        self, func: Any, inputs: Sequence[Tensor], place: int, forward_op: int
    ) -> tuple[tuple[Any, ...], ...]:
        """The operands as they were at an op's first call."""
        seen = []
        for t in inputs[:MOST_INPUTS]:
            mark = self.origins.of(t)
            if mark is None:
                if func is LIFT_FRESH:
                    continue
                mark = self.origins.adopt_new(t, place, forward_op)
            parameter = is_parameter(t)
            name = self.origins.events[mark.event].name if parameter else ""
            seen.append((t.dtype, mark.event, mark.op, name, parameter, size_of(t)))  # the fields of a RawInput
        return tuple(seen)

    def _compare(self, op: GrowingOp, inputs: Sequence[Tensor]) -> None:
        """Notes which operands of a later call other ops had made than those of the first. What an op makes of its own
        result is no other thing."""
        for index, (t, (_, _, producer, *_)) in enumerate(zip(inputs, op.operands)):
            mark = self.origins.of(t)
            if mark is not None and mark.op not in (-1, producer, op.number):
                self.later.setdefault((op.number, index, mark.op), mark.event)

    def _as_in_watched_steps(self, op: GrowingOp, form: Form, owner: Tensor) -> Mark | None:
        """The mark of a tensor that was made in a step that was not watched: it gets the birth that the same operand of
        the same call had, in the same dtype, when that was watched."""
        if not self.origins.rested:
            return None
        at = form.tensors.index(op.owner)
        if at >= len(op.operands) or self.origins.of(owner) is not None:
            return None
        dtype, event, producer = op.operands[at][:3]
        known = dtype is owner.dtype and event >= 0 and event not in self.origins.unsure
        return self.origins.mark(owner, event, producer) if known else None

    def _is_unsure(self, op: GrowingOp) -> bool:
        unsure = self.origins.unsure
        return bool(unsure) and any(operand[1] in unsure for operand in op.operands)

    def _look_again(self, op: GrowingOp, inputs: Sequence[Tensor], forward_op: int) -> None:
        """Takes the operands of a later call of an op whose first call had some that were made unwatched."""
        before = op.operands
        op.operands = self._operands(op.func, inputs, op.place, forward_op)
        op.unsure = self._is_unsure(op)
        if op.unsure:
            op.operands = before

    def _mark_output(self, op: GrowingOp, known: Operator, out: Tensor, inputs: Sequence[Tensor], site: _Site) -> None:
        """Marks an output with the event that decided its dtype."""
        origins = self.origins
        mark = origins.of(out)
        if mark is not None:  # written in place: the destination keeps its dtype
            mark.op = op.number
            return
        made, forward_op = out.dtype, site.forward_op
        alike = site.dtypes.count(made) == len(site.dtypes)
        owner = inputs[decider(inputs, known.agrees and op.phase != "backward")] if inputs else None
        parent = origins.of(owner) if owner is not None and alike else None
        if parent is not None and made.is_floating_point and forward_op != ACCUMULATES:
            event = parent.event
        elif forward_op == ACCUMULATES and (gained := self._step_of_variable(made)) >= 0:
            event = gained
        else:
            outcome = Made(known.func, inputs, site.dtypes, made, op.place, op.module, site.call, forward_op)
            event = self._settle(outcome, site.thread, owner) if alike else self.births.decide(outcome)
        origins.mark(out, event, op.number)

    def _step_of_variable(self, made: torch.dtype) -> int:
        """The engine passes a parameter its gradient in the parameter's dtype: the event that decided that dtype, or
        -1."""
        variable = _current_node().variable
        owner = self.origins.of(variable)
        return owner.event if owner is not None and variable.dtype is made else -1

    def _owner_of_gradient(self, gradient: Tensor) -> Tensor:
        """What decides a gradient's dtype where the engine passes it to a parameter: the parameter, or the gradient
        itself if the parameter is not known, as those of compiled code, or has another dtype."""
        variable: Tensor = _current_node().variable
        known = variable.dtype is gradient.dtype and self.origins.of(variable) is not None
        return variable if known else gradient

    def _settle(self, outcome: Made, thread: Thread, owner: Tensor | None) -> int:
        """The event of an output's dtype, where all operands have it and the one that decides has no mark."""
        if owner is None:
            return self.births.birth(outcome, thread)
        made = outcome.made
        if outcome.func in LIKE and not (made.is_floating_point or made.is_complex):
            return self.births.like(outcome)
        if outcome.func is LIFT_FRESH and self.origins.of(outcome.inputs[0]) is None:
            return self.births.birth(outcome, thread)  # numpy or Python values: made outside torch, first seen here
        return self.origins.adopt(owner, outcome.place, outcome.forward_op).event

    def _shorten(
        self, key: tuple[object, ...], op: GrowingOp, known: Operator, form: Form, args: tuple[Any, ...], out: Any
    ) -> None:
        """Lets similar calls take the short path, if all their tensors have one floating dtype."""
        dtype = args[form.tensors[0]].dtype
        if not known.repeats or known.mutable and (out is not args[form.tensors[0]] or key[1] == ACCUMULATES):
            return
        if all(o is None or type(o) in _PLAIN and o.dtype is dtype for o in made_by(out, type(out))):
            given = [args[i] for i in form.tensors]
            owner = form.tensors[decider(given, known.agrees and op.phase != "backward")]
            if owner != op.owner:
                op.forms = NO_FORMS  # in torch.add(1, x) the number stands where the tensor was
            op.steady, op.owner, op.forms = dtype, owner, one_more(op.forms, type(out), form)
            if self.values is not None:
                op.manner = self.values.manner(known.func, args, dtype, op.phase)
            self._steady[key] = op

    def _inside_a_call(self, frame: FrameType) -> bool:
        """Whether the program's own code runs inside a call of torch's, as a hook on saved tensors does.

        The casts of such code are its own.
        """
        return not self.places.hidden(frame.f_code.co_filename)

    # ------------------------------------------------------------ refusals

    def leaves(self, error: BaseException) -> None:
        """An exception left the block: its refusal is the one that ended the run."""
        ended = self.refusals.ended_by(error, lambda unknown: refused_calls.from_traceback(self, unknown))
        if ended is not None:
            refused_calls.note_callers(self, *ended)


def _why_uncached(parameter: Tensor) -> str:
    """Why autocast does not cache its cast of a parameter, empty where it does.

    Casts that are not cached are counted separately for each weight. Autocast turns gradients on to make a cast that it
    caches.
    """
    if not parameter.requires_grad:
        return "frozen"
    return "" if torch.is_grad_enabled() else "inference"
