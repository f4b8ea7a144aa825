"""Healing before an optimizer's calls on lists of tensors.

They write in place until they raise, so they cannot be repeated: what they had already written would be written twice.

A gradient gets its parameter's dtype for good, and what is narrow in the state of the running optimizer is widened for
good. Nothing else that the program holds changes its dtype: weights and averages of them take part as copies in the
widest dtype of their column, and what the call writes is copied back, in the dtype that it had.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import reduce
from types import FrameType
from typing import Any

import torch

from ..capture import private, refused_calls, threads
from ..capture.holders import gradients_of
from ..capture.module_names import state_names
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
    """Replaces functions on lists of tensors by ones that first make the lists agree."""

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
        """Replaces a function that refuses lists with elements of more than one dtype, before it writes anything."""

        def function(first: Any, *args: Any, **kwargs: Any) -> Any:
            if not _is_list(first) or not threads.watched_by(self._recorder):
                return original(first, *args, **kwargs)
            lists = [first, *(a for a in (*args, *kwargs.values()) if _is_list(a) and len(a) == len(first))]
            columns = {tuple(t.dtype for t in column): column for column in zip(*lists)}
            for column in (c for dtypes, c in columns.items() if len(set(dtypes)) > 1):
                error = self._refusal(original, column, first, args, kwargs)
                if error is not None:
                    return self._healed(original, (first, *args), kwargs, error, sys._getframe(1))
            return original(first, *args, **kwargs)

        function.__name__ = original.__name__
        return function

    def _on_grouping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Replaces the function that foreach and fused optimizers use to sort their lists by dtype before they write
        anything. It refuses a gradient or a state that is narrower than its parameter (the first list)."""

        def function(lists: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(lists, *args, **kwargs)
            except RuntimeError as error:
                if not threads.watched_by(self._recorder):
                    raise
                refusal = error.with_traceback(None)
            # a list of counters (the steps done) has a dtype of its own
            counted = [t for t in lists if _is_list(t) and (t is lists[0] or any(x.dim() for x in t))]
            self._widened(counted, refusal, sys._getframe(1))
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

    # ------------------------------------------------------------ a call on lists

    def _healed(
        self,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        error: RuntimeError,
        frame: FrameType,
    ) -> Any:
        """Calls it with lists that agree, and copies back what it wrote into copies."""
        schema = _schema(original)
        named = {n: v for n, v in (*zip((a.name for a in schema), args), *kwargs.items()) if _is_list(v)}
        lists = {n: v for n, v in named.items() if v is args[0] or any(t.dim() for t in v)}
        copies: dict[str, list[Tensor]] = {}
        try:
            with private.DisableTorchFunction():
                if self._casting.may_heal(error):
                    raised = refused_calls.Raised(original, args, kwargs, error, frame)
                    refused_calls.from_call(self._recorder, self._recorder.thread_state(), raised)
                    number = self._recorder.refusals.number_of(error)
                    copies = self._agreeing(lists, number) if number is not None else {}
        except Exception:
            self._recorder.fail("inserting casts before a call on lists of tensors")
        given = {id(lists[name]): copy for name, copy in copies.items()}
        out = original(*(given.get(id(a), a) for a in args), **{k: given.get(id(v), v) for k, v in kwargs.items()})
        for name in (a.name for a in schema if a.name in copies and a.alias_info and a.alias_info.is_write):
            self._write_back(lists[name], copies[name])
        return args[0] if copies and out is not None else out

    def _agreeing(self, lists: dict[str, list[Tensor]], number: int) -> dict[str, list[Tensor]]:
        """Makes the tensors of each column agree; returns the lists that have copies in them, by argument."""
        owners = {id(gradient): owner for gradient, owner in gradients_of(self._recorder)}
        state = state_names(self._recorder.stepping.optimizer(), {})
        copies: dict[str, list[Tensor]] = {}
        for at, whole in enumerate(zip(*lists.values())):
            column = {n: t for n, t in zip(lists, whole) if t.shape == whole[0].shape and t.is_floating_point()}
            for name, tensor in column.items():
                owner = owners.get(id(tensor))
                if owner is not None and owner.dtype is not tensor.dtype:
                    self._casting.swap(number, name, tensor, owner.dtype, owner)
            wide = reduce(torch.promote_types, (t.dtype for t in column.values()))
            for name, tensor in ((n, t) for n, t in column.items() if t.dtype is not wide):
                if id(tensor) in state:
                    self._casting.swap(number, name, tensor, wide)
                else:
                    copy = self._casting.cast(tensor, wide, list(whole), number)
                    self._casting.note_one(number, name, tensor.dtype, wide)
                    copies.setdefault(name, list(lists[name]))[at] = copy
        return copies

    def _write_back(self, tensors: list[Tensor], copies: list[Tensor]) -> None:
        origins = self._recorder.origins
        with private.DisableTorchFunction(), self._casting.context.unrecorded(), torch.no_grad():
            for tensor, copy in zip(tensors, copies):
                if copy is not tensor:
                    tensor.copy_(copy)
                    if (mark := origins.of(tensor)) is not None and (made := origins.of(copy)) is not None:
                        mark.op = made.op

    # ------------------------------------------------------------ before lists are grouped

    def _widened(self, lists: list[list[Tensor]], error: RuntimeError, frame: FrameType) -> None:
        """Gives each gradient and each state the dtype of its parameter, which the first list has."""
        try:
            with private.DisableTorchFunction():
                if not self._casting.may_heal(error):
                    return
                gradients = {id(gradient) for gradient, _ in gradients_of(self._recorder)}
                for parameter, *column in zip(*lists):
                    for tensor in column:
                        gradient = id(tensor) in gradients
                        if _differs(tensor, parameter) and (gradient or _may_widen(tensor, parameter)):
                            self._swap("gradient" if gradient else "state", tensor, parameter, error, frame)
        except Exception:
            self._recorder.fail("inserting casts before an optimizer's step")

    def _swap(self, name: str, tensor: Tensor, parameter: Tensor, error: RuntimeError, frame: FrameType) -> None:
        said = [(name, tensor), ("parameter", parameter)]
        thread = self._recorder.thread_state()
        number = refused_calls.from_prediction(self._recorder, thread, error, "DT115", "optimizer", said, frame)
        self._casting.swap(number, name, tensor, parameter.dtype, parameter if name == "gradient" else None)


def _schema(function: Callable[..., Any]) -> list[Any]:
    """The arguments of a function on lists; which lists it writes to is the same in all its overloads."""
    packet = getattr(torch.ops.aten, function.__name__)
    return list(getattr(packet, packet.overloads()[0])._schema.arguments)


def _differs(tensor: Tensor, written: Tensor) -> bool:
    return tensor.dtype is not written.dtype and tensor.shape == written.shape and tensor.is_floating_point()


def _may_widen(tensor: Tensor, parameter: Tensor) -> bool:
    """Whether a tensor may get the dtype of a wider parameter for good: whatever is trained keeps its own."""
    return not tensor.requires_grad and torch.promote_types(tensor.dtype, parameter.dtype) is parameter.dtype
