"""One op for the calls of a compiled function: its place, its module, the dtypes of its operands and results.

What happens inside is not known here. A result whose dtype all floating operands share has the origin of the first one;
any other dtype was decided inside, at the place of the call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .. import private
from ..calls import autocast_of, dtype_name, tensors_returned
from ..marks import RawEvent
from ..ops import MOST_INPUTS, NO_FORMS, GrowingOp, is_parameter, size_of
from ..values import UNMEASURED
from . import torch_private

if TYPE_CHECKING:
    from ..recorder import Recorder
    from ..running import Thread

Tensor = torch.Tensor
_DEPTH = 6
"""Containers in containers whose tensors count as operands."""


class CompiledFunction:
    """Stands where an op has its operator."""

    is_view = False

    def __init__(self, name: str) -> None:
        self.__name__ = f"compiled {name}"
        self.overloadpacket = self

    def __str__(self) -> str:
        return "torch.compile"


def returned(recorder: Recorder, frame: FrameType, nodes: Sequence[tuple[int, int]]) -> None:
    """A region has returned. ``frame``: torch's, in which it ran. ``nodes``: the ranges of sequence numbers of the
    autograd nodes that its graphs made."""
    call = torch_private.call_in(frame)
    thread = recorder.thread_state()
    place = recorder.place(thread, frame)
    owner = _owner(call.function)
    module = _module(recorder, thread, owner, place)
    inputs = [*tensors_returned((call.args, call.kwargs), _DEPTH)]
    outputs = [*tensors_returned(call.result, _DEPTH)]
    op = _op(recorder, thread, call.function, owner, place, module, inputs, outputs)
    _mark(recorder, op, inputs, outputs)
    if module >= 0 and op.phase != "recompute":
        known = recorder.modules.results[module]
        known.update(dict.fromkeys(o.dtype for o in outputs))
    if recorder.values is not None and (op.near or recorder.values.looking):
        recorder.values.saw(op.number, op.func, (), {}, inputs, outputs, recorder.origins, op.phase)
    for first, end in nodes:
        recorder.nodes.link_range(first, end, op.number)
    thread.sequence = private.next_sequence_number()


def _owner(function: Any) -> Any:
    """The module, or another object, whose method was compiled; the function itself where there is none."""
    while hasattr(function, "__wrapped__") and not hasattr(function, "__self__"):
        function = function.__wrapped__
    return getattr(function, "__self__", function)


def _name(function: Any, owner: Any) -> str:
    if isinstance(owner, nn.Module):
        return type(owner).__name__
    name: str = getattr(function, "__name__", type(function).__name__)
    return f"{type(owner).__name__}.{name}" if hasattr(function, "__self__") else name


def _module(recorder: Recorder, thread: Thread, owner: Any, place: int) -> int:
    """Number of the module that the region is the forward of, or else is called in; -1 for none."""
    running = thread.modules[-1] if thread.modules else None
    if not isinstance(owner, nn.Module):
        return thread.module
    if running is not None and getattr(running.module, "_orig_mod", running.module) is owner:
        return running.number
    # compiled in place: torch calls no global hooks for it
    root = thread.modules[0].root if thread.modules else recorder.modules.root(owner, place)
    number = recorder.modules.number(owner, root)
    recorder.modules.calls[number] += private.current_graph_task_id() == -1
    return number


def _weights(owner: Any) -> Iterator[Tensor]:
    return chain(owner.parameters(), owner.buffers()) if isinstance(owner, nn.Module) else iter(())


def _op(
    recorder: Recorder,
    thread: Thread,
    function: Any,
    owner: Any,
    place: int,
    module: int,
    inputs: list[Tensor],
    outputs: list[Tensor],
) -> GrowingOp:
    """The distinct op of a call, counted."""
    phase = recorder.phase(thread, place)
    if phase == "other" and (isinstance(owner, nn.Module) or any(o.requires_grad for o in outputs)):
        phase = "forward"
    dtypes = tuple(dict.fromkeys(t.dtype for t in inputs)), tuple(o.dtype for o in outputs)
    key = ("torch.compile", getattr(function, "__code__", None), type(owner), place, module, phase, *dtypes)
    op = recorder.op_of.get(key)
    if op is not None:
        op.count += 1
        return op
    op = recorder.op_of[key] = GrowingOp()
    op.func = CompiledFunction(_name(function, owner))
    op.op, op.phase, op.module, op.place = op.func.__name__, phase, module, place
    operands = [*inputs[:MOST_INPUTS], *{w.dtype: w for w in _weights(owner) if w.dtype.is_floating_point}.values()]
    op.operands = tuple(_operand(recorder, t, place) for t in operands)
    op.outputs = dtypes[1]
    op.autocast = autocast_of(operands) if private.any_autocast_enabled() else ""
    op.root = thread.modules[0].root.ref if thread.modules else None
    op.of, op.peak, op.named = -1, None, None
    op.shape = size_of(outputs[0]) if outputs else ()
    op.device = outputs[0].device if outputs else inputs[0].device if inputs else None
    op.steady, op.forms, op.manner, op.near = None, NO_FORMS, UNMEASURED, True
    op.number, op.count, op.uncached, op.written = len(recorder.ops), 1, "", ()
    recorder.ops.append(op)
    return op


def _operand(recorder: Recorder, tensor: Tensor, place: int) -> tuple[Any, ...]:
    mark = recorder.origins.mark_of(tensor, place)
    parameter = is_parameter(tensor)
    name = recorder.origins.events[mark.event].name if parameter else ""
    return tensor.dtype, mark.event, mark.op, name, parameter, size_of(tensor)


def _mark(recorder: Recorder, op: GrowingOp, inputs: list[Tensor], outputs: list[Tensor]) -> None:
    """Marks the results with the events that decided their dtypes."""
    origins = recorder.origins
    events = [(t.dtype, origins.mark_of(t, op.place).event) for t in inputs]
    events += [(i.dtype, i.event) for i in op.inputs[len(inputs) :]]
    for out in outputs:
        mark = origins.of(out)
        if mark is not None:  # an operand that it returned
            mark.op = op.number
            continue
        origins.mark(out, _decided(recorder, op, out.dtype, events), op.number)


def _decided(recorder: Recorder, op: GrowingOp, dtype: torch.dtype, events: list[tuple[torch.dtype, int]]) -> int:
    """The event of a result's dtype. ``events``: the dtype and the event of each operand."""
    same = next((event for d, event in events if d is dtype), None)
    floating = dict.fromkeys(d for d, _ in events if d.is_floating_point or d.is_complex)
    others = tuple(d for d in floating if d is not dtype)
    if same is not None and (not dtype.is_floating_point or not others):
        return same
    parents: tuple[int, ...] = ()
    if op.autocast.endswith(f":{dtype_name(dtype)}"):
        how = "autocast"
    elif same is not None and all(other.itemsize <= dtype.itemsize for other in others):
        how, parents = "promotion", (same,)
    else:
        how = "cast" if others else "factory"
    return recorder.origins.event(RawEvent(how, op.op, op.place, op.module, others, dtype, parents))
