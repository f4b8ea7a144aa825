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

import torch
from torch import nn

from .capture import global_hooks, measuring, mode_stacks, private, threads, unwatched
from .capture.asleep import Counter, Lookout
from .capture.compiled import regions
from .capture.dispatch_mode import DispatchMode, WatchingFunctionMode
from .capture.function_mode import FunctionMode
from .capture.held_signals import held
from .capture.known_steps import KnownSteps
from .capture.module_hooks import ModuleHooks
from .capture.patches import Patches
from .capture.protocols import Context, Healer, MakeHealer, Opened
from .capture.recorder import Recorder
from .capture.session import Reference
from .capture.settings import plan_of
from .capture.stacks import UserCode
from .capture.windows import Windows


class Watch:
    """Watches the calling thread, and autograd's threads with it, from :meth:`start` to :meth:`stop`.

    model: its name is used in reports even if it is called later (optional). healing: makes the object that finds other
    arguments for each call that was refused because of a dtype.
    steps: after this many optimizer steps the program ends (SystemExit 0). windows: which steps are watched, if not
    all. numerics: measure values too.
    reference: makes, for a recorder, the object that computes in higher precision in parallel with the program.
    eager: compiled functions run eagerly, op by op.
    """

    hooks: ModuleHooks
    dispatch_mode: private.TorchDispatchMode
    _opened: mode_stacks.Opened
    """The dispatch modes and the function modes that were on before."""
    _below: mode_stacks.Opened
    """Those below ours since the last time that it was attached."""

    def __init__(
        self,
        model: nn.Module | None = None,
        *,
        user: UserCode | None = None,
        healing: MakeHealer | None = None,
        steps: int | None = None,
        windows: Windows | None = None,
        numerics: bool = False,
        reference: Callable[[Recorder], Reference] | None = None,
        eager: bool = False,
    ) -> None:
        self.recorder = Recorder(user, numerics and not private.off(private.NUMERICS))
        needs = private.REFERENCE, private.NUMERICS, private.BACKWARD
        if reference is not None and not any(map(private.off, needs)):
            made = reference(self.recorder)
            if made.whole:
                self.recorder.reference = self.recorder.followed = made
            else:
                self.recorder.checks = made
            self.recorder.ledger.repeats = made.regions
        self.healer: Healer | None = None
        self.running = False
        self.attached = False
        """Whether anything but a count of steps is installed."""
        self.windows = windows
        self._asleep: Counter | None = None
        """What is on in steps that are not watched."""
        self._known: KnownSteps | None = None
        if windows is not None and windows.novelty is not None:
            windows.novelty.look = self._counts
            windows.novelty.calls = lambda: sum([op.count for op in self.recorder.ops])
            windows.novelty.damaging = lambda: measuring.damaging(self.recorder)
            self._asleep = Lookout(windows, windows.novelty, self.recorder)
            self._known = KnownSteps(self.recorder, windows.novelty, self._modes_off, self._modes_on)
        elif windows is not None:
            self._asleep = Counter(windows)
        self._healing = healing
        self._steps = steps
        self._eager = eager
        self._default = torch.float32
        if windows is not None:
            windows.attach, windows.detach = self._attach_again, self._detach
            windows.busy, windows.enough = lambda: bool(self.recorder.thread_state().calls), steps
        if model is not None:
            self.recorder.modules.root(model, -1)
            self.recorder.plans.append(plan_of(model))

    def _counts(self) -> tuple[int, ...]:
        recorder = self.recorder
        return len(recorder.ops), len(recorder.refusals.records)

    def start(self, opened: Opened | None = None) -> None:
        """Installs everything. :meth:`stop` removes it, whatever happens in between. ``opened``: the frame that
        called."""
        self.running = True
        self._remove_left()
        self.recorder.begin()
        self.recorder.ledger.start()
        self._opened = mode_stacks.dispatch.modes(), mode_stacks.functions.modes()
        self.dispatch_mode = DispatchMode(self)
        function_mode: type = FunctionMode
        if self._healing is not None:
            unrecorded = lambda: mode_stacks.top_dispatch_mode_off(DispatchMode)
            self.healer = self._healing(Context(self.recorder, unrecorded, opened))
            function_mode = self.healer.function_mode(FunctionMode)
        self._function_mode = function_mode(self)
        self._new_patches()
        self.hooks = ModuleHooks(self.recorder, self._patches, self._steps, self.windows, self.healer)
        self.hooks.asleep, self.hooks.known = self._asleep, self._known
        try:
            if self._asleep is not None:
                self._asleep.begins(self.hooks)
            self._attach()
        except BaseException:
            self.stop()
            raise

    def _new_patches(self) -> None:
        modes_off = lambda: mode_stacks.modes_off(FunctionMode, DispatchMode)
        self._patches = Patches(self.recorder, modes_off, self.healer, self._eager)

    def _attach(self) -> None:
        self.attached = True
        if self.windows is not None and self._asleep is not None:
            self.windows.attached = True
            self._asleep.wakes()
        with threads.lock():
            threads.add(self, self.recorder.thread)
            self._patches.install()
            global_hooks.settle()
        self._below = self._opened
        with regions.surfaced():
            self._insert()

    def _insert(self) -> None:
        self._below = (
            mode_stacks.dispatch.insert(self.dispatch_mode, self._opened[0]),
            mode_stacks.functions.insert(self._function_mode, self._opened[1]),
        )

    def _modes_off(self) -> bool:
        """Takes the modes off for a step whose ops are known, if they are the innermost ones."""
        modes, others = mode_stacks.functions.modes(), private.current_dispatch_mode()
        if not modes or modes[-1] is not self._function_mode or others is not self.dispatch_mode:
            return False
        with held():
            self._take_off()
        return True

    def _modes_on(self) -> bool:
        """Puts them back, unless code that calls this is run by a transform or the engine."""
        if private.in_functorch() or private.current_graph_task_id() != -1:
            return False
        with held():
            self._take_off()  # an interrupt may have come before they were off
            self._insert()
        return True

    def _take_off(self) -> None:
        mode_stacks.functions.remove(self._function_mode)
        mode_stacks.dispatch.remove(self.dispatch_mode)

    @property
    def skips(self) -> bool:
        """Whether the ops of the optimizer step that is running are not seen, or of one that an exception has left."""
        return self._known is not None and self._known.inside is not None

    def _attach_again(self) -> None:
        """Before a step that is to be watched; in a hook of the one before it."""
        try:
            with held():
                unwatched.resume(self.recorder, self._default)
                self._new_patches()
                self.hooks.patches = self._patches
                self._attach()
        except Exception:
            self.recorder.fail("the beginning of a watched step")
            self._detach()

    def _detach(self) -> None:
        """After the last of some watched steps: only a count of the steps stays."""
        assert self.windows is not None and self._asleep is not None, "a watch of all steps is not detached"
        self.windows.attached = self.attached = False
        try:
            with held(), regions.surfaced(), ExitStack() as last_first:
                last_first.callback(self._asleep.rests)
                last_first.callback(self.rest)
                last_first.callback(self._remove_shared, self._asleep)
                last_first.callback(mode_stacks.dispatch.end, self.dispatch_mode, self._below[0], None)
                last_first.callback(mode_stacks.functions.end, self._function_mode, self._below[1], None)
        except Exception:
            self.recorder.fail("the end of a watched step")

    def rest(self) -> None:
        """Drops what is known of live tensors in a way that the program could notice. For a watch that is detached."""
        self._default = unwatched.rest(self.recorder)

    def stop(self, error: BaseException | None = None) -> None:
        """Removes every mode, hook, patch and stance, and drops all tensors. Can be called twice. ``error``: the
        exception that leaves the block, if any."""
        if not self.running:
            return
        with regions.surfaced(), ExitStack() as last_first:  # each step runs even if another one fails
            last_first.callback(self._forget)
            last_first.callback(self.recorder.ledger.stop)
            if self._asleep is not None:
                last_first.callback(self._asleep.remove)  # what is replaced twice is restored from the top
            last_first.callback(self._remove_shared)
            if not self.attached:
                pass
            elif self.skips and error is None and self.recorder.thread == get_ident():  # they need not be on
                last_first.callback(self._take_off)
            elif self.recorder.thread == get_ident():
                last_first.callback(mode_stacks.dispatch.end, self.dispatch_mode, self._below[0], error)
                last_first.callback(mode_stacks.functions.end, self._function_mode, self._below[1], error)
                last_first.callback(private.end_interrupted, error)
            else:  # modes belong to their thread; there they let calls pass until it opens another trace
                last_first.callback(self._ends_elsewhere)

    def _ends_elsewhere(self) -> None:
        self.recorder.broken = True
        self.recorder.not_seen["what came after another thread closed the trace: modes are thread-local"] = None

    def _forget(self) -> None:
        self.recorder.forget()
        self._opened = self._below = [], []
        self.running = self.attached = False

    def _remove_left(self) -> None:
        """Takes modes off this thread whose trace another thread has closed."""
        for mode in mode_stacks.functions.modes():
            if isinstance(mode, WatchingFunctionMode) and not mode.watch.running:
                mode_stacks.functions.remove(mode)
        for mode in mode_stacks.dispatch.modes():
            if isinstance(mode, DispatchMode) and not mode.watch.running:
                mode_stacks.dispatch.remove(mode)

    def _remove_shared(self, counter: Counter | None = None) -> None:
        """Removes what acts in all threads. ``counter``: what is on from now on, if anything."""
        with threads.lock(), ExitStack() as last_first:
            last_first.callback(self._patches.remove)
            threads.discard(self, counter)
            global_hooks.settle()
