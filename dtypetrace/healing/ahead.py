"""Healing ahead of the call: for what cannot be repeated once it has raised.

A recurrent layer refuses in Python, a gradient bucket in C++ amid the backward pass, and the in-place calls of an
optimizer on lists of tensors would write twice what they had written already.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch import nn

from ..capture import private, refused_calls, threads
from ..capture.modules import gradients_of
from ..records import Cast

Tensor = torch.Tensor


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(t, Tensor) for t in value)


class Ahead:
    """The half of the healer that looks before; the other half gives ``recorder``, ``cast``, ``note`` and ``may_heal``."""

    lists = tuple(
        name for name in dir(torch) if name.startswith(("_foreach_", "_fused_ada", "_fused_sgd")) and name.endswith("_")
    )

    def before_module(self, module: nn.Module, args: tuple, thread: Any) -> tuple | None:
        """Other arguments for a recurrent layer that would refuse the dtype of its input, else None."""
        if not isinstance(module, nn.RNNBase) or not args or private.any_autocast_enabled():
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
        refused_calls.from_module(self.recorder, thread, module, args, refusal, sys._getframe(0))
        number = self.recorder.number_of(refusal)
        if number is None or not self.may_heal(refusal):
            return None
        with private.DisableTorchFunction():
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
                    told = RuntimeError(
                        f"the reducer's bucket takes {parameter.dtype}, and the gradient that is there is {grad.dtype}"
                    )
                    number = refused_calls.ahead(
                        self.recorder,
                        thread,
                        told,
                        "DT117",
                        "backward",
                        [("gradient", grad), ("parameter", parameter)],
                        frame,
                    )
                    if self.may_heal(told):
                        self._swap(number, "gradient", grad, parameter)

    def on_lists(self, original: Callable) -> Callable:
        """Stands for an in-place function on lists of tensors. It is tried on one number of each dtype before it writes
        anything, and what disagrees with the first list, which is written to, is brought in line."""

        def function(first: Any, *args: Any, **kwargs: Any) -> Any:
            if not threads.watched_by(self.recorder):
                return original(first, *args, **kwargs)
            lists = (
                [first, *(a for a in (*args, *kwargs.values()) if _is_list(a) and len(a) == len(first))]
                if _is_list(first)
                else []
            )
            columns = {tuple(t.dtype for t in column): column for column in zip(*lists)}
            for column in (c for dtypes, c in columns.items() if len(set(dtypes)) > 1):
                error = self._refusal(original, column, first, args, kwargs)
                if error is not None:
                    self._agree(lists, error, sys._getframe(1))
                    break
            return original(first, *args, **kwargs)

        function.__name__ = original.__name__
        return function

    def on_grouping(self, original: Callable) -> Callable:
        """Stands for the function by which foreach and fused optimizers sort their lists by dtype before they write anything.
        It refuses a gradient or a state narrower than its parameter, the first list; those are brought in line."""

        def function(lists: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(lists, *args, **kwargs)
            except RuntimeError as error:
                if not threads.watched_by(self.recorder):
                    raise
                refusal = error.with_traceback(None)
            # what all the numbers of a list are to count (the steps done) has a dtype of its own
            self._agree(
                [t for t in lists if _is_list(t) and (t is lists[0] or any(x.dim() for x in t))],
                refusal,
                sys._getframe(1),
            )
            return original(lists, *args, **kwargs)

        return function

    def _refusal(
        self, original: Callable, column: tuple, first: list, args: tuple, kwargs: dict
    ) -> RuntimeError | None:
        """What the function raises for tensors of these dtypes, found out on copies of one number each; a list of numbers beside
        them gives its own one."""
        at = next(i for i, t in enumerate(first) if t is column[0])

        def small(value: Any) -> Any:
            if not isinstance(value, (list, tuple)) or len(value) != len(first):
                return value
            one = value[at]
            return [
                torch.ones(() if not one.dim() else 1, dtype=one.dtype, device=one.device)
                if isinstance(one, Tensor)
                else one
            ]

        try:
            with (
                private.DisableTorchFunction(),
                private.top_dispatch_mode_off(type(self.dispatch_mode)),
                torch.no_grad(),
            ):
                original(small(first), *map(small, args), **{k: small(v) for k, v in kwargs.items()})
        except RuntimeError as error:
            return error.with_traceback(None)
        except Exception:  # no dtype's doing: the call itself will raise it
            return None
        return None

    def _agree(self, lists: list, error: RuntimeError, frame: FrameType) -> None:
        recorder = self.recorder
        try:
            with private.DisableTorchFunction():
                if not self.may_heal(error):
                    return
                owners = {id(gradient) for gradient, _ in gradients_of(recorder)}
                for written, *column in zip(*lists):
                    for tensor in column:
                        if (
                            tensor.dtype is written.dtype
                            or tensor.shape != written.shape
                            or not tensor.is_floating_point()
                        ):
                            continue
                        known = id(tensor) in owners
                        said = [
                            ("gradient" if known else "state", tensor),
                            ("parameter" if written.is_leaf and written.requires_grad else "state", written),
                        ]
                        number = refused_calls.ahead(
                            recorder, recorder.thread_state(), error, "DT115", "optimizer", said, frame
                        )
                        self._swap(number, said[0][0], tensor, written)
        except Exception:
            recorder.fail("healing before an optimizer's step")

    def function_mode(self, base: type) -> type:
        """The function mode that heals. Where tensors are saved through hooks (checkpointing, offloading), a call's are handed
        on once it has succeeded: what a refused attempt had saved already would be counted, and never be asked for."""
        healer = self

        class HealingFunctionMode(base):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                if healer.saved is None:
                    hooks = private.top_saved_tensors_hooks(False)
                    return (
                        healer._holding(hooks, super().__torch_function__, func, types, args, kwargs)
                        if hooks
                        else super().__torch_function__(func, types, args, kwargs)
                    )
                healer.begun.append(len(healer.saved))
                try:
                    return super().__torch_function__(func, types, args, kwargs)
                finally:
                    healer.begun.pop()

        return HealingFunctionMode

    def _holding(self, hooks: tuple, call: Callable, *what: Any) -> Any:
        pack, unpack = hooks

        def hold(tensor: Tensor) -> list:
            self.saved.append([tensor])
            return self.saved[-1]

        self.saved, self.begun = [], [0]
        try:
            with torch.autograd.graph.saved_tensors_hooks(hold, lambda box: unpack(box[0])):
                out = call(*what)
        finally:
            saved, self.saved = self.saved, None
        for box in saved:
            box[0] = pack(box[0])
        return out

    def on_register_hook(self, original: Callable) -> Callable:
        """Stands for ``Tensor.register_hook``."""

        @functools.wraps(original)
        def register_hook(tensor: Tensor, hook: Callable) -> Any:
            return original(tensor, self.on_hook(hook) if threads.watched_by(self.recorder) else hook)

        return register_hook

    def on_hook(self, hook: Callable) -> Callable:
        """Stands for a hook on a tensor's gradient: a result of another dtype than the gradient's, which the engine would
        refuse, is cast back."""

        @functools.wraps(hook)
        def healed(grad: Tensor) -> Any:
            result = hook(grad)
            if not isinstance(result, Tensor) or result.dtype is grad.dtype or not isinstance(grad, Tensor):
                return result
            recorder = self.recorder
            names = recorder.dtype_name
            told = RuntimeError(
                f"hook '{getattr(hook, '__name__', 'hook')}' has changed the type of value (was {names(grad.dtype)} got {names(result.dtype)})"
            )
            try:
                number = refused_calls.ahead(
                    recorder,
                    recorder.thread_state(),
                    told,
                    "DT114",
                    "backward",
                    [("result", result), ("gradient", grad)],
                    sys._getframe(1),
                )
                if not self.may_heal(told):
                    return result
                with private.DisableTorchFunction():
                    made = self.cast(result, grad.dtype, [grad])
                self._noted(number, "result", result.dtype, grad.dtype)
                return made
            except Exception:
                recorder.fail("healing the result of a hook")
                return result

        return healed

    def _swap(self, number: int, name: str, tensor: Tensor, owner: Tensor) -> None:
        """Gives a tensor that no graph holds its owner's dtype under the same object."""
        self._noted(number, name, tensor.dtype, owner.dtype)
        with private.top_dispatch_mode_off(type(self.dispatch_mode)), torch.no_grad():
            tensor.data = tensor.detach().to(owner.dtype)
        origins = self.recorder.origins
        mark = origins.of(owner)
        if mark is not None:
            origins.mark(tensor, mark.step, -1)

    def _noted(self, number: int, argument: str, source: torch.dtype, to: torch.dtype) -> None:
        name = self.recorder.dtype_name
        self.note(number, [Cast(argument, name(source), name(to))])
