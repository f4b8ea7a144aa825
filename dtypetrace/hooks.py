"""See it: module hooks, a TorchFunctionMode and a TorchDispatchMode that record dtypes.

No one of the three sees everything. The function mode sees what the code called, with the tensors
that it passed, and the composites that raise before anything is dispatched; the dispatch mode sees
each operator that runs, in backward too; the hooks tell the modules apart and see what raises in
Python between the two. All write into one recorder, which keeps plain data only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from threading import get_ident
from types import FrameType
from typing import Any

import torch
from torch import nn

from .capture import global_hooks, private, refused_calls, threads
from .capture.births import CAST_CALLS, op_name, tensors_in
from .capture.increments import WATCHED
from .capture.patches import Patches
from .capture.places import UserCode
from .capture.recorder import Recorder
from .capture.seam import Healer, again, kernel_refused, refused
from .capture.settings import plan_of
from .capture.steps import Running

Tensor = torch.Tensor
_function_modes, _pop_function_mode, _push_function_mode = (
    private.function_mode_count,
    private.pop_function_mode,
    private.push_function_mode,
)
_any_autocast = private.any_autocast_enabled
_Operator, _SubclassesOff = private.OpOverload, private.DisableTorchFunctionSubclass
_OTHER_THREADS = "modules that ran in other threads: modes are thread-local"
_FUSED = frozenset({nn.TransformerEncoderLayer, nn.TransformerEncoder, nn.MultiheadAttention})
_PLAIN = {Tensor, nn.Parameter, nn.Buffer}  # and what _unwraps_itself finds to be like them

# torch functions written in Python that call composites which raise above the dispatch mode
_REENTERED = (Tensor.backward, torch.autograd.backward, torch.autograd.grad, nn.functional.multi_head_attention_forward)


class Watch:
    """Watches the calling thread between :meth:`start` and :meth:`stop`, and autograd's threads with it.

    model: named in reports although it may be called later (optional). on_refusal: asked for each
    call that a dtype refused, for other arguments to call again with.
    steps: after so many optimizer steps the program ends (SystemExit 0), or ``on_enough`` is called
    where a module is next entered from outside and goes on. numerics: measure values too.
    reference: makes, for a recorder, what carries values in higher precision beside the program's.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        *,
        user: UserCode | None = None,
        on_refusal: Healer | None = None,
        steps: int | None = None,
        on_enough: Callable[[], None] | None = None,
        numerics: bool = False,
        reference: Callable[[Recorder], Any] | None = None,
    ) -> None:
        self.recorder = Recorder(user, numerics)
        self.recorder.reference = reference(self.recorder) if reference is not None else None
        self.on_refusal = on_refusal
        self.running = False
        function_mode = _FunctionMode if on_refusal is None else on_refusal.function_mode(_FunctionMode)
        self._modes = (_DispatchMode(self.recorder, self), function_mode(self.recorder, self))
        self.dispatch_mode = self._modes[0]
        self._patches = Patches(self.recorder, lambda: private.modes_off(_FunctionMode, _DispatchMode), on_refusal)
        self.hooks = _ModuleHooks(self.recorder, self._patches, steps, on_enough, on_refusal)
        if on_refusal is not None:
            on_refusal.recorder, on_refusal.dispatch_mode = self.recorder, self._modes[0]
        if model is not None:
            self.recorder.modules.root(model, -1)
            self.recorder.plans.append(plan_of(model))

    def start(self) -> None:
        """Installs everything. Undone by :meth:`stop`, whatever happens in between."""
        self.running = True
        self.recorder.begin()
        self._below = (private.dispatch_mode_count(), private.function_mode_count())
        try:
            with threads.lock():
                threads.add(self, self.recorder.thread)
                self._patches.install()
                global_hooks.install()
            private.push_dispatch_mode(self._modes[0])
            private.push_function_mode(self._modes[1])
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
            last_first.callback(private.remove_dispatch_mode, self._modes[0], self._below[0])
            last_first.callback(private.remove_function_mode, self._modes[1], self._below[1])

    def _remove_shared(self) -> None:
        """Removes what acts in all threads."""
        with threads.lock(), ExitStack() as last_first:
            last_first.callback(self._patches.remove)
            threads.discard(self)
            if not threads.everyone():
                global_hooks.remove()


