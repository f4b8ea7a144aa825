"""The mode that sees what the code called: torch functions with the tensors that were passed to them.

It sees composites that raise before anything is dispatched, reads of ``tensor.dtype``, and whether autocast is on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from threading import get_ident
from types import FrameType
from typing import Any

import torch
from torch import nn

from . import fused, mode_stacks, private
from .births import Called
from .calls import SHOWN_BY_CALL, op_name
from .dispatch_mode import DispatchMode, WatchingFunctionMode
from .healed_calls import again, refused
from .outside import autocasting
from .protocols import Watching
from .refused_calls import Raised
from .session import Session

Tensor = torch.Tensor
Handler = Callable[["FunctionMode", Any, tuple[Any, ...], dict[str, Any]], Any]
_any_autocast = private.any_autocast_enabled


class FunctionMode(WatchingFunctionMode):
    """Calls each torch function and remembers that it is running."""

    def __init__(self, watch: Watching) -> None:
        super().__init__()
        self.recorder = watch.recorder
        self.watch = watch

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        special = _SPECIAL.get(func)
        if special is not None:
            return special(self, func, args, kwargs or {})
        recorder = self.recorder
        thread = recorder.threads.get(get_ident()) or recorder.thread_state()
        calls = thread.calls
        # in the dispatch handler autocast reads as off even when it is on
        autocast = autocasting() if _any_autocast() else ()
        calls.append([func, args, kwargs, None, autocast])
        try:
            out = func(*args, **kwargs) if kwargs else func(*args)
        except Exception as error:
            calls.pop()
            caller = sys._getframe(0).f_back
            healed = refused(self.watch, thread, Raised(func, args, kwargs or {}, error, caller))
            if healed is None:
                raise
            first = error
        except BaseException:
            calls.pop()
            raise
        else:
            healed = None
            calls.pop()
        if healed is not None:
            try:
                return again(self.watch, self, func, healed, first)
            finally:
                del first  # its traceback holds this frame
        if recorder.reference is not None:
            recorder.reference.called(func, args, kwargs, out)
        if func is Tensor.numpy and recorder.values is not None:
            recorder.arrays.left_torch(out)
        # the common case is done here: a tensor that the dispatch mode has marked, no dtype named, no autocast
        if autocast or kwargs and "dtype" in kwargs or recorder.origins.of(out) is None or func in SHOWN_BY_CALL:
            _called(recorder, Called(thread, func, args, kwargs, out, sys._getframe(0).f_back))
        return out


def _called(recorder: Session, call: Called) -> None:
    if not recorder.broken:
        try:
            with private.DisableTorchFunction():  # a user's own mode or subclass must not see what we read
                recorder.births.called(call)
        except Exception:
            recorder.fail("the function mode")


# ---------------------------------------------------------------- functions with a handler of their own


def _plain(mode: FunctionMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """For functions that only read a property of the tensor: just call them."""
    return func(*args, **kwargs)


def _caller(recorder: Session) -> FrameType | None:
    """The frame that called the torch function."""
    return recorder.places.outside(sys._getframe(2))


def _get_dtype(mode: FunctionMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    dtype = func(*args, **kwargs)
    recorder = mode.recorder
    if not recorder.broken:
        try:
            frame = _caller(recorder)
            with private.DisableTorchFunction():
                recorder.births.read_dtype(recorder.thread_state(), args[0], dtype, frame)
        except Exception:
            recorder.fail("a read of dtype")
    return dtype


def _get_grad(mode: FunctionMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    grad = func(*args, **kwargs)
    recorder = mode.recorder
    if isinstance(grad, Tensor) and not recorder.broken:
        try:
            origins = recorder.origins
            new = origins.gradient(grad, args[0])
            if new and origins.of(grad) is None and (owner := origins.of(args[0])) is not None:
                with private.DisableTorchFunction():
                    if grad.dtype is args[0].dtype:
                        origins.mark(grad, owner.event, -1)
        except Exception:
            recorder.fail("a read of grad")
    return grad


def _set_tensor(mode: FunctionMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``x.data = y`` and ``x.grad = y``: the object stays, its origin becomes that of the value."""
    recorder = mode.recorder
    try:
        out = func(*args, **kwargs)
    except Exception as error:
        healed = refused(mode.watch, recorder.thread_state(), Raised(func, args, kwargs, error, _caller(recorder)))
        if healed is None:
            raise
        out, args = func(*healed.args, **healed.kwargs), healed.args
    value = args[1] if len(args) > 1 else None
    if isinstance(value, Tensor) and not recorder.broken:
        try:
            if func == _GRAD_SET:
                recorder.origins.gradient(value, args[0])
            elif func == _DATA_SET:
                with private.DisableTorchFunction():
                    thread = recorder.thread_state()
                    place = recorder.place(thread, _caller(recorder))
                    recorder.origins.became(args[0], recorder.births.assigned(args[0], value, place, thread.module))
        except Exception:
            recorder.fail("a write of data")
    return out


