"""What is installed in steps that are not watched: a count of the steps, and, if asked for, a look-out for what is new.

The look-out hears of calls of outermost modules only: while one runs, torch's table of hooks is as the program has it,
so the calls inside cost nothing. The end of the call is heard through the called module's own table of hooks, which is
replaced for that call; the program finds no hook in it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from functools import wraps
from threading import get_ident
from types import FrameType
from typing import Any

import torch
from torch import nn

from . import global_hooks, private
from .compiled import regions, torch_private
from .novelty import Novelty, in_folders
from .protocols import Hooks
from .replaced import Replaced
from .session import Session
from .windows import Windows

_OWN_HOOKS = "_forward_hooks"
_TRAIN = "train"
"""Models have an ``eval`` of their own; each calls this with False. That with True brings nothing new."""
_HOOKS = "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"
_CHANGES: tuple[tuple[Any, str, str], ...] = (
    (nn.Module, "_apply", "a cast or a move of a model"),
    (nn.Module, _TRAIN, "a model that is evaluated"),
    (torch.amp.GradScaler, "__init__", "a new loss scaler"),
    *((nn.Module, name, "a new hook") for name in _HOOKS),
    (nn.Module, "state_dict", "a state that was read"),
    (torch.optim.Optimizer, "state_dict", "a state that was read"),
    (nn.Module, "load_state_dict", "a state that was loaded"),
    (torch.optim.Optimizer, "load_state_dict", "a state that was loaded"),
    (torch.serialization, "_load", "a checkpoint that was read"),
    (torch.serialization, "_legacy_load", "a checkpoint that was read"),
    (torch.serialization, "_save", "a checkpoint that was written"),
    *((torch._C, name, "another default dtype") for name in private.DEFAULTS),
)
"""Functions that change models or dtypes, and what to say where one is called from lines that never called it."""
REGISTERS = {"joined": "a new part of a model", "registered": "a new parameter"}
"""What to say of a hook for what is set on a module."""
_MAKES = {
    "python.optimizer": "a new optimizer",
    "python.data_loader": "a new loader",
    "python.nn_module": "a new module",
    "torch.compile": "new compiled code",
}
"""By torch's name of a use, which it logs."""
_EACH = ("a new optimizer", "a new loader")
"""What is new several times at one line."""


class Counter:
    """Counts the optimizer steps of a Watch that is detached. Like a ``ModuleHooks``, it has the hooks of some of
    torch's tables."""

    listens = False
    """Whether it may listen for calls of modules."""
    armed = False
    """Whether it does now."""

    def __init__(self, windows: Windows) -> None:
        self.step_ends: Callable[..., None] = windows.step_ended

    def begins(self, hooks: Hooks) -> None:
        """The trace begins. hooks: those of the Watch."""

    def compiled(self, call: torch_private.Call, frame: FrameType) -> None:
        """A compiled function is called, in torch's ``frame``."""

    def rests(self) -> None:
        """Steps begin that are not watched."""

    def wakes(self) -> None:
        """Watching begins again, or the trace ends."""

    def remove(self) -> None:
        """The trace ends."""


