"""Calls ``Values`` for the recorder, and ends the measuring after an error of its own. ``Values.step_ended`` decides
how often an op is measured."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch

from ..tables.operators import NAMED_CASTS, tagged
from . import private
from .calls import LIFT_FRESH, LOCAL_SCALAR, TO_COPY, op_name
from .holders import address
from .increments import COPY, Call
from .ops import Form, GrowingOp, made_by
from .running import AUTOCAST, FUNCTION, RunningCall
from .searched_frames import wider_than
from .session import Session
from .stored import CONCERNED
from .values import IN_FULL, PASSED_ON, RANGE

Tensor = torch.Tensor
_TO_INTEGER = Tensor.__int__, Tensor.__index__
"""Calls by which Python takes a number as an integer."""


def before(
    recorder: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, frame: FrameType | None
) -> None:
    """Samples what an in-place call is about to change."""
    values = recorder.values
    if values is None or not values.increments.follows(func, args):
        return
    thread = recorder.thread_state()
    # torch's own optimizers take lists; one that keeps its state narrower than its weights takes tensor by tensor.
    # What is copied into weights was computed elsewhere, and in float32 they lose nothing
    passed = func is COPY or isinstance(args[0], (list, tuple)) or args[0].dtype is torch.float32
    if not passed or recorder.phase(thread, recorder.place(thread, frame)) != "optimizer":
        try:
            values.increments.before(func, args, kwargs, once=not passed and _is_part(recorder, args[0]))
        except Exception as error:
            _give_up(recorder, error)


def _is_part(recorder: Session, tensor: Tensor) -> bool:
    """Whether a tensor is a parameter, or its ``.data``: an adapter is merged into it only once. Or a new one that was
    picked from another, as in ``x[rows] += y``, which puts it back."""
    if isinstance(tensor, torch.nn.Parameter):
        return True
    mark = recorder.origins.of(tensor)
    made = recorder.ops[mark.op] if mark is not None and mark.op >= 0 else None
    if made is None:
        return False
    return tagged(made.op, "cuts") and any(i.parameter for i in made.inputs) or made.func is _PICK


_PICK = torch.ops.aten.index.Tensor


def long_path(recorder: Session, call: Call, running: RunningCall | None) -> None:
    """Measures a call that was examined completely; ``running``: the torch function that made it."""
    assert recorder.values is not None
    try:
        if call.func is LIFT_FRESH and call.outputs:
            _handed(recorder, call, running)
        if call.func is LOCAL_SCALAR and running is not None and running[FUNCTION] in _TO_INTEGER:
            recorder.values.taken(call.op, call.inputs[0])
        casts = call.func is TO_COPY and running is not None and running[AUTOCAST]
        if casts and call.outputs and _is_kept(running, call.inputs[0]):
            recorder.values.cached.saw(call.op, call.inputs[0], call.outputs[0])
        if id(call.func) in CONCERNED:
            for above in recorder.values.stores.begins(recorder.ops[call.op], recorder.ops):
                above.manner = IN_FULL
        recorder.values.saw(call)
        if call.phase == "optimizer" and call.args and call.func._schema.is_mutable:
            written = call.args[0] if isinstance(call.args[0], (list, tuple)) else call.args[:1]
            recorder.updates.written.update(address(t) for t in written if isinstance(t, Tensor))
    except Exception as error:
        _give_up(recorder, error)


def _handed(recorder: Session, call: Call, running: RunningCall | None) -> None:
    """Measures what became of numbers of Python's or NumPy's: as they were before NumPy cast them, if that shows."""
    assert recorder.values is not None
    number, made = call.op, call.outputs[0]
    wider = wider_than(recorder, number, made, running, recorder.places.outside(sys._getframe(2)))
    if wider is None:
        if running is not None:
            recorder.values.handed(number, running, made)
        return
    mark = recorder.origins.of(made)
    if mark is not None and mark.event >= 0 and recorder.origins.events[mark.event].how == "conversion":
        recorder.origins.events[mark.event] = recorder.origins.events[mark.event]._replace(source=wider.dtypes)
    with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
        recorder.values.crossed(number, wider, made)


def _is_kept(running: Any, weight: Tensor) -> bool:
    """Whether autocast keeps its cast of a tensor: a leaf that a gradient can flow to, cast by none of the program's
    own calls."""
    own = op_name(running[FUNCTION]) in NAMED_CASTS
    return not own and weight.is_leaf and weight.requires_grad and torch.is_grad_enabled()


def again(
    recorder: Session, op: GrowingOp, form: Form, args: tuple[Any, ...], kwargs: dict[str, Any] | None, out: Any
) -> None:
    """Measures a call that took the short path."""
    values = recorder.values
    assert values is not None
    try:
        tensors, outputs = form.tensors, made_by(out, type(out))
        if op.manner == PASSED_ON:
            values.pass_on(args[tensors[0]], outputs)
        elif op.manner == RANGE:
            values.again(op.number, args, form, outputs)
        else:
            inputs, made = [args[i] for i in tensors], [o for o in outputs if o is not None]
            values.saw(Call(op.number, op.func, args, kwargs or {}, inputs, made, op.phase))
            if op.steady is torch.float32 and not (values.stores.carried or values.increments.carried):
                op.manner = RANGE
        if op.written and op.phase == "optimizer":
            recorder.updates.written.add(address(args[0]))
    except Exception as error:
        _give_up(recorder, error)


def after_step(recorder: Session, optimizer: Any) -> None:
    """An optimizer's step has ended: decides what is measured from here on."""
    if recorder.values is not None:
        try:
            recorder.values.cached.step_ended(recorder.ops)
            recorder.values.step_ended(optimizer)
        except Exception as error:
            _give_up(recorder, error)


def goes_on(recorder: Session) -> None:
    """The step after it is watched, too."""
    if recorder.values is not None:
        try:
            recorder.values.goes_on(recorder.ops)
        except Exception as error:
            _give_up(recorder, error)


def damaging(recorder: Session) -> frozenset[int]:
    """See :meth:`Values.damaging`."""
    try:
        return recorder.values.damaging() if recorder.values is not None else frozenset()
    except Exception as error:
        _give_up(recorder, error)
        return frozenset()


def _give_up(recorder: Session, error: Exception) -> None:
    """Stops measuring values after an error."""
    recorder.values = None
    recorder.not_seen[f"values, after an internal error: {type(error).__name__}: {error}"] = None
