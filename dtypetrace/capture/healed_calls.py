"""A call that raised is recorded, and repeated if healing has other arguments for it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

from . import numbers, private, refused_calls
from .calls import tensors_in
from .protocols import RefusedCall, Remade, Watching
from .refused_calls import Raised
from .running import Thread


def kernel_refused(watch: Watching, raised: Raised) -> tuple[tuple[Any, ...], dict[str, Any], Any] | None:
    """Remembers which operator raised. If no torch function is around it (the engine), records the refusal here.

    Then it may also be healed here, below autograd, if no graph is recorded: returns the arguments that worked and the
    result. The same where torch passed a number in place of a tensor.
    """
    func, args, kwargs, error, _ = raised
    if (given := numbers.as_tensors(func, args, error)) is not None:
        return given, kwargs, func(*given, **kwargs)
    recorder, healer = watch.recorder, watch.healer
    healed = None
    try:
        thread = recorder.thread_state()
        thread.kernel = (id(error), str(error), func)
        if thread.calls:
            return None
        refused_calls.from_call(recorder, thread, raised)
        if healer is None or torch.is_grad_enabled() and any(t.requires_grad for t in tensors_in(args, kwargs)):
            return None
        number = recorder.refusals.number_of(error)
        healed = healer.remake(RefusedCall(func, args, kwargs, number, error)) if number is not None else None
    except Exception:
        recorder.fail("the refusal of an operator")
    if healed is None:
        return None
    out = func(*healed.args, **healed.kwargs)
    return healed.args, healed.kwargs, healed.finish(out) if healed.finish else out


def refused(watch: Watching, thread: Thread, raised: Raised) -> Remade | None:
    """Records a refusal and asks for healing; returns None where the call should raise its exception."""
    recorder, healer = watch.recorder, watch.healer
    try:
        if recorder.refusals.knows(raised.error):
            return None
        refused_calls.from_call(recorder, thread, raised)
        number = recorder.refusals.number_of(raised.error)
        if healer is not None and number is not None:
            with private.DisableTorchFunction():
                return healer.remake(RefusedCall(*raised[:3], number, raised.error))
    except Exception:
        recorder.fail("a refusal")
    return None


def again(watch: Watching, mode: AbstractContextManager[Any], func: Any, healed: Remade, error: Exception) -> Any:
    """Repeats a healed call, watched like any other. Raises the program's own exception where the repeated call fails,
    too, and no dtype is the reason: then no cast lets it run, and the refusal is not healed."""
    refusals = watch.recorder.refusals
    try:
        with mode:
            out = func(*healed.args, **healed.kwargs)
        return healed.finish(out) if healed.finish is not None else out
    except Exception as other:
        if refusals.knows(other):
            raise
        refusals.not_healed(error, other)
    raise error
