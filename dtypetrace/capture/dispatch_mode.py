"""The mode that sees each operator that runs, in backward too."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch
from torch import nn

from . import private
from .increments import WATCHED
from .seam import kernel_refused
from .threads import Watching

Tensor = torch.Tensor
_function_mode_count, _pop_function_mode, _push_function_mode = (
    private.function_mode_count,
    private.pop_function_mode,
    private.push_function_mode,
)
_Operator, _SubclassesOff = private.OpOverload, private.DisableTorchFunctionSubclass
_PLAIN: set[type] = {Tensor, nn.Parameter, nn.Buffer}
"""Classes of tensors without functions of their own, and what :func:`_unwraps_itself` finds to be like them."""


class DispatchMode(private.TorchDispatchMode):
    """Runs each operator and records it."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # saves importing dynamo, and two frames an op

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Part of torch's protocol."""
        return True

    def __init__(self, watch: Watching) -> None:
        super().__init__()
        self.recorder = watch.recorder
        self.watch = watch

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        plain = True
        for t in types:
            if t not in _PLAIN:
                ours, plain = self._known_kinds(types)
                if not ours:
                    return NotImplemented  # the subclass unwraps itself; what it calls inside comes back here
                break
        frame = sys._getframe(0).f_back
        if not (modes := _function_mode_count()):
            return self._run(func, args, kwargs, frame) if plain else self._run_aside(func, args, kwargs, frame)
        # the engine inside a re-entered backward has our function mode on, which would see the call once more
        mode = _pop_function_mode()
        if not isinstance(mode, WatchingFunctionMode):
            _push_function_mode(mode)
            return self._run_aside(func, args, kwargs, frame)
        try:
            if modes > 1 or not plain:
                return self._run_aside(func, args, kwargs, frame)
            with _SubclassesOff():  # the engine passes tensors with a __torch_function__ on as plain ones
                return self._run(func, args, kwargs, frame)
        finally:
            _push_function_mode(mode)

    def _known_kinds(self, types: Any) -> tuple[bool, bool]:
        """Whether a call on tensors of these classes is recorded here, and whether all of them are plain."""
        plain = True
        for t in types:
            if t not in _PLAIN:
                if _unwraps_itself(t):
                    text = f"inside {t.__name__}'s own kernels: what it calls on plain tensors was"
                    self.recorder.not_seen[text] = None
                    return False, False
                plain = plain and not private.answers_torch_functions(t)
        return True, plain

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, frame: FrameType | None) -> Any:
        recorder = self.recorder
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
        if not recorder.broken:
            try:
                recorder.saw(func, args, kwargs, out, frame)
            except Exception:
                recorder.fail("the dispatch mode")
        return out

    def _run_aside(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, frame: FrameType | None
    ) -> Any:
        """As :meth:`_run`, while a user's function mode is on or on tensors with a ``__torch_function__`` of their own.

        Those tensors would see the call once more, and reading a tensor's dtype would go through all of them.
        """
        recorder = self.recorder
        if recorder.values is not None and func in WATCHED:
            with private.DisableTorchFunction():
                recorder.before(func, args, kwargs, frame)
        kernel = func._op if type(func) is _Operator else func
        if recorder.reference is not None:
            kernel = recorder.reference.around(func, kernel)
        try:
            with private.DisableTorchFunctionSubclass():
                out = kernel(*args, **kwargs) if kwargs else kernel(*args)
        except Exception as error:
            with private.DisableTorchFunction():
                healed = kernel_refused(self.watch, func, args, kwargs or {}, error, frame)
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


class WatchingFunctionMode(private.TorchFunctionMode):
    """What tells dtypetrace's function modes from the program's."""


def _unwraps_itself(kind: Any) -> bool:
    """Whether a subclass of Tensor comes with a ``__torch_dispatch__`` that takes it apart.

    Those made by ``_make_subclass`` (quantized parameters, lazy ones) come here without one. A fake tensor's leaves the
    work to its mode, which torch asks only after ours has passed the call on.
    """
    if kind.__torch_dispatch__ is Tensor.__torch_dispatch__ or kind.__module__ == "torch._subclasses.fake_tensor":
        if not private.answers_torch_functions(kind):
            _PLAIN.add(kind)
        return False
    return True