class Lookout(Counter):
    """Wakes a Watch before a call that is new. See :mod:`.novelty`."""

    listens = True

    def __init__(self, windows: Windows, novelty: Novelty, recorder: Session) -> None:
        super().__init__(windows)
        self._windows, self._novelty, self._recorder = windows, novelty, recorder
        self.step_ends = self._step_ends
        self._hooks: Hooks | None = None
        self._modes = 0
        """Dispatch modes that were on when the trace began."""
        self._asleep = False
        self._inside: tuple[weakref.ref[nn.Module], _OneCall] | None = None
        """The outermost module that runs, and its table of hooks during the call."""
        self._last: tuple[weakref.ref[nn.Module], _OneCall] | None = None
        """The same of the last such call."""
        self._heard = 0
        self._at: tuple[str, int, int] | None = None
        """What was announced last inside a call, and where."""
        self._replaced: list[Replaced] = []
        self._door: Callable[[], None] | None = None
        """Ends that compiled code finds nothing of this."""

    # ------------------------------------------------------------ what is installed

    def begins(self, hooks: Hooks) -> None:
        """From now on it hears of changes of models and dtypes, in watched steps too. hooks: those of the Watch."""
        self._hooks, self._modes = hooks, private.dispatch_mode_count()
        for owner, name, what in _CHANGES:
            original = vars(owner).get(name)
            if original is not None:
                self._replaced.append(Replaced(owner, name, self._announced(owner, name, what)))
        if private.LOADING is not None:
            self._replaced.append(Replaced(private.LOADING, "__next__", self._loads()))
        if private.LOGS_USE:
            self._replaced.append(Replaced(torch._C, private.LOGS_USE, self._logs_use()))

    def remove(self) -> None:
        """Restores everything."""
        self.wakes()
        self._last = None
        while self._replaced:
            self._replaced[-1].restore()
            self._replaced.pop()
        door, self._door = self._door, None
        if door is not None:
            door()

    def _announced(self, owner: Any, name: str, what: str) -> Callable[..., Any]:
        original = vars(owner)[name]
        code = getattr(original, "__code__", None)

        @wraps(original)
        def announced(*args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            if name == _TRAIN and False not in (*args[1:], *kwargs.values()):
                return original(*args, **kwargs)
            if frame.f_code is not code and self.announce(what, frame):  # a model's conversion converts its parts
                return vars(owner)[name](*args, **kwargs)  # a watched step has replaced it, too
            if name == _HOOKS[0] and self._inside is not None and self._inside[0]() is args[0]:
                self._forget_call()  # the handle removes its hook from the table that it finds now
            return original(*args, **kwargs)

        return announced

    def _loads(self) -> Callable[..., Any]:
        original = vars(private.LOADING)["__next__"]

        @wraps(original)
        def __next__(loading: Any) -> Any:
            try:
                return original(loading)
            except StopIteration:
                self.announce("a loader that ended", sys._getframe(1))
                raise

        return __next__

    def _logs_use(self) -> Callable[..., Any]:
        original = vars(torch._C)[private.LOGS_USE]

        def _log_api_usage_once(event: str, *args: Any) -> None:
            if event in _MAKES and self.announce(_MAKES[event], sys._getframe(1)):
                vars(torch._C)[private.LOGS_USE](event, *args)
            else:
                original(event, *args)

        return _log_api_usage_once

    def announce(self, what: str, frame: FrameType | None) -> bool:
        """Something that changes models or dtypes is about to happen, in torch's ``frame``; returns whether that woke
        the Watch."""
        recorder = self._recorder
        if recorder.broken or get_ident() != recorder.thread or private.current_graph_task_id() != -1:
            return False
        try:
            if self._inside is not None and self._is_repeated(what, frame):
                return False
            new = self._novelty.happens(what, frame, each=what in _EACH)
            if new and self._asleep and self._inside is not None:
                self._novelty.soon(what)  # half a call would be watched
            elif new and self._asleep and self._may_wake():
                self._windows.wake(what)
                return not self._asleep
            if self._asleep and self._inside is None:
                self._listen()
        except Exception:
            recorder.fail("the look-out for changes")
        return False

    def _is_repeated(self, what: str, frame: FrameType | None) -> bool:
        """Whether the same was announced last at the same instruction of the program, inside the module that runs: a
        slice of a list of modules is a new list, which is given each of them."""
        while frame is not None and in_folders(frame):
            frame = frame.f_back
        last, self._at = self._at, (what, id(frame), frame.f_lasti if frame is not None else 0)
        return last == self._at

    def rests(self) -> None:
        """Steps begin that are not watched."""
        self._asleep = True
        self._listen()

    def wakes(self) -> None:
        """Watching begins again, or the trace ends."""
        self._asleep = self.armed = False
        self._forget_call()

    def _listen(self) -> None:
        self._heard = 0
        self._forget_call()
        if not self._door_is_kept():
            if not torch_private.is_watchable():
                return  # code that is compiled would compile what listens
            self._door = regions.watch()
        self.armed = True
        global_hooks.arm(True)

    def _door_is_kept(self) -> bool:
        return self._door is not None or torch_private.imported() is None

    def _forget_call(self) -> None:
        """Gives the module that runs its own table of hooks back."""
        if (inside := self._inside) is not None:
            module = inside[0]()
            if module is not None and module.__dict__.get(_OWN_HOOKS) is inside[1]:
                module.__dict__[_OWN_HOOKS] = inside[1].program
            self._inside = None  # last: an interrupt may come before

    def _may_wake(self) -> bool:
        """Whether modes can be put on here: not while a transform or a mode of somebody else's runs this code."""
        return private.dispatch_mode_count() == self._modes and not private.in_functorch() and not self._windows.busy()

    # ------------------------------------------------------------ hooks

    def _step_ends(self, optimizer: Any, args: Any = None, kwargs: Any = None) -> None:
        self._windows.step_ended(optimizer)
        if self._asleep and not (self.armed and global_hooks.listens() and self._door_is_kept()):
            self._listen()
        self._heard = 0

    def enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """An outermost module is called: wakes the Watch if that is new."""
        self.hears(module, args, sys._getframe(1))

    def hears(self, module: nn.Module, args: tuple[Any, ...], frame: FrameType) -> None:
        """The same, in torch's ``frame``."""
        if self._inside is not None or private.current_graph_task_id() != -1 or self._recorder.broken:
            return
        try:
            if what := self._novelty.called(module, args, named_arguments(frame), frame, self._may_wake):
                self._windows.wake(what)
                assert self._hooks is not None
                self._hooks.enter(module, args, frame)
                return
            self._until_it_ends(module)
        except Exception:
            self._recorder.fail("the look-out for new calls")

    def compiled(self, call: torch_private.Call, frame: FrameType) -> None:
        """The same for a compiled function, while it sleeps or not."""
        if self._inside is not None or private.current_graph_task_id() != -1 or self._recorder.broken:
            return
        try:
            what = self._novelty.called(call.function, call.args, call.kwargs, frame)
            if what and self._asleep and self._may_wake():
                self._windows.wake(what)
        except Exception:
            self._recorder.fail("the look-out for new calls")

    def _until_it_ends(self, module: nn.Module) -> None:
        """Stops listening for the time of a call."""
        self._heard += 1
        self._at = None
        own = module.__dict__.get(_OWN_HOOKS)
        call = self._last
        if call is None or call[0]() is not module or call[1].program is not own:
            call = self._last = (weakref.ref(module), _OneCall(own, self._left)) if own is not None else None
        self._inside = call
        self.armed = False
        global_hooks.arm(False)
        if call is not None:
            module.__dict__[_OWN_HOOKS] = call[1]

    def _left(self, module: nn.Module, args: Any, result: Any) -> None:
        """The call has ended."""
        self._forget_call()
        if self._asleep and self._novelty.hears(self._heard):
            self.armed = True
            global_hooks.arm(True)

    def joined(self, module: nn.Module, name: str, part: Any) -> None:
        """A module was set as a part of another one."""
        self._registers("joined", module, name, part)

    def registered(self, module: nn.Module, name: str, tensor: Any) -> None:
        """A parameter or buffer was set on a module."""
        self._registers("registered", module, name, tensor)

    def _registers(self, hook: str, *given: Any) -> None:
        self.announce(REGISTERS[hook], sys._getframe(2))
        if not self._asleep and self._hooks is not None:  # that woke it
            getattr(self._hooks, hook)(*given)


def named_arguments(frame: FrameType) -> dict[str, Any]:
    """The arguments by name of the call of a module, in torch's ``frame`` that calls its hooks."""
    kwargs = frame.f_locals.get("kwargs")
    return kwargs if isinstance(kwargs, dict) else {}


class _OneCall(global_hooks.HookTable):
    """A module's own table of forward hooks during one call. Whoever counts its hooks finds the program's."""

    def __init__(self, program: Any, left: Callable[..., None]) -> None:
        super().__init__(program, "")
        self._left, self._thread = left, get_ident()

    def _ours(self) -> tuple[tuple[str, Any], ...]:
        return ((global_hooks.KEY, self._left),) if get_ident() == self._thread else ()

    def __len__(self) -> int:
        return len(self.program)

    def __bool__(self) -> bool:
        return True  # or torch would not look into it
