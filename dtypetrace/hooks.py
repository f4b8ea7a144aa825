"""Module hooks, a TorchFunctionMode and a TorchDispatchMode that record dtypes.

None of the three sees everything. The function mode sees the functions that the code called, the tensors passed to
them, and composites that raise before anything is dispatched. The dispatch mode sees each operator that runs, in
backward too. The module hooks say which module is running, and see exceptions raised in Python between the two. All
write into one recorder, which keeps plain data only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from threading import get_ident
from typing import Any

from torch import nn

from .capture import global_hooks, mode_stacks, private, threads
from .capture.dispatch_mode import DispatchMode, WatchingFunctionMode
from .capture.function_mode import FunctionMode
from .capture.module_hooks import ModuleHooks
from .capture.patches import Patches
from .capture.protocols import Context, Healer, MakeHealer, Opened, Reference
from .capture.recorder import Recorder
from .capture.settings import plan_of
from .capture.stacks import UserCode


class Watch:
    """Watches the calling thread, and autograd's threads with it, from :meth:`start` to :meth:`stop`.

    model: its name is used in reports even if it is called later (optional). healing: makes the object that finds other
    arguments for each call that was refused because of a dtype.
    steps: after this many optimizer steps the program ends (SystemExit 0); with ``on_enough``, that is called instead
    when a module is next called from outside, and the program goes on. numerics: measure values too.
    reference: makes, for a recorder, the object that computes in higher precision in parallel with the program.
    """

    hooks: ModuleHooks
    dispatch_mode: private.TorchDispatchMode
    _before: tuple[list[Any], list[Any]]
    """The dispatch modes and the function modes that were on before."""

    def __init__(
        self,
        model: nn.Module | None = None,
        *,
        user: UserCode | None = None,
        healing: MakeHealer | None = None,
        steps: int | None = None,
        on_enough: Callable[[], None] | None = None,
        numerics: bool = False,
        reference: Callable[[Recorder], Reference] | None = None,
    ) -> None:
        self.recorder = Recorder(user, numerics and not private.off(private.NUMERICS))
        needs = private.REFERENCE, private.NUMERICS, private.BACKWARD
        if reference is not None and not any(map(private.off, needs)):
            self.recorder.reference = reference(self.recorder)
        self.healer: Healer | None = None
        self.running = False
        self._healing = healing
        self._steps = steps
        self._on_enough = on_enough
        if model is not None:
            self.recorder.modules.root(model, -1)
            self.recorder.plans.append(plan_of(model))

    def start(self, opened: Opened | None = None) -> None:
        """Installs everything. :meth:`stop` removes it, whatever happens in between. ``opened``: the frame that
        called."""
        self.running = True
        self._remove_left()
        self.recorder.begin()
        self._before = mode_stacks.dispatch_modes(), mode_stacks.function_modes()
        self.dispatch_mode = DispatchMode(self)
        function_mode: type = FunctionMode
        if self._healing is not None:
            unrecorded = lambda: mode_stacks.top_dispatch_mode_off(DispatchMode)
            self.healer = self._healing(Context(self.recorder, unrecorded, opened))
            function_mode = self.healer.function_mode(FunctionMode)
        self._function_mode = function_mode(self)
        modes_off = lambda: mode_stacks.modes_off(FunctionMode, DispatchMode)
        self._patches = Patches(self.recorder, modes_off, self.healer)
        self.hooks = ModuleHooks(self.recorder, self._patches, self._steps, self._on_enough, self.healer)
        try:
            with threads.lock():
                threads.add(self, self.recorder.thread)
                self._patches.install()
                global_hooks.install()
            mode_stacks.push_dispatch_mode(self.dispatch_mode)
            private.push_function_mode(self._function_mode)
        except BaseException:
            self.stop()
            raise

    def stop(self, error: BaseException | None = None) -> None:
        """Removes every mode, hook, patch and stance, and drops all tensors. Can be called twice. ``error``: the
        exception that leaves the block, if any."""
        if not self.running:
            return
        with ExitStack() as last_first:  # each step runs even if another one fails
            last_first.callback(self._forget)
            last_first.callback(self._remove_shared)
            if self.recorder.thread == get_ident():
                last_first.callback(mode_stacks.end_dispatch_mode, self.dispatch_mode, self._before[0], error)
                last_first.callback(mode_stacks.end_function_mode, self._function_mode, self._before[1], error)
                last_first.callback(private.end_interrupted, error)
            else:  # modes belong to their thread; there they let calls pass until it opens another trace
                last_first.callback(self._ends_elsewhere)

    def _ends_elsewhere(self) -> None:
        self.recorder.broken = True
        self.recorder.not_seen["what came after another thread closed the trace: modes are thread-local"] = None

    def _forget(self) -> None:
        self.recorder.forget()
        self._before = [], []
        self.running = False

    def _remove_left(self) -> None:
        """Takes modes off this thread whose trace another thread has closed."""
        for mode in mode_stacks.function_modes():
            if isinstance(mode, WatchingFunctionMode) and not mode.watch.running:
                mode_stacks.remove_function_mode(mode)
        for mode in mode_stacks.dispatch_modes():
            if isinstance(mode, DispatchMode) and not mode.watch.running:
                mode_stacks.remove_dispatch_mode(mode)

    def _remove_shared(self) -> None:
        """Removes what acts in all threads."""
        with threads.lock(), ExitStack() as last_first:
            last_first.callback(self._patches.remove)
            threads.discard(self)
            if not threads.everyone():
                global_hooks.remove()