class _ModuleHooks:
    """Global hooks: which module is running, who registers which parameter, when an optimizer steps."""

    def __init__(
        self,
        recorder: Recorder,
        patches: Patches,
        steps: int | None,
        on_enough: Callable[[], None] | None,
        healer: Healer | None,
    ) -> None:
        self.recorder = recorder
        self.patches = patches
        self.healer = healer
        self.steps = steps
        self.on_enough = on_enough

    always_called = True  # leaving is told of on exceptions too

    def elsewhere(self) -> None:
        """Called where a module runs in a thread that no trace watches."""
        self.recorder.not_seen[_OTHER_THREADS] = None

    # every hook returns None: anything else replaces the program's own values, which only healing may

    def enter(self, module: nn.Module, args: tuple) -> tuple | None:
        recorder = self.recorder
        if recorder.broken:
            return None
        try:
            thread = recorder.threads.get(get_ident()) or recorder.thread_state()
            frame = sys._getframe(1)
            place = recorder.place(thread, frame)
            backward = private.current_graph_task_id() != -1
            modules = thread.modules
            if modules:
                root = modules[0][5]
            else:
                if (
                    self.steps is not None
                    and recorder.steps_done >= self.steps
                    and not thread.calls
                    and self.on_enough is not None
                ):
                    # not in the optimizer's own hook: hooks cannot be removed while torch walks through them
                    self.on_enough()
                    return None
                self._outermost()
                root = (recorder.modules.above(module) if backward else None) or recorder.modules.root(
                    module, place if self._called_directly(frame) else -1
                )
                recorder.births.given(args, place)
            if type(module) in _FUSED and not module.training:
                recorder.not_seen[
                    f"{type(module).__name__}'s fused fast path: it is off while hooks or modes are on"
                ] = None
            modules.append((module, recorder.modules.number(module, root), id(frame), place, backward, root))
            return self.healer.before_module(module, args, thread) if self.healer is not None else None
        except Exception:
            recorder.fail("a module hook")

    def _called_directly(self, frame: FrameType | None) -> bool:
        """Whether the program calls the module itself, so that its text tells the module's name; checkpoint does not."""
        while frame is not None and frame.f_code.co_filename == private.module_internals.__file__:
            frame = frame.f_back
        return frame is not None and not self.recorder.places.hidden(frame.f_code.co_filename)

    def _outermost(self) -> None:
        self.patches.mind_compile()
        recorder = self.recorder
        recorder.stepping.forget_left()
        recorder.origins.tidy()

    def leave(self, module: nn.Module, args: tuple, result: Any) -> None:
        recorder = self.recorder
        try:
            thread = recorder.threads.get(get_ident())
            if thread is None:
                return
            modules = thread.modules
            if result is None and not recorder.broken:
                error, frame = sys.exc_info()[1], sys._getframe(1)
                # one that the program is handling when it calls the module was caught in another frame
                caught = (
                    isinstance(error, Exception)
                    and error.__traceback__ is not None
                    and error.__traceback__.tb_frame is frame
                )
                if caught and not recorder.knows(error):
                    refused_calls.from_module(recorder, thread, module, args, error, frame)
            if modules and modules[-1][0] is module or any(entry[0] is module for entry in modules):
                while modules.pop()[0] is not module:
                    pass
                # what was read inside the call can decide nothing after it
                while thread.reads and thread.reads[-1][4] > len(modules):
                    thread.reads.pop()
        except Exception:
            recorder.fail("a module hook")

    def registered(self, module: nn.Module, name: str, tensor: Any) -> None:
        recorder = self.recorder
        if isinstance(tensor, Tensor) and not recorder.broken:
            try:
                with private.DisableTorchFunction():
                    recorder.births.registered(name, tensor, sys._getframe(1))
            except Exception:
                recorder.fail("a registration hook")

    def step_begins(self, optimizer: Any, args: tuple, kwargs: dict) -> None:
        recorder = self.recorder
        recorder.trains = True
        recorder.origins.sweep()  # few tensors are alive here
        frame, thread = sys._getframe(1), recorder.thread_state()
        step = recorder.stepping.begins(
            optimizer, args, kwargs, frame, recorder.place(thread, frame), len(thread.modules)
        )
        self._follow(lambda: self._before(optimizer, step))
        if not step.closures:
            self._follow(lambda: self._plan(optimizer, step.place))

    def _before(self, optimizer: Any, step: Running) -> None:
        if self.recorder.reference is not None:
            self.recorder.reference.step_begins(optimizer, step.place)
        self.recorder.updates.begins(optimizer, step.place, closure=bool(step.closures))

    def step_ends(self, optimizer: Any, args: tuple, kwargs: dict) -> None:
        recorder = self.recorder
        step = recorder.stepping.ends(optimizer)
        self._follow(lambda: recorder.updates.ends(optimizer))
        if recorder.reference is not None:
            recorder.reference.step_ends(optimizer)
        if step is not None and step.closures:  # the models have run, and the gradients are there
            self._follow(lambda: self._plan(optimizer, step.place))
        recorder.steps_done += 1
        if self.steps is not None and recorder.steps_done >= self.steps and self.on_enough is None:
            raise SystemExit(0)

    def _plan(self, optimizer: Any, place: int) -> None:
        """Notes the precision plan of each model, when an optimizer steps for the first time."""
        if self.recorder.updates.steps_of(optimizer) == 1:
            models = list(self.recorder.modules.live_roots())  # those that ran in a watched thread
            for model in models:
                self.recorder.plans.append(
                    plan_of(model, optimizer=optimizer, place=place, step_of=self.recorder.step_of, others=models)
                )

    def _follow(self, look: Callable[[], None]) -> None:
        if not self.recorder.broken:
            try:
                look()
            except Exception:
                self.recorder.fail("the optimizer's step")


