"""The one seam through which healing enters the hooks: what they ask, and what they are given."""

from __future__ import annotations

from dataclasses import dataclass
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Callable, Protocol

if TYPE_CHECKING:
    from torch import nn

    from ._compat import TorchDispatchMode
    from ._recorder import Recorder, Thread


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
    """Healing, as the hooks use it. See ``_heal``."""

    recorder: Recorder
    dispatch_mode: TorchDispatchMode
    opened: tuple[int, CodeType, int] | None
    """The frame that opened the trace: its id, its code and the line."""

    def __call__(self, call: Call) -> Remade | None:
        """Other arguments for a refused call, or None to let it raise."""

    def before_module(self, module: nn.Module, args: tuple, thread: Thread) -> tuple | None:
        """Other arguments for a module that would refuse these, or None."""

    def before_backward(self, thread: Thread, frame: FrameType | None, args: tuple, kwargs: dict) -> None:
        """Called before each backward pass begins, with what it was called with."""

    def after_backward(self) -> None:
        """Called when one is done."""

    def on_lists(self, original: Callable) -> Callable:
        """What stands for one of torch's in-place functions on lists of tensors meanwhile."""

    def on_register_hook(self, original: Callable) -> Callable:
        """What stands for ``Tensor.register_hook`` meanwhile."""

    def function_mode(self, base: type) -> type:
        """The function mode to use, made from the one that only watches."""

    lists: tuple[str, ...]
    """Names of those functions."""
