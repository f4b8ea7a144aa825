"""Small changes to a tensor that is kept: an average of the weights, a running sum, a counter. Do they arrive?

The same call is made on a sample of the operands in float32; where that changes a number and the real call does not, the
change was rounded away. Judged are tensors that one kind of call changes again and again, outside backward and optimizer
(whose steps are judged as a whole): a stream that is written to once, as a residual is, may lose what it likes.

A program may as well make a new tensor each time: ``total = total + x``, ``average = d * average + (1 - d) * x``. Such a
call is known by an operand that it made itself the time before, perhaps scaled since.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from . import private
from .marks import Origins
from .updates import sample

_aten = torch.ops.aten
_NARROW = (torch.float16, torch.bfloat16)
_MOST_OF_A_LIST = 8
_INDICES = 1024
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
_INDEXED = {_overload(name) for name in ("index_add_.default", "scatter_add_.default", "index_put_.default")}
WATCHED = frozenset(IN_PLACE) | _INDEXED
_ADDS = {_aten.add.Tensor: 1, _aten.sub.Tensor: -1}
_SCALES = (_aten.mul.Tensor, _aten.div.Tensor)
_HANDS_ON = (_aten.clone.default, _aten.detach.default, _aten.alias.default, _aten.copy_.default)
FOLLOWED = frozenset((*_ADDS, *_SCALES, *_HANDS_ON))
"""Calls that make a new tensor of one that is kept, or hand it on."""
_NOISE = 1e-6
"""So much of a number, relative to it, a sum in float32 may be off: no change."""


class _Kept(NamedTuple):
    """What is known of a tensor that an op made, by itself or scaled since."""

    number: int
    base: torch.Tensor | None = None
    """A sample of what the op made, where this is a multiple of it; else this is it."""
    factor: Any = 1.0


class Increments:
    """The changes under way: looked at before a call, and again after it."""

    def __init__(self) -> None:
        self._known: dict[tuple, private.StorageWeakRef] = {}
        self._waiting: tuple | None = None

    def before(self, func, args: tuple, kwargs: dict) -> None:
        """Takes samples of what a call in place is about to change, where it has changed it before."""
        self._waiting = None
        if private.current_graph_task_id() != -1:
            return
        targets = list(args[0][:_MOST_OF_A_LIST]) if isinstance(args[0], (list, tuple)) else [args[0]]
        first = targets[0] if targets else None
        if not isinstance(first, torch.Tensor) or any(t.dtype not in _NARROW or not _plain(t) for t in targets):
            return
        if torch.is_grad_enabled() and any(t.requires_grad for t in targets):
            return
        # by its memory: an average is often reached through a new view each time (detach(), .data, an index)
        memory = private.StorageWeakRef(first.untyped_storage())
        key = memory.cdata, first.storage_offset(), func
        known = self._known.get(key)
        if known is None or known.expired():
            self._known[key] = memory
            if len(self._known) > 4096:
                self._known = {key: ref for key, ref in self._known.items() if not ref.expired()}
            return
        if func in _INDEXED:
            with private.unseen(), torch.no_grad():
                self._waiting = self._indexed(func, args, kwargs or {})
            return
        with private.unseen(), torch.no_grad():
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

    def _indexed(self, func, args: tuple, kwargs: dict) -> tuple | None:
        """What a write by index adds to: the numbers that the first of its indices reach."""
        target, where, which, values = (
            args[:4] if func is not _aten.index_put_.default else (args[0], 0, args[1], args[2])
        )
        if func is _aten.index_put_.default:
            # a mask would have to be counted on the host
            if not (args[3] if len(args) > 3 else kwargs.get("accumulate")) or any(
                i is None or i.dtype in (torch.bool, torch.uint8) for i in which
            ):
                return None
            look = lambda: target[tuple(which)]
        elif which.dim() == 0 or not which.numel():
            return None
        elif func is _aten.index_add_.default:
            some = max(1, _INDICES * len(which) // max(values.numel(), 1))
            which, values = which[:some], values.narrow(where, 0, min(some, len(which)))
            look = lambda: target.index_select(where, which)
        else:
            which = which[:_INDICES]
            values = values[tuple(slice(size) for size in which.shape)]
            look = lambda: target.gather(where, which)
        before = look()
        exact = before.float() + kwargs.get("alpha", 1) * values.float()
        return func, look, before, exact

    def made(self, number: int, func, args: tuple, kwargs: dict, out: torch.Tensor, origins: Origins) -> tuple | None:
        """Follows op ``number``, which made a new tensor; what ``after`` gives and the kept operand's index, where it adds to what
        the same op made the time before."""
        if out.dtype not in _NARROW or private.current_graph_task_id() != -1 or not _plain(out):
            return None
        tensors = [a for a in args[:2] if isinstance(a, torch.Tensor)]
        if func in _HANDS_ON:
            if (known := getattr(origins.of(tensors[-1]), "kept", None)) is not None and tensors[-1].dtype is out.dtype:
                origins.of(out).kept = known
            return None
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            return None
        kept = [getattr(origins.of(t), "kept", None) for t in tensors]
        if func not in _ADDS:
            if kept[0] is not None and (len(tensors) == 1 or tensors[1].dim() == 0 and kept[1] is None):
                origins.of(out).kept = self._scaled(func, args, kept[0], tensors[0])
            return None
        origins.of(out).kept = _Kept(number)
        index = next(
            (n for n, k in enumerate(kept) if k is not None and k.number == number and tensors[n].shape == out.shape),
            None,
        )
        if index is None or len(tensors) != 2 or tensors[1 - index].shape not in (out.shape, ()):
            return None
        sign = _ADDS[func] * kwargs.get("alpha", 1)
        old, other = kept[index], tensors[1 - index]
        base = sample(tensors[index]) if old.base is None else old.base
        other = other.float() if other.dim() == 0 and out.dim() else sample(other).float()
        mine = base.float() * old.factor
        exact = mine + sign * other if index == 0 else other + sign * mine
        due = (exact - base.float()).abs() > _NOISE * base.float().abs()
        return due.sum(), (due & (sample(out) != base)).sum(), out.device, index

    def _scaled(self, func, args: tuple, kept: _Kept, tensor: torch.Tensor) -> _Kept | None:
        factor = args[1] if args[0] is tensor else args[0]
        factor = factor.float() if isinstance(factor, torch.Tensor) else float(factor)
        if func is _aten.div.Tensor and not isinstance(factor, torch.Tensor) and not factor:
            return None  # what is divided by zero is kept no more
        base = sample(tensor).clone() if kept.base is None else kept.base
        return _Kept(kept.number, base, kept.factor * factor if func is _aten.mul.Tensor else kept.factor / factor)

    def after(self, func) -> tuple[torch.Tensor, torch.Tensor, torch.device] | None:
        """Of the call just made: how many sampled numbers it should have changed, and how many of those it did."""
        if self._waiting is None or self._waiting[0] is not func:
            return None
        _, targets, samples, exact = self._waiting
        self._waiting = None
        if func in _INDEXED:
            due = exact != samples.float()
            return due.sum(), (due & (targets() != samples)).sum(), samples.device
        due = [e != s.float() for e, s in zip(exact, samples)]
        done = [d & (sample(t) != s) for d, t, s in zip(due, targets, samples)]
        total = lambda masks: torch.stack([m.sum() for m in masks]).sum()
        return total(due), total(done), targets[0].device


def _plain(tensor) -> bool:
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and not tensor.is_meta
        and tensor.numel() > 0
    )
