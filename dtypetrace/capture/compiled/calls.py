"""One op for the calls of a compiled function: its place, its module, the dtypes of its operands and results.

What happens inside is not known here. A result whose dtype all floating operands share has the origin of the first one;
any other dtype was decided inside, at the place of the call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import nn

from ...tables.operators import COMPILED
from .. import private
from ..calls import autocast_of, tensors_returned
from ..increments import Call
from ..marks import RawEvent
from ..ops import MOST_INPUTS, NO_FORMS, GrowingOp, is_parameter, size_of
from ..running import Thread
from ..session import Session
from ..values import UNMEASURED
from . import torch_private
from .followed import leaving

Tensor = torch.Tensor
_DEPTH = 6
"""Containers in containers whose tensors count as operands."""

_NO_RESULTS = f"torch.compile: what compiled functions return: torch {torch.__version__} does not show it"


class CompiledFunction:
    """Stands where an op has its operator."""

    is_view = False

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.overloadpacket = self

    def __str__(self) -> str:
        return COMPILED


CALLS_MODULES = os.path.join("torch", "_dynamo", "eval_frame.py")
"""The end of the name of the file in which a compiled module is called."""


def original(module: nn.Module) -> nn.Module:
    """The program's module, where ``torch.compile`` put another one around it."""
    if type(module).__name__ == "OptimizedModule":
        inner: nn.Module = getattr(module, "_orig_mod", module)
        return inner
    return module


def returned(recorder: Session, frame: FrameType, nodes: Sequence[tuple[int, int]]) -> None:
    """A region has returned. ``frame``: torch's, in which it ran. ``nodes``: the ranges of sequence numbers of the
    autograd nodes that its graphs made."""
    call = torch_private.call_in(frame)
    if not torch_private.shows_results(frame):
        recorder.not_seen[_NO_RESULTS] = None
    thread = recorder.thread_state()
    place = recorder.place(thread, frame)
    owner = _owner(call.function)
    module = _module(recorder, thread, owner, place)
    inputs = [*tensors_returned((call.args, call.kwargs), _DEPTH)]
    outputs = [*tensors_returned(call.result, _DEPTH)]
    phase = recorder.phase(thread, place)
    if phase == "other" and (isinstance(owner, nn.Module) or any(o.requires_grad for o in outputs)):
        phase = "forward"
    where = _Where(_name(call.function, owner), phase, place, module)
    operands = lambda: [_operand(recorder, t, place) for t in (*inputs[:MOST_INPUTS], *_weights(owner))]
    op = _op(recorder, where, [t.dtype for t in inputs], operands, outputs)
    if recorder.reference is not None:
        recorder.reference.made_unseen(outputs)
    for captured in recorder.ledger.fresh():
        captured.call = op.number
        recorder.ledger.left.setdefault(op.number, []).extend(leaving(recorder, frame, captured))
    events = [(t.dtype, recorder.origins.mark_of(t, place).event) for t in inputs]
    _mark(recorder, op, [*events, *((i.dtype, i.event) for i in op.inputs[len(inputs) :])], outputs)
    if recorder.values is not None and (op.near or recorder.values.looking):
        recorder.values.saw(Call(op.number, op.func, (), {}, inputs, outputs, phase))
    if module >= 0 and phase != "recompute":
        recorder.modules.results[module].update(dict.fromkeys(o.dtype for o in outputs))
    for first, end in nodes:
        recorder.nodes.link_range(first, end, op.number)
    thread.sequence = private.next_sequence_number()


def reached(frame: FrameType) -> Iterable[Tensor]:
    """The tensors that a region may write to, as far as its call shows. ``frame``: torch's, in which it runs."""
    call = torch_private.call_in(frame)
    return chain(tensors_returned((call.args, call.kwargs), _DEPTH), _held(_owner(call.function)))


def gradients(recorder: Session, grads: Sequence[Any]) -> list[tuple[Any, ...]]:
    """What is to be recorded of the gradients that the backward of a compiled graph is about to get. It drops them as
    it runs."""
    place = recorder.backward_place
    return [_operand(recorder, t, place) for t in tensors_returned(grads, _DEPTH)]


def ran_backward(recorder: Session, grads: list[tuple[Any, ...]], result: Any) -> None:
    """The backward of a compiled graph has run, under the autograd node that is running now."""
    forward_op = recorder.nodes.forward_op()
    above = recorder.ops[forward_op] if forward_op >= 0 else None
    place, module = (above.place, above.module) if above is not None else (recorder.backward_place, recorder.owner())
    name = above.op if above is not None else "compiled graph"
    outputs = [*tensors_returned(result, _DEPTH)]
    where = _Where(name, "backward", place, module, forward_op)
    op = _op(recorder, where, [operand[0] for operand in grads], lambda: grads[:MOST_INPUTS], outputs)
    if recorder.reference is not None:
        recorder.reference.made_unseen(outputs)
    _mark(recorder, op, [(operand[0], operand[1]) for operand in grads], outputs)


