"""The few functions that are replaced while a trace runs and restored after it.

Modes and hooks do not see these events at all: a change of the default dtype, a tensor that becomes a Parameter, a
compiled function, a warning that torch's C++ attributes to the frame that called it (``capture.warning_places``).
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from importlib import import_module
from types import FrameType
from typing import Any

import torch
from torch import nn

from . import fused, private, refused_calls, threads, warning_places, workers
from .checkpoints import Checkpoints
from .compiled import regions, torch_private
from .constructors import Constructor
from .marks import not_ours
from .protocols import Healer
from .replaced import Replaced
from .session import Session

_RAN_EAGERLY = (
    "compiled code: it ran eagerly, operator by operator, so the last bits may differ, and so may what is refused"
)
_installed: list[Patches] = []


class Patches:
    """All patches, installed and removed together; each clean-up is a small function in a list."""

    def __init__(
        self,
        recorder: Session,
        modes_off: Callable[[], AbstractContextManager[None]],
        healer: Healer | None = None,
        eager: bool = False,
    ) -> None:
        self.recorder = recorder
        self._checkpoints = Checkpoints(recorder)
        self.modes_off = modes_off
        self.healer = healer
        self._undo: list[Callable[[], None]] = []
        self._eager = eager
        self._knows_compile = self._forces = False

    def install(self) -> None:
        self._undo = [fused.end]
        self._over = False
        _installed.append(self)
        # torch's setters look these up when they are called, so this also works for setters that were imported by name
        for name in private.DEFAULTS:
            self._replace(torch._C, name, self._set_default(getattr(torch._C, name)))
        if self._eager:
            self._replace(torch, "compile", self._compile(torch.compile))
        self._undo.append(warning_places.install(self.recorder.places.own))
        self._undo.append(workers.install(self.recorder))
        self._checkpoints.install(self._replace)
        self._watch_parameters()
        self._replace(torch.Tensor, "__new__", Constructor(self.recorder))
        if private.SWAP:
            self._watch_swaps()
        for kind in private.SCRIPTED:
            self._keep_text(kind)
        for home, name in private.JIT_TRACES:
            self._replace(home, name, self._traced(getattr(home, name)))
        if self.healer is not None:
            for replacement in self.healer.replacements():
                self._replace(replacement.owner, replacement.name, replacement.function)
        if private.HIGHER_ORDER is not None:
            kind = private.HIGHER_ORDER
            self._replace(kind, "dispatch", private.for_supporting_modes(kind.dispatch))
        if private.LOGS_USE:
            self._replace(torch._C, private.LOGS_USE, self._logs_use(getattr(torch._C, private.LOGS_USE)))
        self.watch_compile()
        if torch_private.EXPORTS in sys.modules:
            self._undo.append(regions.watch_captures())
        else:
            self._replace(torch.export, "export", self._exports(torch.export.export))

    def remove(self) -> None:
        self._over = True
        # traces in several threads need not end in order; what was replaced twice is restored from the top
        while _installed and _installed[-1]._over:
            patches = _installed[-1]
            while patches._undo:
                patches._undo[-1]()
                patches._undo.pop()
            patches._knows_compile = patches._forces = False
            _installed.pop()

    def _replace(self, owner: Any, name: str, new: Any) -> None:
        self._undo.append(Replaced(owner, name, new).restore)

    # ------------------------------------------------------------ torch.compile

    def watch_compile(self) -> None:
        """Takes off what is ours round compiled code, or makes it run eagerly, once dynamo is imported. We do not
        import it: that takes most of a second."""
        if torch_private.imported() is not None and not self._knows_compile:
            self._knows_compile = True
            if not self._eager and torch_private.is_watchable():
                self._undo.append(regions.watch())
            elif not any(p._forces for p in _installed):
                self._forces = True
                self._undo.append(torch_private.force_eager(self._ran_eagerly))
        self._checkpoints.watch_safetensors(self._replace)
        self.recorder.not_seen.update(dict.fromkeys(private.missing()))

    def _ran_eagerly(self) -> None:
        self.recorder.ran_eagerly = True
        self.recorder.not_seen[_RAN_EAGERLY] = None

    def _logs_use(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """torch.compile calls this first, even when it was imported by name; so does every optimizer."""

        def _log_api_usage_once(event: str, *args: Any) -> None:
            original(event, *args)
            if event == "python.optimizer" and threads.watched_by(self.recorder):
                self._optimizer(sys._getframe(1))
            if event == "torch.compile":
                import_module("torch._dynamo")  # as torch.compile itself does next
                try:
                    self.watch_compile()
                except Exception:
                    self.recorder.fail("the beginning of compiled code")

        return _log_api_usage_once

    def _exports(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """``torch.export.export`` of a program that has not imported Dynamo yet."""
        watched = False

        @wraps(original)
        def export(*args: Any, **kwargs: Any) -> Any:
            nonlocal watched
            if not (watched or self._over):
                watched = True
                import_module("torch._dynamo")  # as torch.export itself does next
                try:
                    self._undo.append(regions.watch_captures())
                    self.watch_compile()
                except Exception:
                    self.recorder.fail("the beginning of an export")
            return original(*args, **kwargs)

        return export

    def _optimizer(self, making: FrameType) -> None:
        recorder = self.recorder
        recorder.trains = True
        try:
            place = recorder.place(recorder.thread_state(), making)
            recorder.stepping.is_made(making, place, len(recorder.origins.events))
        except Exception:
            recorder.fail("the making of an optimizer")

    def _compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def compile(*args: Any, **kwargs: Any) -> Any:
            compiled = original(*args, **kwargs)
            if getattr(args[0] if args else None, "__name__", "") == "_cond_op_wrapper":
                return self._captured(compiled)
            return compiled

        return compile

    def _captured(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """``torch.cond`` captures its branches for its backward, which is impossible while a dispatch mode is on."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self.recorder.not_seen["inside torch.cond: its branches are captured by torch"] = None
            with self.modes_off(), torch_private.stance_off():
                return compiled(*args, **kwargs)

        return call

    # ------------------------------------------------------------ TorchScript

    def _traced(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A trace of torch.jit's own writes each size that is read into its graph, and the names of our frames, and
        warns of each comparison."""
        alone = regions.without_ours(original)

        @wraps(original)
        def traced(*args: Any, **kwargs: Any) -> Any:
            self.recorder.not_seen["inside torch.jit.trace: torch makes a graph of what runs"] = None
            try:
                return alone(*args, **kwargs)
            except Exception as error:
                if threads.watched_by(self.recorder):
                    self._refused_inside(error)
                raise

        return traced

    def _refused_inside(self, error: Exception) -> None:
        try:
            refused_calls.from_unseen_module(self.recorder, error)
        except Exception:
            self.recorder.fail("a refusal in a trace of torch.jit's own")

    def _keep_text(self, kind: Any) -> None:
        """TorchScript's interpreter loses the text of an exception that passes through a mode written in Python."""
        original = kind.__dict__["__call__"]
        recorder = self.recorder

        def __call__(*args: Any, **kwargs: Any) -> Any:
            if not threads.watched_by(recorder):
                return original(*args, **kwargs)
            thread = recorder.thread_state()
            thread.kernel = None
            try:
                return original(*args, **kwargs)
            except RuntimeError as error:
                text = str(error)
                if thread.kernel is not None and text.endswith("RuntimeError: \n"):
                    error.args = (f"{text[:-1]}{thread.kernel[1]}\n",)
                    recorder.refusals.replaced_by(error, *thread.kernel[:2])
                raise

        self._replace(kind, "__call__", __call__)

    # ------------------------------------------------------------ births

    def _set_default(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def setter(value: Any) -> None:
            original(value)
            recorder = self.recorder
            try:
                watched = threads.watched_by(recorder)
                place = recorder.place(recorder.thread_state(), sys._getframe(1)) if watched else -1
                recorder.default_place = -1 if torch.get_default_dtype() is torch.float32 else place
            except Exception:
                recorder.fail("a change of the default dtype")

        return setter

    def _watch_parameters(self) -> None:
        """``Parameter(x)`` shares x's storage in a new object; no mode sees that object being made.

        Patching one level lower, at ``Tensor._make_subclass``, would be wrong: if dynamo is imported later, it
        registers that function by identity and keeps ours for good.
        """
        parameter: Any = nn.Parameter
        original = parameter.__dict__["__new__"]
        recorder = self.recorder

        @wraps(original.__func__)
        def __new__(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
            try:
                made = original.__func__(cls, data, requires_grad)
            except Exception as error:
                if threads.watched_by(recorder):
                    raised = refused_calls.Raised(cls, (data, requires_grad), {}, error, sys._getframe(1))
                    refused_calls.guarded(recorder, recorder.thread_state(), raised)
                    del raised  # it holds the exception, which holds this frame
                raise
            if isinstance(data, torch.Tensor) and threads.watched_by(recorder):
                try:
                    known = recorder.origins.of(data)
                    if known is not None:
                        recorder.origins.mark(made, known.event, known.op)
                except Exception:
                    recorder.fail("the making of a parameter")
            return made

        self._replace(parameter, "__new__", staticmethod(__new__))

    def _watch_swaps(self) -> None:
        """``torch.utils.swap_tensors`` refuses tensors that have weak references. It must not see ours, and what is
        known about the two tensors is exchanged with their contents."""
        recorder = self.recorder
        original = getattr(torch._C, private.SWAP)

        def _swap_tensor_impl(first: torch.Tensor, second: torch.Tensor) -> None:
            original(first, second)
            try:
                recorder.origins.swapped(first, second)
            except Exception:
                recorder.fail("a swap of two tensors")

        self._replace(torch._C, private.SWAP, _swap_tensor_impl)
        self._replace(torch.utils, "weakref", _WeakReferences(getattr(torch.utils, "weakref")))  # noqa: B009 - private


class _WeakReferences:
    """Replaces the module ``weakref`` where torch asks for the weak references to a tensor."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def getweakrefs(self, of: Any) -> list[weakref.ref[Any]]:
        return not_ours(self._module.getweakrefs(of))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
