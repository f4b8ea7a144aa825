"""Healing for gradients: those that a reducer's bucket would refuse during backward, and the results of their hooks."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..capture import private, refused_calls, threads
from ..capture.calls import dtype_name
from ..capture.protocols import Replacement
from .casting import Casting

if TYPE_CHECKING:
    from ..capture.running import Thread

Tensor = torch.Tensor


class Gradients:
    """Casts gradients before the engine or a reducer refuses them."""

    def __init__(self, casting: Casting) -> None:
        self._casting = casting
        self._recorder = casting.recorder

    def before_backward(self, thread: Thread, frame: FrameType | None) -> None:
        """Casts gradients that DistributedDataParallel's reducer would refuse to their parameter's dtype."""
        for root in list(self._recorder.modules.live_roots()):
            if not isinstance(root, nn.parallel.DistributedDataParallel) or not root.require_backward_grad_sync:
                continue
            for parameter in root.parameters():
                grad = parameter.grad
                if grad is not None and grad.dtype is not parameter.dtype and grad.is_floating_point():
                    self._for_bucket(thread, frame, parameter, grad)

    def _for_bucket(self, thread: Thread, frame: FrameType | None, parameter: Tensor, grad: Tensor) -> None:
        text = f"the reducer's bucket takes {parameter.dtype}, and the gradient that is there is {grad.dtype}"
        error = RuntimeError(text)
        said = [("gradient", grad), ("parameter", parameter)]
        number = refused_calls.from_prediction(self._recorder, thread, error, "DT117", "backward", said, frame)
        if self._casting.may_heal(error):
            self._casting.swap(number, "gradient", grad, parameter.dtype, parameter)

    def replacements(self) -> Iterable[Replacement]:
        """See :meth:`capture.protocols.Healer.replacements`."""
        yield Replacement(torch.Tensor, "register_hook", self._on_register_hook(torch.Tensor.register_hook))

    def _on_register_hook(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def register_hook(tensor: Tensor, hook: Callable[[Tensor], Any]) -> Any:
            return original(tensor, self._on_hook(hook) if threads.watched_by(self._recorder) else hook)

        return register_hook

    def _on_hook(self, hook: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
        """Wraps a hook on a gradient: a result in another dtype, which the engine would refuse, is cast back to the
        gradient's."""

        @functools.wraps(hook)
        def healed(grad: Tensor) -> Any:
            result = hook(grad)
            if not isinstance(result, Tensor) or not isinstance(grad, Tensor) or result.dtype is grad.dtype:
                return result
            try:
                return self._cast_back(getattr(hook, "__name__", "hook"), grad, result, sys._getframe(1))
            except Exception:
                self._recorder.fail("casting the result of a hook")
                return result

        return healed

    def _cast_back(self, name: str, grad: Tensor, result: Tensor, frame: FrameType) -> Tensor:
        was, got = dtype_name(grad.dtype), dtype_name(result.dtype)
        error = RuntimeError(f"hook '{name}' has changed the type of value (was {was} got {got})")
        said = [("result", result), ("gradient", grad)]
        thread = self._recorder.thread_state()
        number = refused_calls.from_prediction(self._recorder, thread, error, "DT114", "backward", said, frame)
        if not self._casting.may_heal(error):
            return result
        with private.DisableTorchFunction():
            made = self._casting.cast(result, grad.dtype, [grad], number)
        self._casting.note_one(number, "result", result.dtype, grad.dtype)
        return made