def _owner(function: Any) -> Any:
    """The module, or another object, whose method was compiled; the function itself where there is none."""
    while hasattr(function, "__wrapped__") and not hasattr(function, "__self__"):
        function = function.__wrapped__
    return getattr(function, "__self__", function)


def _name(function: Any, owner: Any) -> str:
    """A name that no operator has."""
    if isinstance(owner, nn.Module):
        return f"compiled {type(owner).__name__}"
    name = getattr(function, "__name__", type(function).__name__)
    return f"compiled {type(owner).__name__}.{name}" if hasattr(function, "__self__") else f"compiled {name}"


def _module(recorder: Session, thread: Thread, owner: Any, place: int) -> int:
    """Number of the module that the region is the forward of, or else is called in; -1 for none."""
    running = thread.modules[-1] if thread.modules else None
    if not isinstance(owner, nn.Module):
        return thread.module
    if running is not None and running.module is owner:
        return running.number
    # compiled in place: torch calls no global hooks for it
    root = thread.modules[0].root if thread.modules else recorder.modules.root(owner, place)
    number = recorder.modules.number(owner, root)
    recorder.modules.calls[number] += private.current_graph_task_id() == -1
    return number


def _weights(owner: Any) -> Iterable[Tensor]:
    """The first weight of each floating dtype that a module has; a buffer only of one that no parameter has."""
    found: dict[torch.dtype, Tensor] = {}
    for weight in _held(owner):
        if weight.dtype.is_floating_point:
            found.setdefault(weight.dtype, weight)
    return found.values()


def _held(owner: Any) -> Iterable[Tensor]:
    return chain(owner.parameters(), owner.buffers()) if isinstance(owner, nn.Module) else ()


class _Where(NamedTuple):
    """What distinguishes an op, besides its dtypes. ``of``: number of the forward op, in backward."""

    name: str
    phase: str
    place: int
    module: int
    of: int = -1


def _op(
    recorder: Session,
    where: _Where,
    given: list[torch.dtype],
    operands: Callable[[], list[tuple[Any, ...]]],
    outputs: list[Tensor],
) -> GrowingOp:
    """The distinct op of a call, counted. ``operands``: makes those to record, at the op's first call."""
    made = tuple([o.dtype for o in outputs])
    key = (COMPILED, where, tuple(dict.fromkeys(given)), made)
    op = recorder.op_of.get(key)
    if op is not None:
        op.count += 1
        return op
    op = recorder.op_of[key] = GrowingOp()
    op.func = CompiledFunction(where.name)
    op.op, op.phase, op.place, op.module = op.func.__name__, where.phase, where.place, where.module
    op.operands, op.outputs, op.of, op.peak, op.named = tuple(operands()), made, where.of, None, None
    op.autocast = autocast_of(outputs) if private.any_autocast_enabled() else ""
    running = recorder.thread_state().modules
    op.root = running[0].root.ref if running else recorder.ops[where.of].root if where.of >= 0 else None
    op.shape = size_of(outputs[0]) if outputs else ()
    op.device = outputs[0].device if outputs else None
    op.steady, op.forms, op.manner, op.near = None, NO_FORMS, UNMEASURED, True
    op.number, op.count, op.uncached, op.written = len(recorder.ops), 1, "", ()
    recorder.ops.append(op)
    return op


def _operand(recorder: Session, tensor: Tensor, place: int) -> tuple[Any, ...]:
    mark = recorder.origins.mark_of(tensor, place)
    parameter = is_parameter(tensor)
    name = recorder.origins.events[mark.event].name if parameter else ""
    return tensor.dtype, mark.event, mark.op, name, parameter, size_of(tensor)


def _mark(recorder: Session, op: GrowingOp, events: list[tuple[torch.dtype, int]], outputs: list[Tensor]) -> None:
    """Marks the results with the events that decided their dtypes. ``events``: the dtype and event of each operand."""
    known: dict[tuple[torch.dtype, int], int] = {}
    for out in outputs:
        mark = recorder.origins.of(out)
        if mark is not None:  # an operand that it returned
            mark.op = op.number
            continue
        kind = out.dtype, out.dim()
        if kind not in known:
            event = _left(recorder, op, out)
            known[kind] = _decided(recorder, op, out.dtype, events) if event < 0 else event
        recorder.origins.mark(out, known[kind], op.number)


def _left(recorder: Session, op: GrowingOp, out: Tensor) -> int:
    """The event of a result that left a captured graph, -1 where it is not known which."""
    found = {left.event for left in recorder.ledger.left.get(op.number, ()) if left[:2] == (out.dtype, out.dim())}
    return found.pop() if len(found) == 1 else -1


def _decided(recorder: Session, op: GrowingOp, dtype: torch.dtype, events: list[tuple[torch.dtype, int]]) -> int:
    """The event of a result's dtype."""
    same = next((event for d, event in events if d is dtype), None)
    others = any(d is not dtype and (d.is_floating_point or d.is_complex) for d, _ in events)
    if same is not None and not (dtype.is_floating_point and others):
        return same
    # from which operands, and by which call, only the inside of the compiled function shows
    return recorder.origins.event(RawEvent("factory", op.op, op.place, op.module, (), dtype))
