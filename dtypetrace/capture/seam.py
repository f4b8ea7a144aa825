"""The one seam through which healing enters the hooks: what they ask, and what they are given.

A call that raised is recorded here, and made again where healing gives it other arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Protocol

import torch

from . import private, refused_calls
from .births import tensors_in

if TYPE_CHECKING:
    from torch import nn

    from .private import TorchDispatchMode
    from .recorder import Recorder, Thread


@dataclass(frozen=True, slots=True)
class Call:
    """A refused call, as healing sees it: what was called with what, and the number of its refusal."""

    function: Callable
    args: tuple
    kwargs: dict
    refusal: int
    error: Exception


@dataclass(frozen=True, slots=True)
class Remade:
    """What to call again with, and what to do with the result (None: nothing)."""

    args: tuple
    kwargs: dict
    finish: Callable[[Any], Any] | None = None


class Healer(Protocol):
    """Healing, as the hooks use it. See ``healing.healer``."""

    recorder: Recorder
    dispatch_mode: TorchDispatchMode
    opened: tuple[int, CodeType, int] | None
    """The frame that opened the trace: its id, its code and the line."""
    lists: tuple[str, ...]
    """Names of torch's in-place functions on lists of tensors."""

    def __call__(self, call: Call) -> Remade | None:
        """Other arguments for a refused call, or None to let it raise."""

    def before_module(self, module: nn.Module, args: tuple, thread: Thread) -> tuple | None:
        """Other arguments for a module that would refuse these, or None."""

    def before_backward(self, thread: Thread, frame: FrameType | None, args: tuple, kwargs: dict) -> None:
        """Called before each backward pass begins, with what it was called with."""

    def after_backward(self) -> None:
        """Called when one is done."""

    def on_lists(self, original: Callable) -> Callable:
        """What stands for one of ``lists`` meanwhile."""

    def on_grouping(self, original: Callable) -> Callable:
        """What stands for the function that sorts lists of tensors by dtype meanwhile."""

    def on_register_hook(self, original: Callable) -> Callable:
        """What stands for ``Tensor.register_hook`` meanwhile."""

    def function_mode(self, base: type) -> type:
        """The function mode to use, made from the one that only watches."""


def kernel_refused(watch, func, args, kwargs, error, frame) -> tuple[tuple, dict, Any] | None:
    """Remembers which operator raised; where no torch function is around it (the engine), that is the refusal.

    There it may be healed here, below autograd, as long as no graph is recorded: the arguments that ran and the result.
    """
    recorder = watch.recorder
    try:
        thread = recorder.thread_state()
        thread.kernel = (id(error), str(error), func)
        if thread.calls:
            return None
        refused_calls.from_call(recorder, thread, func, args, kwargs, error, frame)
        if (
            watch.on_refusal is None
            or torch.is_grad_enabled()
            and any(t.requires_grad for t in tensors_in(args, kwargs))
        ):
            return None
        number = recorder.number_of(error)
        healed = watch.on_refusal(Call(func, args, kwargs, number, error)) if number is not None else None
    except Exception:
        healed = recorder.fail("the refusal of an operator")
    if healed is not None:
        out = func(*healed.args, **healed.kwargs)
        return healed.args, healed.kwargs, healed.finish(out) if healed.finish else out


def refused(mode, thread, func, args, kwargs, error, frame) -> Remade | None:
    """Records a refusal and asks for healing; None where the call is to raise what it raised."""
    recorder = mode.recorder
    try:
        if recorder.knows(error):
            return None
        refused_calls.from_call(recorder, thread, func, args, kwargs, error, frame)
        healer = mode.watch.on_refusal
        number = recorder.number_of(error) if healer is not None else None
        if number is not None:
            with private.DisableTorchFunction():
                return healer(Call(func, args, kwargs, number, error))
    except Exception:
        recorder.fail("a refusal")


def again(mode, func, healed: Remade):
    """A healed call, made again where it is watched like any other."""
    with mode:
        out = func(*healed.args, **healed.kwargs)
    return healed.finish(out) if healed.finish is not None else out
