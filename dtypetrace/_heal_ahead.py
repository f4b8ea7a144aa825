"""Healing ahead of the call: for what cannot be repeated once it has raised.

A recurrent layer refuses in Python, a gradient bucket in C++ amid the backward pass, and the in-place calls of an
optimizer on lists of tensors would write twice what they had written already.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Callable

import torch
from torch import nn

from . import _compat, _witness
from .records import Cast

Tensor = torch.Tensor


class Ahead:
    """The half of the healer that looks before; the other half gives ``recorder``, ``cast``, ``note`` and ``may_heal``."""

    def before_module(self, module: nn.Module, args: tuple, thread: Any) -> tuple | None:
        """Other arguments for a recurrent layer that would refuse the dtype of its input, else None."""
        if not isinstance(module, nn.RNNBase) or not args or _compat.any_autocast_enabled():
            return None
        packed = args[0] if hasattr(args[0], "batch_sizes") else None
        given = packed.data if packed is not None else args[0]
        weight = next(iter(module._flat_weights), None)
        if not isinstance(given, Tensor) or weight is None or given.dtype is weight.dtype:
            return None
        try:
            module.check_input(given, None if packed is None else packed.batch_sizes)
        except (ValueError, RuntimeError) as error:
            refusal = error
        else:
            return None
        _witness.from_module(self.recorder, thread, module, args, refusal, sys._getframe(0))
        number = self.recorder.number_of(refusal)
        if number is None or not self.may_heal(refusal):
            return None
        with _compat.DisableTorchFunction():
            made = self.cast(given, weight.dtype, [weight])
        self._noted(number, "input", given.dtype, weight.dtype)
        return (made if packed is None else packed._replace(data=made), *args[1:])

    def after_backward(self) -> None:
        """Nothing is left to do."""

    def before_backward(self, thread: Any, frame: FrameType | None, args: tuple, kwargs: dict) -> None:
        """Gives gradients that DistributedDataParallel's reducer would refuse their parameter's dtype."""
        for root in list(self.recorder.modules.live_roots()):
            if not isinstance(root, nn.parallel.DistributedDataParallel) or not root.require_backward_grad_sync:
                continue
            for parameter in root.parameters():
                grad = parameter.grad
                if grad is not None and grad.dtype is not parameter.dtype and grad.is_floating_point():
                    told = RuntimeError(f"the reducer's bucket takes {parameter.dtype}, and the gradient that is there is {grad.dtype}")
                    number = _witness.ahead(self.recorder, thread, told, "DT117", "backward", [("gradient", grad), ("parameter", parameter)], frame)
                    if self.may_heal(told):
                        self._swap(number, "gradient", grad, parameter)

    def grouped(self, original: Callable) -> Callable:
        """Stands for ``torch._C._group_tensors_by_device_and_dtype``, by which foreach and fused optimizers sort their lists
        before they write anything: gradients and state that disagree are brought in line there."""

        def _group_tensors_by_device_and_dtype(lists: list, *args: Any) -> Any:
            try:
                return original(lists, *args)
            except RuntimeError as error:
                refusal = error
            if not self._agree(lists, refusal, sys._getframe(1)):
                raise refusal
            return original(lists, *args)

        return _group_tensors_by_device_and_dtype

    def _agree(self, lists: list, error: RuntimeError, frame: FrameType) -> bool:
        """Brings the lists in line with the first, which holds the parameters. False where nothing could be done."""
        recorder, changed = self.recorder, False
        try:
            with _compat.DisableTorchFunction():
                if not self.may_heal(error):
                    return False
                for owner, *column in zip(*lists):
                    for tensor in column:
                        if tensor.dtype is owner.dtype or tensor.shape != owner.shape or not tensor.is_floating_point():
                            continue
                        name = "gradient" if tensor is owner.grad else "state"
                        number = _witness.ahead(recorder, recorder.thread_state(), error, "DT115", "optimizer", [(name, tensor), ("parameter", owner)], frame)
                        self._swap(number, name, tensor, owner)
                        changed = True
        except Exception:
            recorder.fail("healing before an optimizer's step")
        return changed

    def _swap(self, number: int, name: str, tensor: Tensor, owner: Tensor) -> None:
        """Gives a tensor that no graph holds its owner's dtype under the same object."""
        self._noted(number, name, tensor.dtype, owner.dtype)
        with _compat.top_dispatch_mode_off(type(self.dispatch_mode)), torch.no_grad():
            tensor.data = tensor.detach().to(owner.dtype)
        origins = self.recorder.origins
        mark = origins.of(owner)
        if mark is not None:
            origins.mark(tensor, mark.step, -1)

    def _noted(self, number: int, argument: str, source: torch.dtype, to: torch.dtype) -> None:
        name = self.recorder.dtype_name
        self.note(number, [Cast(argument, name(source), name(to))])
