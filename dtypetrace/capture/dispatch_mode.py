"""The mode that sees each operator that runs, in backward too."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch
from torch import nn

from . import measuring, private
from .healed_calls import kernel_refused
from .increments import WATCHED_IDS
from .outside import as_outside, reached
from .protocols import Watching
from .refused_calls import Raised

Tensor = torch.Tensor
_function_mode_count, _pop_function_mode, _push_function_mode = (
    private.function_mode_count,
    private.pop_function_mode,
    private.push_function_mode,
)
_Operator, _SubclassesOff = private.OpOverload, private.DisableTorchFunctionSubclass
_PLAIN: set[type] = {Tensor, nn.Parameter, nn.Buffer}
"""Tensor classes without behaviour of their own; :func:`_unwraps_itself` adds those that it finds to be like them."""
_REACHED: dict[Any, frozenset[str] | None] = {}
"""By kernel, what :func:`reached` says of its operator."""
_NOT_YET = frozenset[str]()
"""For a kernel that was not asked about yet."""


class DispatchMode(private.TorchDispatchMode):
    """Runs each operator and records it."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # saves importing dynamo, and two frames for each op

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
        if (not plain or not types) and private.without_numbers(types):
            return self._run_without_numbers(func, args, kwargs, frame)
        if not (modes := _function_mode_count()):
            return self._run(func, args, kwargs, frame) if plain else self._run_with_others(func, args, kwargs, frame)
        # in a re-entered backward, the engine runs with our function mode on, which would see the call a second time
        mode = _pop_function_mode()
        if not isinstance(mode, WatchingFunctionMode):
            _push_function_mode(mode)
            return self._run_with_others(func, args, kwargs, frame)
        try:
            if modes > 1 or not plain:
                return self._run_with_others(func, args, kwargs, frame)
            with _SubclassesOff():  # for the engine, tensors with a __torch_function__ are plain ones
                return self._run(func, args, kwargs, frame)
        finally:
            _push_function_mode(mode)

    def _known_kinds(self, types: Any) -> tuple[bool, bool]:
        """Whether a call on tensors of these classes is recorded here, and whether all of them are plain."""
        plain = True
        for t in types:
            if t not in _PLAIN:
                if _unwraps_itself(t):
                    text = f"inside {t.__name__}'s own kernels; what they call on plain tensors was seen"
                    self.recorder.not_seen[text] = None
                    return False, False
                plain = plain and not private.answers_torch_functions(t) and not private.works_in_a_mode(t)
        return True, plain

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, frame: FrameType | None) -> Any:
        recorder = self.recorder
        if recorder.values is not None and id(func) in WATCHED_IDS:
            measuring.before(recorder, func, args, kwargs, frame)
        kernel = func._op if type(func) is _Operator else func  # the same call with one frame less
        if _REACHED.get(kernel, _NOT_YET) is not None:
            kernel = self._as_outside(func, kernel, args, kwargs)
        if recorder.reference is not None:
            kernel = recorder.reference.around(func, kernel)
        try:
            out = kernel(*args, **kwargs) if kwargs else kernel(*args)
        except Exception as error:
            healed = kernel_refused(self.watch, Raised(func, args, kwargs or {}, error, frame))
            if healed is None:
                raise
            args, kwargs, out = healed
        if not recorder.broken:
            try:
                recorder.saw(func, args, kwargs, out, frame)
            except Exception:
                recorder.fail("the dispatch mode")
        return out

    def _run_with_others(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, frame: FrameType | None
    ) -> Any:
        """Like :meth:`_run`, but while a user's function mode is on, or for tensors with a ``__torch_function__`` of
        their own.

        Those would see the call a second time, and every read of a tensor's dtype would go through them.
        """
        recorder = self.recorder
        if recorder.values is not None and id(func) in WATCHED_IDS:
            with private.DisableTorchFunction():
                measuring.before(recorder, func, args, kwargs, frame)
        kernel = func._op if type(func) is _Operator else func
        if _REACHED.get(kernel, _NOT_YET) is not None:
            with private.DisableTorchFunction():
                kernel = self._as_outside(func, kernel, args, kwargs)
        if recorder.reference is not None:
            kernel = recorder.reference.around(func, kernel)
        try:
            with private.DisableTorchFunctionSubclass():
                out = kernel(*args, **kwargs) if kwargs else kernel(*args)
        except Exception as error:
            with private.DisableTorchFunction():
                healed = kernel_refused(self.watch, Raised(func, args, kwargs or {}, error, frame))
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

    def _run_without_numbers(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, frame: FrameType | None
    ) -> Any:
        """A call on fake tensors: there is nothing to measure, and where a size is a symbol, whoever compares it with a
        number limits what the graph that is being made may be used for."""
        recorder = self.recorder
        measured = recorder.values, recorder.reference, recorder.checks
        recorder.values = recorder.reference = recorder.checks = None
        try:
            return self._run_with_others(func, args, kwargs, frame)
        finally:
            recorder.values, recorder.reference, recorder.checks = measured

    def _as_outside(self, func: Any, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        if kernel not in _REACHED:
            _REACHED[kernel] = reached(func)
        inside = _REACHED[kernel]
        return kernel if inside is None else as_outside(kernel, args, kwargs, self.recorder.thread_state(), inside)


class WatchingFunctionMode(private.TorchFunctionMode):
    """Base class of dtypetrace's function modes, by which they are recognised."""

    watch: Watching


def _unwraps_itself(kind: Any) -> bool:
    """Whether a subclass of Tensor comes with a ``__torch_dispatch__`` that takes it apart.

    Classes made by ``_make_subclass`` (quantized parameters, lazy ones) come here without one. That of a fake or a
    functional tensor leaves the work to its mode, which torch asks only after ours has passed the call on.
    """
    if private.works_in_a_mode(kind):
        return False
    if kind.__torch_dispatch__ is Tensor.__torch_dispatch__:
        if not private.answers_torch_functions(kind):
            _PLAIN.add(kind)
        return False
    return True
