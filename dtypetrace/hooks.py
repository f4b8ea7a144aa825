"""See it: module hooks, a TorchFunctionMode and a TorchDispatchMode that record dtypes.

No one of the three sees everything. The function mode sees what the code called, with the tensors
that it passed, and the composites that raise before anything is dispatched; the dispatch mode sees
each operator that runs, in backward too; the hooks tell the modules apart and see what raises in
Python between the two. All write into one recorder, which keeps plain data only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from torch import nn

from .capture import global_hooks, private, threads
from .capture.dispatch_mode import DispatchMode
from .capture.function_mode import FunctionMode
from .capture.module_hooks import ModuleHooks
from .capture.patches import Patches
from .capture.places import UserCode
from .capture.recorder import Recorder
from .capture.seam import Context, Healer, MakeHealer, Opened, Reference
from .capture.settings import plan_of


class Watch:
    """Watches the calling thread between :meth:`start` and :meth:`stop`, and autograd's threads with it.

    model: named in reports although it may be called later (optional). healing: makes what is asked for other arguments
    for each call that a dtype refused.
    steps: after so many optimizer steps the program ends (SystemExit 0), or ``on_enough`` is called
    where a module is next entered from outside and goes on. numerics: measure values too.
    reference: makes, for a recorder, what carries values in higher precision beside the program's.
    """

    hooks: ModuleHooks
    dispatch_mode: private.TorchDispatchMode

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
        self.recorder = Recorder(user, numerics)
        self.recorder.reference = reference(self.recorder) if reference is not None else None
        self.healer: Healer | None = None
        self.running = False
        self._healing = healing
        self._steps = steps
        self._on_enough = on_enough
        if model is not None:
            self.recorder.modules.root(model, -1)
            self.recorder.plans.append(plan_of(model))

    def start(self, opened: Opened | None = None) -> None:
        """Installs everything. Undone by :meth:`stop`, whatever happens in between. ``opened``: the frame that asks."""
        self.running = True
        self.recorder.begin()
        self._below = (private.dispatch_mode_count(), private.function_mode_count())
        self.dispatch_mode = DispatchMode(self)
        function_mode: type = FunctionMode
        if self._healing is not None:
            unrecorded = lambda: private.top_dispatch_mode_off(DispatchMode)
            self.healer = self._healing(Context(self.recorder, unrecorded, opened))
            function_mode = self.healer.function_mode(FunctionMode)
        self._function_mode = function_mode(self)
        modes_off = lambda: private.modes_off(FunctionMode, DispatchMode)
        self._patches = Patches(self.recorder, modes_off, self.healer)
        self.hooks = ModuleHooks(self.recorder, self._patches, self._steps, self._on_enough, self.healer)
        try:
            with threads.lock():
                threads.add(self, self.recorder.thread)
                self._patches.install()
                global_hooks.install()
            private.push_dispatch_mode(self.dispatch_mode)
            private.push_function_mode(self._function_mode)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Removes every mode, hook, patch and stance, and forgets all tensors. Idempotent."""
        if not self.running:
            return
        self.running = False
        with ExitStack() as last_first:  # each is done, whatever becomes of another
            last_first.callback(self.recorder.forget)
            last_first.callback(self._remove_shared)
            last_first.callback(private.remove_dispatch_mode, self.dispatch_mode, self._below[0])
            last_first.callback(private.remove_function_mode, self._function_mode, self._below[1])

    def _remove_shared(self) -> None:
        """Removes what acts in all threads."""
        with threads.lock(), ExitStack() as last_first:
            last_first.callback(self._patches.remove)
            threads.discard(self)
            if not threads.everyone():
                global_hooks.remove()
