"""The interfaces by which healing and the reference plug into the hooks.

A call that raised is recorded here and repeated if healing has other arguments for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

from ..records import Compared, Precision
from . import numbers, private, refused_calls
from .calls import tensors_in

if TYPE_CHECKING:
    from .compiled.ledger import Repeats
    from .recorder import Recorder
    from .running import Thread
    from .threads import Watching


@dataclass(frozen=True, slots=True)
class RefusedCall:
    """A refused call, as healing sees it: what was called with what, and the number of its refusal."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    refusal: int
    error: Exception


@dataclass(frozen=True, slots=True)
class Remade:
    """The call to make instead, and what to do with its result (None: nothing)."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    finish: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True)
class Replacement:
    """A torch function that is replaced while healing: ``setattr(owner, name, function)``."""

    owner: Any
    name: str
    function: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Opened:
    """The frame that opened the trace: its id, its code, and its line at that time."""

    frame: int
    code: CodeType
    line: int


@dataclass(frozen=True, slots=True)
class Context:
    """Everything that healing knows about the trace.

    ``unrecorded``: a block whose operators autograd sees and the recorder does not. ``opened``: None where the command
    line opened the trace.
    """

    recorder: Recorder
    unrecorded: Callable[[], AbstractContextManager[None]]
    opened: Opened | None = None


class Healer(Protocol):
    """Healing, as the hooks use it. See ``healing.healer``."""

    def remake(self, call: RefusedCall) -> Remade | None:
        """Other arguments for a refused call, or None to let it raise."""

    def module_input(self, module: nn.Module, args: tuple[Any, ...], thread: Thread) -> tuple[Any, ...] | None:
        """Other arguments for a module that would refuse these, or None."""

    def module_output(self, module: nn.Module, result: Any) -> None:
        """An outermost module has returned a result, outside any backward pass."""

    def backward(
        self, thread: Thread, frame: FrameType | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> AbstractContextManager[None]:
        """A block around each backward pass; the arguments are those of the call."""

    def replacements(self) -> Iterable[Replacement]:
        """Torch functions to replace while the trace is open, because they cannot be repeated after they have
        raised."""

    def function_mode(self, base: type) -> type:
        """The function mode to use: a subclass of the one that only watches."""


class Reference(Protocol):
    """Computes in higher precision in parallel with the program, as the hooks use it. See ``reference.follow``."""

    whole: bool
    """Whether it follows everything; False for spot checks (``reference.spot_checks``)."""
    on: bool
    """Whether it has not ended."""

    @property
    def regions(self) -> Repeats | None:
        """What repeats compiled regions; None for spot checks."""

    def begins_with(self, op: Any) -> bool:
        """Whether spot checks, which are not attached, begin with a new op."""

    def outermost(self, module: nn.Module) -> None:
        """A module is called from outside."""

    def close(self) -> None:
        """The trace ends."""

    def around(self, func: Any, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """An operator's kernel, with the work to do before it."""

    def after(self, number: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, out: Any) -> None:
        """Called after a call that was recorded under op ``number``."""

    def called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, out: Any) -> None:
        """Called after a torch function."""

    def unseen(self, tensors: Iterable[torch.Tensor]) -> Callable[[], None]:
        """Something is about to run that may write to tensors and is not seen. Returns what to call after it."""

    def step_begins(self, optimizer: Any, place: int) -> None:
        """Called before an optimizer's step, at a place."""

    def step_ends(self, optimizer: Any) -> None:
        """Called after an optimizer's step."""

    def read(self) -> tuple[tuple[Precision, ...], tuple[Compared, ...]]:
        """What was measured; this waits for the device."""


MakeHealer = Callable[[Context], Healer]
"""Makes the healer of one trace when the trace begins."""


def kernel_refused(
    watch: Watching,
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    error: Exception,
    frame: FrameType | None,
) -> tuple[tuple[Any, ...], dict[str, Any], Any] | None:
    """Remembers which operator raised. If no torch function is around it (the engine), records the refusal here.

    Then it may also be healed here, below autograd, if no graph is recorded: returns the arguments that worked and the
    result. The same where torch passed a number in place of a tensor.
    """
    if (given := numbers.as_tensors(func, args, error)) is not None:
        return given, kwargs, func(*given, **kwargs)
    recorder, healer = watch.recorder, watch.healer
    healed = None
    try:
        thread = recorder.thread_state()
        thread.kernel = (id(error), str(error), func)
        if thread.calls:
            return None
        refused_calls.from_call(recorder, thread, func, args, kwargs, error, frame)
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


def refused(
    watch: Watching,
    thread: Thread,
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    error: Exception,
    frame: FrameType | None,
) -> Remade | None:
    """Records a refusal and asks for healing; returns None where the call should raise its exception."""
    recorder, healer = watch.recorder, watch.healer
    try:
        if recorder.refusals.knows(error):
            return None
        refused_calls.from_call(recorder, thread, func, args, kwargs, error, frame)
        number = recorder.refusals.number_of(error)
        if healer is not None and number is not None:
            with private.DisableTorchFunction():
                return healer.remake(RefusedCall(func, args, kwargs, number, error))
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