# ---------------------------------------------------------------- the modes


class _DispatchMode(private.TorchDispatchMode):
    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # saves importing dynamo, and two frames an op

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __init__(self, recorder: Recorder, watch: Watch) -> None:
        super().__init__()
        self.recorder = recorder
        self.watch = watch

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        recorder = self.recorder
        plain = True
        for t in types:
            if t not in _PLAIN:
                if _unwraps_itself(t):
                    recorder.not_seen[f"inside {t.__name__}'s own kernels: what it calls on plain tensors was"] = None
                    return NotImplemented  # the subclass unwraps itself; what it calls inside comes back here
                plain = plain and not private.answers_torch_functions(t)
        frame = sys._getframe(0).f_back
        ours = guard = None
        if modes := _function_modes():
            # the engine inside a re-entered backward has ours on, which would see the call once more
            ours = _pop_function_mode()
            if not isinstance(ours, _FunctionMode):
                _push_function_mode(ours)
                ours, plain = None, False
            elif modes > 1:
                plain = False
            elif plain:  # the engine hands on tensors with a __torch_function__ as plain ones
                guard = _SubclassesOff()
                guard.__enter__()
        try:
            if not plain:
                return _dispatch_aside(self.watch, func, args, kwargs, frame)
            if recorder.values is not None and func in WATCHED:
                recorder.before(func, args, kwargs, frame)
            kernel = func._op if type(func) is _Operator else func  # all that calling it does, less a frame
            if recorder.reference is not None:
                kernel = recorder.reference.around(func, kernel)
            try:
                out = kernel(*args, **kwargs) if kwargs else kernel(*args)
            except Exception as error:
                healed = kernel_refused(self.watch, func, args, kwargs or {}, error, frame)
                if healed is None:
                    raise
                args, kwargs, out = healed
            if recorder.broken:
                return out
            try:
                recorder.saw(func, args, kwargs, out, frame)
            except Exception:
                recorder.fail("the dispatch mode")
            return out
        finally:
            if guard is not None:
                guard.__exit__(None, None, None)
            if ours is not None:
                _push_function_mode(ours)


def _unwraps_itself(kind: type) -> bool:
    """Whether a subclass of Tensor comes with a ``__torch_dispatch__`` that takes it apart.

    Those made by ``_make_subclass`` (quantized parameters, lazy ones) come here without one. A fake tensor's leaves the
    work to its mode, which torch asks only after ours has passed the call on.
    """
    if kind.__torch_dispatch__ is Tensor.__torch_dispatch__ or kind.__module__ == "torch._subclasses.fake_tensor":
        if not private.answers_torch_functions(kind):
            _PLAIN.add(kind)
        return False
    return True


