"""Small changes to a tensor that is kept: an average of the weights, a running sum, a counter. Do they arrive?

The same call is made on a sample of the operands in float32; where that changes a number and the real call does not, the
change was rounded away. Judged are tensors that one kind of call changes again and again, outside backward and optimizer
(whose steps are judged as a whole): a stream that is written to once, as a residual is, may lose what it likes.
"""

from __future__ import annotations

from typing import Any

import torch

from . import _compat
from ._updates import sample

_aten = torch.ops.aten
_NARROW = (torch.float16, torch.bfloat16)
_MOST_OF_A_LIST = 8
_NAMES = (
    "lerp_.Scalar", "lerp_.Tensor", "add_.Tensor", "add_.Scalar", "sub_.Tensor", "sub_.Scalar", "mul_.Tensor", "mul_.Scalar", "div_.Tensor",
    "addcmul_.default", "addcdiv_.default", "_foreach_lerp_.Scalar", "_foreach_lerp_.List", "_foreach_add_.List", "_foreach_add_.Scalar",
    "_foreach_sub_.List", "_foreach_mul_.Scalar", "_foreach_mul_.List", "_foreach_mul_.Tensor",
)  # fmt: skip


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(_aten, packet), overload)


IN_PLACE = {_overload(name): _overload(name.replace("_.", ".", 1)) for name in _NAMES}
"""Each call and the same one that makes a new tensor."""


class Increments:
    """The changes under way: looked at before a call, and again after it."""

    def __init__(self) -> None:
        self._known: dict[tuple, _compat.StorageWeakRef] = {}
        self._waiting: tuple | None = None

    def before(self, func, args: tuple, kwargs: dict) -> None:
        """Takes samples of what a call in place is about to change, where it has changed it before."""
        self._waiting = None
        if torch.is_grad_enabled() or _compat.current_graph_task_id() != -1:
            return
        targets = list(args[0][:_MOST_OF_A_LIST]) if isinstance(args[0], (list, tuple)) else [args[0]]
        first = targets[0] if targets else None
        if not isinstance(first, torch.Tensor) or any(t.dtype not in _NARROW or not _plain(t) for t in targets):
            return
        # by its memory: an average is often reached through a new view each time (detach(), .data, an index)
        memory = _compat.StorageWeakRef(first.untyped_storage())
        key = memory.cdata, first.storage_offset(), func
        known = self._known.get(key)
        if known is None or known.expired():
            self._known[key] = memory
            if len(self._known) > 4096:
                self._known = {key: ref for key, ref in self._known.items() if not ref.expired()}
            return
        with _compat.unseen(), torch.no_grad():
            listed = targets if isinstance(args[0], (list, tuple)) else None
            wide = [self._wide(a, targets, listed is not None) for a in args]
            named = {name: self._wide(a, targets, listed is not None) for name, a in (kwargs or {}).items()}
            if any(a is NotImplemented for a in (*wide, *named.values())):
                return
            exact = IN_PLACE[func](*wide, **named)
            samples = [sample(t).clone() for t in targets]
        self._waiting = func, targets, samples, exact if listed is not None else [exact]

    def _wide(self, value: Any, targets: list, listed: bool) -> Any:
        """An argument for the rehearsal: samples in float32 of tensors that lie beside the target, numbers as they are."""
        if isinstance(value, (list, tuple)):
            if not listed:
                return NotImplemented
            parts = [self._wide(v, [t], False) for v, t in zip(value[: len(targets)], targets)]
            return NotImplemented if any(p is NotImplemented for p in parts) else parts
        if not isinstance(value, torch.Tensor):
            return value
        if value.dim() == 0:
            return value.float()
        if not _plain(value) or value.shape != targets[0].shape or not value.dtype.is_floating_point:
            return NotImplemented
        return sample(value).float()

    def after(self, func) -> tuple[torch.Tensor, torch.Tensor, torch.device] | None:
        """Of the call just made: how many sampled numbers it should have changed, and how many of those it did."""
        if self._waiting is None or self._waiting[0] is not func:
            return None
        _, targets, samples, exact = self._waiting
        self._waiting = None
        due = [e != s.float() for e, s in zip(exact, samples)]
        done = [d & (sample(t) != s) for d, t, s in zip(due, targets, samples)]
        total = lambda masks: torch.stack([m.sum() for m in masks]).sum()  # noqa: E731
        return total(due), total(done), targets[0].device


def _plain(tensor) -> bool:
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided and not tensor.is_meta and tensor.numel() > 0
