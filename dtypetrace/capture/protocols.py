"""The interfaces by which healing and the parts that watch a thread see each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, Protocol

from torch import nn

from . import private
from .running import Thread
from .session import Session


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

    recorder: Session
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


MakeHealer = Callable[[Context], Healer]
"""Makes the healer of one trace when the trace begins."""


class Listens(Protocol):
    """What listens for a trace that is detached. See ``capture.asleep``."""

    listens: bool
    armed: bool
    step_ends: Callable[..., None]

    def compiled(self, call: Any, frame: FrameType) -> None:
        """A compiled function is called, in torch's ``frame``."""


class Hooks(Protocol):
    """The hooks of modules and optimizers of one trace, as the rest sees them. See ``capture.module_hooks``."""

    @property
    def asleep(self) -> Listens | None: ...

    def elsewhere(self) -> None:
        """A module is called in a thread that no trace watches."""

    def enter(self, module: nn.Module, args: tuple[Any, ...], heard: FrameType | None = None) -> tuple[Any, ...] | None:
        """A module is called."""

    def step_begins(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], heard: Any = None) -> Any:
        """An optimizer's step is called."""

    def step_ends(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An optimizer's step has returned."""

    def step_was_none(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What seemed to be a step has returned, and was none."""


class Watching(Protocol):
    """What watches a thread: :class:`hooks.Watch`, as this package sees it."""

    dispatch_mode: private.TorchDispatchMode
    running: bool

    @property
    def recorder(self) -> Session: ...

    @property
    def hooks(self) -> Hooks: ...

    @property
    def healer(self) -> Healer | None: ...
