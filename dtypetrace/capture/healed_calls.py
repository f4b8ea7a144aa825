"""A call that raised is recorded, and repeated if healing has other arguments for it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

from . import private, refused_calls
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
    if (given := _as_tensors(func, args, error)) is not None:
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


_NUMBERS: dict[type, torch.dtype] = {
    bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128,
}  # fmt: skip
"""The dtype of the constant from which torch made the number."""


def _as_tensors(func: Any, args: tuple[Any, ...], error: Exception) -> tuple[Any, ...] | None:
    """The operands with tensors where the operator's schema refused a number before anything ran; else None.

    Each constant of a graph of ``torch.jit.trace`` is a tensor that stands for a Python number. In a dispatch mode,
    torch passes the number itself, which some operators do not accept.
    """
    schema = getattr(func, "_schema", None)
    # of any operator: it has not run yet. One that it calls would be named instead
    if schema is None or not str(error).startswith(f"{schema.name}() Expected a value of type 'Tensor'"):
        return None
    takes = [str(argument.type) for argument in schema.arguments]
    given = tuple(
        torch.scalar_tensor(value, dtype=_NUMBERS[type(value)], device="cpu")
        if kind == "Tensor" and type(value) in _NUMBERS
        else value
        for kind, value in zip(takes, args, strict=False)
    )
    return given if any(a is not b for a, b in zip(given, args, strict=True)) else None
