"""Global hooks: which module is running, who registers which parameter, when an optimizer steps.

Every hook returns None: any other value would replace the program's own values, and only healing may do that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from types import FrameType
from typing import Any

import torch
from torch import nn

from . import declared, fused, measuring, private, refused_calls
from .asleep import REGISTERS, Counter, Lookout, named_arguments
from .calls import tensors_returned
from .compiled import calls as compiled_calls
from .known_steps import KnownSteps
from .outside import autocasting
from .parents import running
from .patches import Patches
from .protocols import Healer
from .running import ModuleCall, Thread
from .session import Session
from .settings import plan_of
from .steps import Running
from .windows import Windows

_OTHER_THREADS = "modules that ran in other threads: modes are thread-local"
_CALLS_MODULES = str(private.module_internals.__file__), compiled_calls.CALLS_MODULES
"""Files of torch whose frames are between the program's call of a module and the hook."""


class ModuleHooks:
    """The hooks of one trace; ``capture.global_hooks`` calls them. See :class:`hooks.Watch` for steps and windows."""

    always_called = True
    """``leave`` also runs after exceptions."""

    def __init__(
        self,
        recorder: Session,
        patches: Patches,
        steps: int | None,
        windows: Windows | None,
        healer: Healer | None,
    ) -> None:
        self.recorder = recorder
        self.patches = patches
        self.healer = healer
        self.steps = steps
        self.windows = windows
        self.asleep: Counter | None = None
        """What is on in steps that are not watched."""
        self.known: KnownSteps | None = None
        """Takes the modes off in optimizer steps whose ops are known."""

    def elsewhere(self) -> None:
        """Called when a module runs in a thread that no trace watches."""
        self.recorder.not_seen[_OTHER_THREADS] = None

    # ------------------------------------------------------------ modules

    def enter(self, module: nn.Module, args: tuple[Any, ...], heard: FrameType | None = None) -> tuple[Any, ...] | None:
        """A module's forward begins. ``heard``: torch's frame, where the look-out heard of the call first."""
        recorder = self.recorder
        if recorder.broken:
            return None
        try:
            outer, module = module, compiled_calls.original(module)
            thread = recorder.threads.get(get_ident()) or recorder.thread_state()
            frame = heard or sys._getframe(1)
            if self.known is not None and self.known.inside is not None:
                recorder.stepping.forget_left()
                self.known.look()
            place = recorder.place(thread, frame)
            backward = private.current_graph_task_id() != -1
            modules = thread.modules
            if modules:
                root = modules[0].root
            else:
                if not backward and heard is None and self._ends(thread, outer, args, frame):
                    return None
                self._outermost(module)
                above = recorder.modules.above(module) if backward else None
                called = place if self._called_directly(frame) else -1
                root = above or recorder.modules.home(module, called, lambda: running(frame))
                recorder.births.given(args, place)
                if root.read is not root.ref:
                    declared.take(recorder, root)
            if isinstance(module, fused.MODULES):
                fused.begin()
            number = recorder.modules.number(module, root, thread.module)
            if not backward:
                recorder.modules.calls[number] += 1
            autocast = autocasting() if isinstance(module, torch.jit.ScriptModule) else ()
            modules.append(ModuleCall(module, number, id(frame), place, backward, root, id(frame.f_back), autocast))
            return self.healer.module_input(module, args, thread) if self.healer is not None else None
        except Exception:
            recorder.fail("a module hook")
            return None

    def _ends(self, thread: Thread, module: nn.Module, args: tuple[Any, ...], frame: FrameType) -> bool:
        """Whether watching ends before this call of an outermost module."""
        windows = self.windows
        if windows is None:
            return False
        if windows.over() and not thread.calls:
            windows.settle()
            if isinstance(self.asleep, Lookout):
                self.asleep.hears(module, args, frame)
            return True
        if windows.novelty is not None:
            windows.novelty.called(module, args, named_arguments(frame), frame)
        return False

    def _called_directly(self, frame: FrameType | None) -> bool:
        """Whether the program calls the module itself, so that its text names the module; checkpoint does not do
        that."""
        while frame is not None and frame.f_code.co_filename.endswith(_CALLS_MODULES):
            frame = frame.f_back
        return frame is not None and not self.recorder.places.hidden(frame.f_code.co_filename)

    def _outermost(self, module: nn.Module) -> None:
        self.patches.watch_compile()
        if self.recorder.reference is not None:
            self.recorder.reference.outermost(module)
        self.recorder.stepping.forget_left()
        self.recorder.origins.tidy()

    def leave(self, module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
        """A module's forward has ended, by an exception too."""
        recorder = self.recorder
        try:
            module = compiled_calls.original(module)
            thread = recorder.threads.get(get_ident())
            if thread is None:
                return
            if result is None and not recorder.broken:
                self._look_for_refusal(thread, module, args, sys._getframe(1))
            modules = thread.modules
            depth = _depth_of(modules, module, id(sys._getframe(1)))
            if depth >= 0:
                if not depth and self.healer is not None and result is not None and not modules[0].in_backward:
                    self.healer.module_output(module, result)
                if result is not None and not modules[depth].in_backward:
                    self._returned(modules[depth].number, result)
                del modules[depth:]
                if isinstance(module, fused.MODULES) and not any(isinstance(m.module, fused.MODULES) for m in modules):
                    fused.end()
                # a dtype that was read inside the call cannot decide anything after it
                while thread.reads and thread.reads[-1].depth > len(modules):
                    thread.reads.pop()
        except Exception:
            recorder.fail("a module hook")

    def _returned(self, number: int, result: Any) -> None:
        known = self.recorder.modules.results[number]
        with private.DisableTorchFunction():
            for tensor in tensors_returned(result):
                known[tensor.dtype] = None

    def _look_for_refusal(self, thread: Thread, module: nn.Module, args: tuple[Any, ...], frame: FrameType) -> None:
        error = sys.exc_info()[1]
        # an exception that the program is already handling when it calls the module was caught in another frame
        if not isinstance(error, Exception) or error.__traceback__ is None or error.__traceback__.tb_frame is not frame:
            return
        if not self.recorder.refusals.knows(error):
            refused_calls.from_module(self.recorder, thread, module, args, error, frame)

    def joined(self, module: nn.Module, name: str, part: Any) -> None:
        """A module was set as a part of another one."""
        if isinstance(part, nn.Module) and not self.recorder.broken:
            try:
                self.recorder.modules.parents.joined(module, name, part)
                self._tell("joined", sys._getframe(1))
            except Exception:
                self.recorder.fail("a registration hook")

    def registered(self, module: nn.Module, name: str, tensor: Any) -> None:
        """A parameter or buffer was set on a module."""
        recorder = self.recorder
        if isinstance(tensor, torch.Tensor) and not recorder.broken:
            try:
                with private.DisableTorchFunction():
                    recorder.births.registered(name, tensor, sys._getframe(1))
                self._tell("registered", sys._getframe(1))
            except Exception:
                recorder.fail("a registration hook")

    def _tell(self, hook: str, frame: FrameType) -> None:
        if isinstance(self.asleep, Lookout):
            self.asleep.announce(REGISTERS[hook], frame)

    # ------------------------------------------------------------ optimizers

    def step_begins(
        self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], compiled: FrameType | None = None
    ) -> None:
        """An optimizer's step begins. ``compiled``: torch's frame, if the step is compiled code."""
        recorder = self.recorder
        recorder.trains = True
        recorder.origins.sweep()  # few tensors are alive here
        frame, thread = compiled or sys._getframe(1), recorder.thread_state()
        place = recorder.place(thread, frame)
        step = recorder.stepping.begins(optimizer, args, kwargs, frame, place, len(thread.modules))
        if self.known is not None and self.known.inside is not None:
            self._follow(self.known.look)
        self._follow(lambda: self._before(optimizer, step))
        if not step.closures:
            self._follow(lambda: self._plan(optimizer, step.place))
        known, windows = self.known, self.windows
        if known is not None and windows is not None and compiled is None and not thread.calls:
            self._follow(lambda: known.begins(optimizer, step, windows.current))

    def _before(self, optimizer: Any, step: Running) -> None:
        if self.recorder.reference is not None:
            self.recorder.reference.step_begins(optimizer, step.place)
        self.recorder.updates.begins(optimizer, step.place, closure=bool(step.closures))

    def step_ends(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An optimizer's step has ended."""
        recorder = self.recorder
        step, known = recorder.stepping.ends(optimizer), self.known
        skipped = known is not None and bool(self._follow(lambda: known.ends(optimizer, step)))
        self._follow(lambda: recorder.updates.ends(optimizer, skipped))
        if recorder.reference is not None:
            recorder.reference.step_ends(optimizer)
        if step is not None and step.closures:  # the models have run, and the gradients exist
            self._follow(lambda: self._plan(optimizer, step.place))
        self._follow(lambda: measuring.after_step(recorder, optimizer))
        recorder.steps_done += 1
        number = self.windows.steps + 1 if self.windows is not None else recorder.steps_done
        recorder.stepping.done(number, recorder.ops)
        if self.windows is not None:
            self.windows.step_ended(optimizer)
        elif self.steps is not None and recorder.steps_done >= self.steps:
            raise SystemExit(0)
        if self.windows is None or self.windows.attached:
            self._follow(lambda: measuring.goes_on(recorder))

    def step_was_none(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """What seemed to be a step has returned, and was none."""
        self.recorder.stepping.ends(optimizer)
        self.recorder.updates.was_none(optimizer)

    def _plan(self, optimizer: Any, place: int) -> None:
        """Records the precision plan of each model when an optimizer steps for the first time."""
        if self.recorder.updates.steps_of(optimizer) == 1:
            self.recorder.told |= dict.fromkeys(declared.of_step(optimizer, sys._getframe(1)))
            for root in self.recorder.modules.roots:
                declared.take(self.recorder, root)
            models = list(self.recorder.modules.live_roots())  # those that ran in a watched thread
            for model in models:
                self.recorder.plans.append(
                    plan_of(model, optimizer=optimizer, place=place, event_of=self.recorder.event_of, others=models)
                )

    def _follow(self, look: Callable[[], Any]) -> Any:
        if not self.recorder.broken:
            try:
                return look()
            except Exception:
                self.recorder.fail("the optimizer's step")
        return None


def _depth_of(modules: list[ModuleCall], module: nn.Module, frame: int) -> int:
    """The position of the call of a module that ends in a frame, -1 where it did not begin while it was watched.

    Where Python's stack ended, hooks of the innermost calls did not run: a module that calls itself has entries left
    that the frame distinguishes.
    """
    last = -1
    for depth in range(len(modules) - 1, -1, -1):
        call = modules[depth]
        if call.module is module:
            if frame in (call.frame, call.outer):
                return depth
            last = max(last, depth)
    return last