def _dispatch_aside(watch, func, args, kwargs, frame):
    """An operator that runs while a user's function mode is on, or on tensors with a ``__torch_function__`` of their own.

    Those tensors would see the call once more, and reading a tensor's dtype would go through all of them.
    """
    recorder = watch.recorder
    if recorder.values is not None and func in WATCHED:
        with private.DisableTorchFunction():
            recorder.before(func, args, kwargs, frame)
    kernel = func._op if type(func) is private.OpOverload else func
    if recorder.reference is not None:
        kernel = recorder.reference.around(func, kernel)
    try:
        with private.DisableTorchFunctionSubclass():
            out = kernel(*args, **kwargs) if kwargs else kernel(*args)
    except Exception as error:
        with private.DisableTorchFunction():
            healed = kernel_refused(watch, func, args, kwargs or {}, error, frame)
        if healed is None:
            raise
        args, kwargs, out = healed
    if not recorder.broken:
        try:
            with private.DisableTorchFunction():
                recorder.saw(func, args, kwargs, out, frame)
        except Exception:
            recorder.fail("the dispatch mode")
    return out


class _FunctionMode(private.TorchFunctionMode):
    def __init__(self, recorder: Recorder, watch: Watch) -> None:
        super().__init__()
        self.recorder = recorder
        self.watch = watch

    def __torch_function__(self, func, types, args=(), kwargs=None):
        special = _SPECIAL.get(func)
        if special is not None:
            return special(self, func, args, kwargs or {})
        recorder = self.recorder
        thread = recorder.threads.get(get_ident()) or recorder.thread_state()
        calls = thread.calls
        autocast = _any_autocast()  # in the dispatch handler it reads False even when on
        calls.append([func, args, kwargs, None, autocast])
        try:
            out = func(*args, **kwargs) if kwargs else func(*args)
        except Exception as error:
            calls.pop()
            healed = refused(self, thread, func, args, kwargs or {}, error, sys._getframe(0).f_back)
            if healed is None:
                raise
        except BaseException:
            calls.pop()
            raise
        else:
            healed = None
            calls.pop()
        if healed is not None:
            return again(self, func, healed)
        if recorder.reference is not None:
            recorder.reference.called(func, args, kwargs, out)
        # the common case is done here: a tensor that the dispatch mode has marked, no dtype named, no autocast
        if not recorder.broken and (
            kwargs and "dtype" in kwargs or recorder.origins.of(out) is None or func in CAST_CALLS or autocast
        ):
            try:
                with private.DisableTorchFunction():  # a user's own mode or subclass must not see our reads
                    recorder.births.called(thread, func, args, kwargs, out, sys._getframe(0).f_back)
            except Exception:
                recorder.fail("the function mode")
        return out


def _plain(mode, func, args, kwargs):
    return func(*args, **kwargs)


def _get_dtype(mode, func, args, kwargs):
    dtype = func(*args, **kwargs)
    recorder = mode.recorder
    if not recorder.broken:
        try:
            frame = sys._getframe(1).f_back
            while frame is not None and recorder.places.own(
                frame.f_code.co_filename
            ):  # healing's mode lies around this one
                frame = frame.f_back
            with private.DisableTorchFunction():
                recorder.births.read_dtype(recorder.thread_state(), args[0], dtype, frame)
        except Exception:
            recorder.fail("a read of dtype")
    return dtype


def _get_grad(mode, func, args, kwargs):
    grad = func(*args, **kwargs)
    recorder = mode.recorder
    if isinstance(grad, Tensor) and not recorder.broken:
        try:
            origins = recorder.origins
            origins.gradient(grad, args[0])
            if origins.of(grad) is None and (owner := origins.of(args[0])) is not None:
                with private.DisableTorchFunction():
                    if grad.dtype is args[0].dtype:
                        origins.mark(grad, owner.step, -1)
        except Exception:
            recorder.fail("a read of grad")
    return grad


def _set_tensor(mode, func, args, kwargs):
    """``x.data = y`` and ``x.grad = y``: with the value comes its origin, under the same object."""
    recorder = mode.recorder
    try:
        out = func(*args, **kwargs)
    except Exception as error:
        healed = refused(mode, recorder.thread_state(), func, args, kwargs, error, sys._getframe(1).f_back)
        if healed is None:
            raise
        out, args = func(*healed.args, **healed.kwargs), healed.args
    target, value = args[0], args[1] if len(args) > 1 else None
    if func == _GRAD_SET and isinstance(value, Tensor) and not recorder.broken:
        recorder.origins.gradient(value, target)
    if func == _DATA_SET and isinstance(value, Tensor) and not recorder.broken:
        try:
            with private.DisableTorchFunction():
                step = recorder.mark_of(value, recorder.place(recorder.thread_state(), sys._getframe(1).f_back)).step
                recorder.became(target, step)
        except Exception:
            recorder.fail("a write of data")
    return out


