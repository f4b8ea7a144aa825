"""Healing before an optimizer's calls on lists of tensors.

They write in place until they raise, so they cannot be repeated: what they had already written would be written twice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import torch

from ..capture import private, refused_calls, threads
from ..capture.module_names import gradients_of
from ..capture.protocols import Replacement
from .casting import Casting

Tensor = torch.Tensor
LISTS = tuple(
    name for name in dir(torch) if name.startswith(("_foreach_", "_fused_ada", "_fused_sgd")) and name.endswith("_")
)
"""Names of torch's in-place functions on lists of tensors."""


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(t, Tensor) for t in value)


class Lists:
    """Replaces functions on lists of tensors by ones that first give the lists the dtypes of the list that is written
    to."""

    def __init__(self, casting: Casting) -> None:
        self._casting = casting
        self._recorder = casting.recorder

    def replacements(self) -> Iterable[Replacement]:
        """See :meth:`capture.protocols.Healer.replacements`."""
        for name in LISTS:
            yield Replacement(torch, name, self._on_lists(getattr(torch, name)))
        if private.GROUPING:
            yield Replacement(torch._C, private.GROUPING, self._on_grouping(getattr(torch._C, private.GROUPING)))

    def _on_lists(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Replaces an in-place function on lists of tensors. First it is tried on one number of each dtype, before it
        writes anything. Then tensors that disagree with the first list, which is written to, are cast."""

        def function(first: Any, *args: Any, **kwargs: Any) -> Any:
            if not _is_list(first) or not threads.watched_by(self._recorder):
                return original(first, *args, **kwargs)
            lists = [first, *(a for a in (*args, *kwargs.values()) if _is_list(a) and len(a) == len(first))]
            columns = {tuple(t.dtype for t in column): column for column in zip(*lists)}
            for column in (c for dtypes, c in columns.items() if len(set(dtypes)) > 1):
                error = self._refusal(original, column, first, args, kwargs)
                if error is not None:
                    self._agree(lists, error, sys._getframe(1))
                    break
            return original(first, *args, **kwargs)

        function.__name__ = original.__name__
        return function

    def _on_grouping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Replaces the function that foreach and fused optimizers use to sort their lists by dtype before they write
        anything. It refuses a gradient or a state that is narrower than its parameter (the first list); those are
        cast."""

        def function(lists: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(lists, *args, **kwargs)
            except RuntimeError as error:
                if not threads.watched_by(self._recorder):
                    raise
                refusal = error.with_traceback(None)
            # a list of counters (the steps done) has a dtype of its own
            counted = [t for t in lists if _is_list(t) and (t is lists[0] or any(x.dim() for x in t))]
            self._agree(counted, refusal, sys._getframe(1))
            return original(lists, *args, **kwargs)

        return function

    def _refusal(
        self,
        original: Callable[..., Any],
        column: tuple[Tensor, ...],
        first: list[Tensor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> RuntimeError | None:
        """The exception that the function raises for tensors of these dtypes, found by a call on copies of one number
        each; for a list of Python numbers, the matching one is passed."""
        at = next(i for i, t in enumerate(first) if t is column[0])

        def small(value: Any) -> Any:
            if not isinstance(value, (list, tuple)) or len(value) != len(first):
                return value
            one = value[at]
            if not isinstance(one, Tensor):
                return [one]
            return [torch.ones(() if not one.dim() else 1, dtype=one.dtype, device=one.device)]

        try:
            with private.DisableTorchFunction(), self._casting.context.unrecorded(), torch.no_grad():
                original(small(first), *map(small, args), **{k: small(v) for k, v in kwargs.items()})
        except RuntimeError as error:
            return error.with_traceback(None)
        except Exception:  # not because of a dtype: the call itself will raise it
            return None
        return None

    def _agree(self, lists: list[list[Tensor]], error: RuntimeError, frame: FrameType) -> None:
        """Casts each tensor that differs from the matching tensor of the first list."""
        try:
            with private.DisableTorchFunction():
                if not self._casting.may_heal(error):
                    return
                gradients = {id(gradient) for gradient, _ in gradients_of(self._recorder)}
                for written, *column in zip(*lists):
                    for tensor in column:
                        if _differs(tensor, written):
                            name = "gradient" if id(tensor) in gradients else "state"
                            self._swap(name, tensor, written, error, frame)
        except Exception:
            self._recorder.fail("inserting casts before an optimizer's step")

    def _swap(self, name: str, tensor: Tensor, written: Tensor, error: RuntimeError, frame: FrameType) -> None:
        owner = "parameter" if written.is_leaf and written.requires_grad else "state"
        said = [(name, tensor), (owner, written)]
        thread = self._recorder.thread_state()
        number = refused_calls.from_prediction(self._recorder, thread, error, "DT115", "optimizer", said, frame)
        self._casting.swap(number, name, tensor, written)


def _differs(tensor: Tensor, written: Tensor) -> bool:
    return tensor.dtype is not written.dtype and tensor.shape == written.shape and tensor.is_floating_point()