def _reenter(mode: FunctionMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs a torch function written in Python with the mode on inside it too."""
    if private.function_mode_count():  # the program's own modes see this call, but not the calls inside it
        with mode_stacks.function_mode_on(mode, below=True):
            return func(*args, **kwargs)
    recorder, healer = mode.recorder, mode.watch.healer
    thread = recorder.thread_state()
    frame = _caller(recorder)
    around: AbstractContextManager[None] = nullcontext()
    if func is not nn.functional.multi_head_attention_forward:
        recorder.backward_place = recorder.place(thread, frame)
        if healer is not None:
            around = _Guarded(recorder, healer.backward(thread, frame, args, kwargs))
    with around:
        try:
            kind = next(filter(_answers, map(type, _values_in(args, kwargs))), None)
            if kind is not None:  # torch asks it for this call, but not for the calls inside it
                inside = f"torch functions inside {op_name(func)} of {kind.__name__}"
                recorder.not_seen[f"{inside}, which has a __torch_function__ of its own"] = None
                return func(*args, **kwargs)
            with mode_stacks.function_mode_on(mode):
                return _BODIES[func](*args, **kwargs)
        except Exception as error:
            if not recorder.refusals.knows(error):  # the inner call is healed; the outer one is never repeated
                refused(mode.watch, thread, Raised(func, args, kwargs, error, frame))
            raise


def _values_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
    for value in (*args, *kwargs.values()):
        yield value
        if isinstance(value, (list, tuple)):
            yield from value


def _answers(kind: type) -> bool:
    """Whether values of a class, tensors or not, have a ``__torch_function__`` of their own."""
    return private.answers_torch_functions(kind) if hasattr(kind, "__torch_function__") else False


class _Guarded:
    """A context manager of healing's around the program's code: errors of its own never reach the program."""

    def __init__(self, recorder: Session, block: AbstractContextManager[None]) -> None:
        self._recorder = recorder
        self._block = block
        self._entered = False

    def __enter__(self) -> None:
        self._entered = self._try(self._block.__enter__)

    def __exit__(self, *error: object) -> None:
        if self._entered:
            self._try(lambda: self._block.__exit__(None, None, None))

    def _try(self, part: Callable[[], Any]) -> bool:
        try:
            with private.DisableTorchFunction():
                part()
        except Exception:
            self._recorder.fail("inserting casts around a backward pass")
            return False
        return True


def _replaced(mode: FunctionMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return mode.__torch_function__(_REPLACED[func], (), args, kwargs)


class _ModeSensitive:
    """A function for which torch takes another path while any dispatch mode is on; called with our mode off where that
    changes the result.

    ``matrix_rank`` does not write to ``out=`` and ``cond`` rounds it differently; under autocast ``bilinear`` and
    ``pinv`` round differently.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = function.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("out") is None and not private.any_autocast_enabled():
            return self.function(*args, **kwargs)
        with mode_stacks.top_dispatch_mode_off(DispatchMode):
            return self.function(*args, **kwargs)


_REENTERED = (Tensor.backward, torch.autograd.backward, torch.autograd.grad, nn.functional.multi_head_attention_forward)
"""Torch functions written in Python that call composites which raise above the dispatch mode."""
_BODIES = {f: private.body_with_modes_on(f) for f in _REENTERED}
_SENSITIVE = (
    torch.linalg.matrix_rank, torch.linalg.cond, torch.linalg.pinv, torch.pinverse, Tensor.pinverse, torch.bilinear,
)  # fmt: skip
_REPLACED: dict[Any, Any] = {**{f: _ModeSensitive(f) for f in _SENSITIVE}, **fused.FUNCTIONS}
_OF_TENSOR: Any = Tensor
_DATA_SET, _GRAD_SET = _OF_TENSOR.data.__set__, _OF_TENSOR.grad.__set__
_FACTS = (
    "shape", "device", "requires_grad", "grad_fn", "is_leaf", "ndim", "layout", "is_cuda", "is_cpu",
    "is_meta", "is_sparse", "is_quantized", "is_mps", "is_xpu", "is_nested", "itemsize", "nbytes",
    "_version", "output_nr", "_base", "retains_grad", "names", "grad_dtype",
)  # fmt: skip
_READS = (
    Tensor.size, Tensor.stride, Tensor.dim, Tensor.numel, Tensor.is_floating_point, Tensor.is_complex,
    Tensor.is_contiguous,
)  # fmt: skip
_SPECIAL: dict[Any, Handler] = {
    **dict.fromkeys(_REENTERED, _reenter),
    **dict.fromkeys(_REPLACED, _replaced),
    _OF_TENSOR.dtype.__get__: _get_dtype,
    _OF_TENSOR.grad.__get__: _get_grad,
    _DATA_SET: _set_tensor,
    _GRAD_SET: _set_tensor,
    **{getattr(Tensor, name).__get__: _plain for name in _FACTS if hasattr(Tensor, name)},
    **dict.fromkeys(_READS, _plain),
    # no_grad and its kin: a Ctrl-C between this call and their __exit__ leaves gradients off, so nothing runs after it
    private.set_grad_enabled: _plain,
}