def _reenter(mode, func, args, kwargs):
    """Runs a torch function written in Python with the mode on inside it too."""
    if private.function_mode_count():  # the program's own modes see the call first, and none of what it does inside
        with private.last_function_mode(mode):
            return func(*args, **kwargs)
    recorder = mode.recorder
    thread = recorder.thread_state()
    frame = sys._getframe(1).f_back
    healer = None
    if func is not nn.functional.multi_head_attention_forward:
        recorder.backward_place = recorder.place(thread, frame)
        healer = mode.watch.on_refusal
    if healer is not None:
        _told(mode, healer.before_backward, thread, frame, args, kwargs)
    kind = next((type(t) for t in tensors_in(args, kwargs) if private.answers_torch_functions(type(t))), None)
    try:
        if kind is not None:  # it is asked for the call, and for none of what the call does inside
            recorder.not_seen[
                f"torch functions inside {op_name(func)} of {kind.__name__}, which has a __torch_function__ of its own"
            ] = None
            return func(*args, **kwargs)
        with mode:
            out = _BODIES[func](*args, **kwargs)
    except Exception as error:
        if not recorder.knows(error):  # what it called is healed by itself; the whole is never run again
            refused(mode, thread, func, args, kwargs, error, frame)
        raise
    finally:
        if healer is not None:
            _told(mode, healer.after_backward)
    return out


def _told(mode, tell: Callable, *what) -> None:
    try:
        with private.DisableTorchFunction():
            tell(*what)
    except Exception:
        mode.recorder.fail("healing around a backward pass")


def _mode_sensitive(mode, func, args, kwargs):
    return mode.__torch_function__(_MODE_SENSITIVE[func], (), args, kwargs)


class _ModeSensitive:
    """A function that torch computes otherwise while any dispatch mode is on, called with ours off where that shows.

    ``out=`` of ``matrix_rank`` stays unwritten and that of ``cond`` is rounded otherwise; autocast does not reach the
    inside of ``bilinear`` and ``pinv``.
    """

    def __init__(self, function: Callable) -> None:
        self.function = function
        self.__name__ = function.__name__

    def __call__(self, *args, **kwargs):
        if kwargs.get("out") is None and not private.any_autocast_enabled():
            return self.function(*args, **kwargs)
        with private.top_dispatch_mode_off(_DispatchMode):
            return self.function(*args, **kwargs)


_MODE_SENSITIVE = {
    f: _ModeSensitive(f)
    for f in (
        torch.linalg.matrix_rank,
        torch.linalg.cond,
        torch.linalg.pinv,
        torch.pinverse,
        Tensor.pinverse,
        torch.bilinear,
    )
}
_DATA_SET, _GRAD_SET = Tensor.data.__set__, Tensor.grad.__set__
_BODIES = {f: private.body_with_modes_on(f) for f in _REENTERED}
_SPECIAL: dict[Any, Callable] = {
    **dict.fromkeys(_REENTERED, _reenter),
    **dict.fromkeys(_MODE_SENSITIVE, _mode_sensitive),
    Tensor.dtype.__get__: _get_dtype,
    Tensor.grad.__get__: _get_grad,
    Tensor.data.__set__: _set_tensor,
    Tensor.grad.__set__: _set_tensor,
    **{
        getattr(Tensor, name).__get__: _plain
        for name in ("shape", "device", "requires_grad", "grad_fn", "is_leaf", "ndim", "layout", "is_cuda", "is_cpu",
                     "is_meta", "is_sparse", "is_quantized", "is_mps", "is_xpu", "is_nested", "itemsize", "nbytes",
                     "_version", "output_nr", "_base", "retains_grad", "names", "grad_dtype")
        if hasattr(Tensor, name)
    },
    Tensor.size: _plain,
    Tensor.stride: _plain,
    Tensor.dim: _plain,
    Tensor.numel: _plain,
    Tensor.is_floating_point: _plain,
    Tensor.is_complex: _plain,
    Tensor.is_contiguous: _plain,
}  # fmt: skip
