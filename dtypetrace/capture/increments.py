"""Small changes to a tensor that the program keeps (an average of the weights, a running sum, a counter): do they
arrive?

The same call is made in float32 on a sample of the operands. Where it changes a number and the real call does not, the
change was rounded away. Only weights, and tensors that one kind of call changes repeatedly, are judged, outside
the optimizer (whose steps ``updates`` judges as a whole); in backward, only gradients that add up over micro-batches,
and what the backward of a hand-written function adds up.
Another value that is written to only once, such as a residual stream, may round as it does.

The errors of these calls are also added up, as float32 would keep them: where each change arrives, but only roughly,
a long sum drifts away from its terms.

The running mean and variance of a batch normalisation are changed inside its kernel: each should move by the momentum
towards that of the batch, as long as it is far from it.

Of float32, only sums of a few numbers are followed: it rarely rounds changes away.

A program may also make a new tensor each time: ``total = total + x``, ``average = d * average + (1 - d) * x``. Such a
call is recognised because the same op made one of its operands the time before, perhaps scaled since then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from . import integers, private
from .autograd_nodes import passes_gradient, runs_own_backward
from .calls import HALVES, readable, version_of
from .marks import Kept, Mark, Origins
from .updates import sample

Tensor = torch.Tensor
_aten = torch.ops.aten
NARROW = HALVES
"""Dtypes in which small changes are rounded away."""
_MOST_OF_A_LIST = 8
"""Tensors of a list that are sampled: an average of the weights rounds in all of them or in none."""
_MOST_FOLLOWED = 4
"""Parameters whose gradients are followed as micro-batches add to them: each of their calls is sampled."""
_MOST_KNOWN, _MOST_DRIFTS = 4096, 256
"""Tensors changed in place that are remembered, and those whose errors are added up, and parts of one; beyond that,
those that no longer exist are dropped."""
_MOST_PARTS = 16
"""Sums in one tensor whose errors are known to what is computed from it: more are entries of a table, of which those
count that are added to often, such as the root of a tree of sums."""
_OFTEN, _EACH = 64, 16
"""A sum in float32 may go on for long: after so many calls its errors are only looked at in every ``_EACH``-th."""
_BESIDE_OTHERS = 2000
"""Calls that add to a few numbers in float32 which others change, too, and are made again: only their errors count."""
_NAMES = (
    "lerp_.Scalar", "lerp_.Tensor", "add_.Tensor", "add_.Scalar", "sub_.Tensor", "sub_.Scalar", "mul_.Tensor",
    "mul_.Scalar", "div_.Tensor", "copy_.default", "addcmul_.default", "addcdiv_.default", "_foreach_lerp_.Scalar",
    "_foreach_lerp_.List", "_foreach_add_.List", "_foreach_add_.Scalar", "_foreach_sub_.List",
    "_foreach_mul_.Scalar", "_foreach_mul_.List", "_foreach_mul_.Tensor",
)  # fmt: skip
_SUM_NAMES = "add_.Tensor", "add_.Scalar", "sub_.Tensor", "sub_.Scalar", "add.Tensor", "sub.Tensor"
_INDEXED_NAMES = "index_add_.default", "scatter_add_.default", "index_put_.default"


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(_aten, packet), overload)


IN_PLACE = {_overload(name): _overload(name.replace("_.", ".", 1)) for name in (*_NAMES, *_INDEXED_NAMES)}
"""Each in-place call and the call that makes a new tensor instead."""
COPY = _overload("copy_.default")
STORED = -2
"""The index of the operand that a copy writes to, from the end: whether the stored value was computed from what was
there is not known."""
_PUT = _overload("index_put_.default")
_INDEXED = frozenset(map(_overload, _INDEXED_NAMES))
_SUM_IDS = frozenset(id(_overload(name)) for name in _SUM_NAMES)
_NORMALISES = {
    _aten.native_batch_norm.default: 6, _aten._native_batch_norm_legit.default: 6, _aten.cudnn_batch_norm.default: 6,
    _aten.miopen_batch_norm.default: 6, _aten._batch_norm_with_update.default: 5,
}  # fmt: skip
"""Batch normalisations, with the position of the momentum; whether one trains is said before that, if at all."""
_MEAN = 3
"""The position of the running mean; the running variance is next."""
_FAR = 0.25
"""How far a running statistic is from that of a batch, relative to it: nearer, its rounding does not matter."""
_BY_CHANCE = 3.0
_MOST_OF_IT = 0.5
"""Standard deviations of a batch's statistic: how far one batch may be from the others, and its numbers that must be
farther: of many, a few always are."""
_LARGEST = 1 << 20
"""Elements of the largest batch whose mean is computed, and of the largest tensor that is written to by index."""
_FULL = 1 << 24
"""A count in float32 that stays as it is when one is added."""
_NORMALISES_IDS = frozenset(map(id, _NORMALISES))
"""By id: hashing an operator runs Python code."""
WATCHED = frozenset(IN_PLACE) | frozenset(_NORMALISES)
WATCHED_IDS = frozenset(map(id, WATCHED))
"""By id: hashing an operator runs Python code."""
_ADDS = {_aten.add.Tensor: 1, _aten.sub.Tensor: -1}
_SCALES = (_aten.mul.Tensor, _aten.div.Tensor)
_WRITES = (_aten.copy_.default, _aten.fill_.Tensor)
_COPIES = (_aten.clone.default, _aten.detach.default, _aten.alias.default, *_WRITES)
FOLLOWED = frozenset((*_ADDS, *_SCALES, *_COPIES))
"""Calls that make a new tensor from a kept one, or copy it."""
PRODUCTS = frozenset((_aten.mm.default, _aten.bmm.default))
"""Calls whose errors add up in a chain: a pose that is turned and moved, step by step."""
SMALL = 1 << 12
"""Elements of a product that is followed: it is made once more as a whole. So many errors of what is written to by
index are added up; of a larger tensor those of a sample."""
_NOISE = 1e-6
"""Relative error of a sum in float32: a smaller difference is not a change."""


class Call(NamedTuple):
    """One call of an op, as it is measured: its tensors are those of the arguments and of the result."""

    op: int
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    phase: str


class Changed(NamedTuple):
    """For one call: how many sampled numbers it should have changed, how many of those it did, the index of the
    operand that the program keeps (None: the one it writes to), and the sum of its errors so far, relative to the
    tensor's size (None where they are not added up)."""

    due: Tensor
    done: Tensor
    kept: int | None = None
    drift: Tensor | None = None


class _Rehearsed(NamedTuple):
    """An in-place call that is running: what it changes, samples of that, and the values that they should get, in
    float32."""

    func: Any
    look: Callable[[], Sequence[Tensor]]
    samples: Sequence[Tensor]
    exact: Sequence[Tensor]
    target: Tensor | None = None
    """The tensor whose errors are added up; None where they are not."""
    decay: Callable[[Tensor], Tensor] | None = None
    """What the call does to an error that was there before."""
    kept: int | None = None
    """The index of the operand that the program keeps; None for the first."""
    due: Tensor | bool = True
    """The numbers that are judged."""


class _Drift(NamedTuple):
    """The errors that were added up in one tensor by an op: its sample after the last call, and the sum."""

    memory: Any
    last: Tensor
    error: Tensor
    op: int
    stride: tuple[int, ...]
    calls: int


class Lost(NamedTuple):
    """What sums in float32 have lost of a part of a tensor's memory, in float64."""

    op: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    error: Tensor
    last: Tensor | None
    """The numbers that the error belongs to, None where they cannot have changed."""


class Increments:
    """The changes that are being made: sampled before a call and compared after it."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Any] = {}
        self._drifts: dict[int, dict[tuple[Any, ...], _Drift]] = {}
        """By address of the memory, then by offset and sizes."""
        self._beside_left = _BESIDE_OTHERS
        self._beside = False
        """Whether others write to what the call that is looked at adds to."""
        self._gradients: dict[int, Any] = {}
        """By address, memory of the few gradients that are followed."""
        self._copied: dict[tuple[int, int], tuple[Any, Kept]] = {}
        self._waiting: _Rehearsed | None = None
        self.carried = False
        """Whether the last call that made a new tensor added to what its op made the time before."""

    def rest(self) -> None:
        """Drops the references to tensors."""
        self._waiting = None

    def follows(self, func: Any, args: tuple[Any, ...]) -> bool:
        """Whether an in-place call may change tensors that are judged."""
        self._waiting = None
        if id(func) in _NORMALISES_IDS:
            first = args[_MEAN]
        else:
            first = args[0][0] if isinstance(args[0], (list, tuple)) and args[0] else args[0]
        if not isinstance(first, Tensor) or not _is_followed(func, first):
            return False
        if private.off(private.SUMS):
            return False
        outside = private.current_graph_task_id() == -1
        return outside or first.dtype in NARROW and (self._accumulates(func, first) or runs_own_backward())

    def _accumulates(self, func: Any, gradient: Tensor) -> bool:
        """Whether the engine adds to the gradient of one of the few parameters that are followed."""
        if func is not _aten.add_.Tensor or not passes_gradient():
            return False
        self._gradients, followed = _one_of_few(self._gradients, gradient)
        return followed

    def before(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, *, once: bool = False) -> None:
        """Takes samples of what an in-place call that it follows is about to change, if that kind of call has changed
        it before. once: also if it has not."""
        targets = _targets(func, args)
        if not all(_is_followed(func, t) and is_plain(t) for t in targets):
            return
        if torch.is_grad_enabled() and any(t.requires_grad for t in targets):
            return
        if self._changed_before(func, args, targets[0]) or once and targets[0].dtype in NARROW:
            with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
                self._waiting = self._rehearsal(func, targets[0])(func, args, kwargs or {}, targets)
                if self._waiting is not None and self._beside:
                    self._waiting = self._waiting._replace(due=False)

    def _rehearsal(self, func: Any, target: Tensor) -> Callable[..., _Rehearsed | None]:
        if func in _INDEXED and target.dtype not in NARROW:
            return _counted
        return _indexed if func in _INDEXED else _normalised if func in _NORMALISES else self._rehearse

    def _changed_before(self, func: Any, args: tuple[Any, ...], target: Tensor) -> bool:
        """Whether the same kind of call has changed a tensor before, in float32 with nothing else since, and by index
        so often that a count may stop; from now on it counts as changed.

        The tensor is identified by its memory: an average is often reached through a new view each time (detach(),
        .data, an index).
        """
        self._beside = False
        memory = private.StorageWeakRef(target.untyped_storage())
        key = memory.cdata, target.storage_offset(), func
        known, version = self._known.get(key), version_of(target)
        if known is not None and known[0].expired():
            known = None
        alone = known is not None and version == known[1] + 1
        added = (known[2] if known is not None and alone else 0) + (_added(args) if func in _INDEXED else _FULL)
        self._known[key] = memory, version, added
        if known is not None:
            return target.dtype in NARROW or (added >= _FULL if alone else self._beside_others(func))
        if len(self._known) > _MOST_KNOWN:
            self._known = {key: entry for key, entry in self._known.items() if not entry[0].expired()}
        return False

    def _beside_others(self, func: Any) -> bool:
        """Whether a sum is looked at to which others write between its calls, as an assignment by index does."""
        self._beside = func not in _INDEXED
        self._beside_left -= self._beside
        return self._beside and self._beside_left >= 0

    def _rehearse(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], targets: list[Tensor]
    ) -> _Rehearsed | None:
        """The same call on wider samples of its arguments."""
        listed = isinstance(args[0], (list, tuple))
        wide = [self._wide(a, targets, listed) for a in args]
        named = {name: self._wide(a, targets, listed) for name, a in kwargs.items()}
        if any(a is NotImplemented for a in (*wide, *named.values())):
            return None
        exact = IN_PLACE[func](*wide, **named)
        samples = [sample(t).clone() for t in targets]
        look = lambda: [sample(t) for t in targets]
        if listed:
            return _Rehearsed(func, look, samples, exact)
        if func is COPY:  # an error that was there is gone
            return _Rehearsed(func, look, samples, [exact], kept=STORED)
        decay = lambda error: IN_PLACE[func](wide[0] + error, *wide[1:], **named) - exact
        counts = [w for a, w in zip(args[1:], wide[1:]) if _is_count(a)] if exact.dtype is torch.float64 else []
        due = samples[0].abs() >= _FULL * counts[0].abs() if counts else True
        return _Rehearsed(func, look, samples, [exact], targets[0], decay, due=due)

    def _wide(self, value: Any, targets: list[Tensor], listed: bool) -> Any:
        """An argument for the rehearsal: wider samples of tensors that have the target's shape, numbers as they
        are."""
        if isinstance(value, (list, tuple)):
            if not listed:
                return NotImplemented
            parts = [self._wide(v, [t], False) for v, t in zip(value[: len(targets)], targets)]
            return NotImplemented if any(p is NotImplemented for p in parts) else parts
        if not isinstance(value, torch.Tensor):
            return value
        kind = _wider(targets[0])
        if value.dim() == 0:
            return value.to(kind)
        if not is_plain(value) or value.shape != targets[0].shape or value.dtype.is_complex:
            return NotImplemented
        return sample(value).to(kind)

    def made(self, call: Call, origins: Origins) -> Changed | None:
        """Follows a call that made a new tensor. Returns what arrived, if it changes what the same op made the time
        before."""
        number, func, args, out = call.op, call.func, call.args, call.outputs[0]
        mark = origins.of(out)
        if mark is None or private.current_graph_task_id() != -1 or not is_plain(out):
            return None
        tensors = [a for a in args[:2] if isinstance(a, Tensor)]
        widened = out.dtype is torch.float32 and func in _ADDS and any(t.dtype in NARROW for t in tensors)
        if out.dtype not in NARROW and not widened and not is_small_sum(func, out):
            return None
        kept = [self._kept(t, origins) for t in tensors]
        if func in _COPIES:
            return self._copied_on(func, kept[-1], tensors[-1], out, mark)
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            return None
        index = _carried(func, number, kept, tensors, out)
        mark.kept, old = Kept(number), kept[index] if index is not None else None
        if index is None or old is None:
            return None
        if widened:  # how much of it arrives shows when it is cast back
            mark.kept = Kept(number, old.base)
            return None

        # ---- the same call on what the operand should be: without the last rounding, and without all of them
        part = sample if func not in PRODUCTS else lambda t: t
        kind = _wider(out)
        wide = [(part(t) if t.dim() or not out.dim() else t).to(kind) for t in tensors]
        base = part(tensors[index]) if old.base is None else old.base
        exact = base.to(kind) if old.exact is None else old.exact
        again = lambda values: func(*(values.pop(0) if isinstance(a, Tensor) else a for a in args), **call.kwargs)
        exact, true = (
            again([*wide[:index], start, *wide[index + 1 :]])
            for start in (exact, exact if old.error is None else exact + old.error)
        )
        if old.number != number:
            mark.kept = Kept(old.number, base.clone(), exact, true - exact, version_of(out))
            return None
        now = part(out).to(kind)
        error = true - now
        mark.kept = Kept(number, error=error, version=version_of(out))
        self.carried = True
        noise = _NOISE if kind is torch.float32 else 0.0
        due = (exact - base.to(kind)).abs() > noise * base.to(kind).abs()
        if func in PRODUCTS:  # only their errors are judged
            due = torch.zeros_like(due)
        return Changed(due.sum(), (due & (now != base)).sum(), index, _share(error, now))

    def _copied_on(self, func: Any, known: Kept | None, source: Tensor, out: Tensor, mark: Mark) -> Changed | None:
        """A tensor is copied, or its values are written to another one."""
        if known is None or source.dtype not in (out.dtype, torch.float32):
            return None
        if source.dtype is out.dtype:
            known = known._replace(version=version_of(out)) if known.version is not None else known
            mark.kept = known
            if func in _WRITES:
                self._remember(out, known)
        elif func in _WRITES:  # a sum that was computed in float32 from what was in this tensor
            self._remember(out, Kept(known.number))
            if known.base is not None and known.base.numel() == sample(out).numel():
                due = (sample(source) - known.base).abs() > _NOISE * known.base.float().abs()
                return Changed(due.sum(), (due & (sample(out) != known.base)).sum(), 0)
        return None

    def _kept(self, tensor: Tensor, origins: Origins) -> Kept | None:
        """What is known about a tensor, or about what was copied to its memory: an average's parameter is reached
        through a new view each time."""
        known: Kept | None = getattr(origins.of(tensor), "kept", None)
        if known is None and self._copied:
            memory, copied = self._copied.get(_memory_of(tensor), (None, None))
            known = copied if memory is not None and not memory.expired() else None
        if known is not None and known.version not in (None, version_of(tensor)):
            return Kept(known.number) if known.base is None else None
        return known

    def _remember(self, tensor: Tensor, known: Kept) -> None:
        self._copied[_memory_of(tensor)] = private.StorageWeakRef(tensor.untyped_storage()), known
        if len(self._copied) > _MOST_KNOWN:
            self._copied = {key: entry for key, entry in self._copied.items() if not entry[0].expired()}

    def after(self, func: Any, number: int) -> Changed | None:
        """How much of the call just made arrived, of op ``number``."""
        waiting, self._waiting = self._waiting, None
        if waiting is None or waiting.func is not func:
            return None
        due = [(e != s.to(e.dtype)) & waiting.due for e, s in zip(waiting.exact, waiting.samples)]
        looked = waiting.look()
        done = [d & (now != s) for d, now, s in zip(due, looked, waiting.samples)]
        drift = self._drifted(waiting, looked[0], number)
        total = _total if func not in _NORMALISES else _stiller
        should, did = total(due, done)
        return Changed(should, did, waiting.kept, drift)

    def _drifted(self, call: _Rehearsed, looked: Tensor, number: int) -> Tensor | None:
        """The errors of the calls so far that changed a tensor, relative to its size. They begin anew where something
        else has written to it."""
        target = call.target
        if target is None or call.decay is None:
            return None
        part = sample if looked.numel() > SMALL else lambda t: t
        exact = call.exact[0]
        now = part(looked).to(exact.dtype)  # a copy: the target is narrower
        error = part(exact) - now
        memory = private.StorageWeakRef(target.untyped_storage())
        parts = self._drifts.setdefault(memory.cdata, {})
        key = target.storage_offset(), target.shape
        known = parts.get(key)
        if known is not None and not known.memory.expired():
            same = (known.last == part(call.samples[0]).to(exact.dtype)).all()
            error = error + torch.where(same, call.decay(known.error), 0.0)
        if known is not None or len(parts) < _MOST_DRIFTS:
            calls = known.calls + 1 if known is not None else 0
            parts[key] = _Drift(memory, now, error, number, target.stride(), calls)
            if calls >= _OFTEN and calls % _EACH and exact.dtype is torch.float64:
                return None
        if len(self._drifts) > _MOST_DRIFTS:
            alive = {at: {k: d for k, d in ds.items() if not d.memory.expired()} for at, ds in self._drifts.items()}
            self._drifts = {at: drifts for at, drifts in alive.items() if drifts}
        return _share(error, now)

    def lost_in(self, tensor: Tensor, mark: Mark | None) -> list[Lost]:
        """What sums in float32 have lost in a tensor's memory: those that wrote to it, and the one that made it."""
        if tensor.dtype is not torch.float32:
            return []
        known: Kept | None = getattr(mark, "kept", None)
        if known is not None and known.base is None and known.error is not None and known.version == version_of(tensor):
            made = tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
            return [Lost(known.number, *made, known.error, None)] if known.error.numel() == tensor.numel() else []
        parts = list(self._drifts.get(tensor.untyped_storage()._cdata, {}).items())
        if len(parts) > _MOST_PARTS:
            often = [part for part in parts if part[1].calls >= _OFTEN]
            parts = sorted(often, key=lambda part: -part[1].calls)[:_MOST_PARTS]
        return [
            Lost(drift.op, tuple(size), drift.stride, int(offset), drift.error, drift.last)
            for (offset, size), drift in parts
            if drift.error.dtype is torch.float64 and drift.error.numel() == size.numel() and not drift.memory.expired()
        ]


def _one_of_few(known: dict[int, Any], tensor: Tensor) -> tuple[dict[int, Any], bool]:
    """Whether a tensor is among the first few, the rest of which may be gone; and those that are left."""
    memory = private.StorageWeakRef(tensor.untyped_storage())
    if (found := known.get(memory.cdata)) is not None and not found.expired():
        return known, True
    known = {key: ref for key, ref in known.items() if not ref.expired()}
    if len(known) < _MOST_FOLLOWED:
        known[memory.cdata] = memory
    return known, memory.cdata in known


def _carried(func: Any, number: int, kept: Sequence[Kept | None], tensors: Sequence[Tensor], out: Tensor) -> int | None:
    """The index of the operand that the same op made the time before, or that is scaled from what an op made; None
    where there is none, or the other one does not go with it."""
    others = [(*tensors[:n], *tensors[n + 1 :]) for n in range(len(tensors))]
    if func in PRODUCTS:
        fits = [out.numel() <= SMALL and k is not None and k.base is None for k in kept]
    elif func in _ADDS:
        fits = [t.shape == out.shape and all(o.shape in (t.shape, ()) for o in os) for t, os in zip(tensors, others)]
    else:  # by a number that is no such tensor
        fits = [len(kept) - kept.count(None) == 1 and not any(o.dim() for o in os) for os in others]
    known = [n for n, k in enumerate(kept) if k is not None and fits[n]]
    own = (n for n in known if kept[n].number == number)  # type: ignore[union-attr]  # known
    return next(own, None if func not in _SCALES else next(iter(known), None))


def is_small_sum(func: Any, out: Any) -> bool:
    """Whether a call is a sum of a few numbers in float32, which loses what is smaller than half of its step."""
    return id(func) in _SUM_IDS and out.dtype is torch.float32 and out.numel() <= SMALL


def _is_followed(func: Any, changed: Tensor) -> bool:
    """Whether an in-place call may round away what it changes."""
    return changed.dtype in NARROW or is_small_sum(func, changed) or _counts_up(func, changed)


def _counts_up(func: Any, changed: Tensor) -> bool:
    """Whether a call adds to numbers in float32 by index: counts stop at 2**24."""
    return func in _INDEXED and changed.dtype is torch.float32 and changed.numel() <= _LARGEST


def _is_count(added: Any) -> bool:
    """Whether whole numbers are added: to a count in float32, which takes them until it has become too large."""
    return isinstance(added, Tensor) and added.dim() > 0 and not added.dtype.is_floating_point


def _added(args: tuple[Any, ...]) -> int:
    """How many numbers a call adds by index."""
    parts = [t for a in args[1:] for t in (a if isinstance(a, (list, tuple)) else (a,))]
    return max(t.numel() for t in parts if isinstance(t, Tensor))


def _wider(tensor: Tensor) -> torch.dtype:
    """The dtype in which a sum is made again."""
    return torch.float32 if tensor.dtype in NARROW else torch.float64


def _memory_of(tensor: Tensor) -> tuple[int, int]:
    return tensor.untyped_storage()._cdata, int(tensor.storage_offset())


def _targets(func: Any, args: tuple[Any, ...]) -> list[Tensor]:
    """The tensors that a call changes and that are sampled."""
    if func in _NORMALISES:
        return [args[_MEAN], args[_MEAN + 1]]
    return list(args[0][:_MOST_OF_A_LIST]) if isinstance(args[0], (list, tuple)) else [args[0]]


def _indexed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], targets: list[Tensor]) -> _Rehearsed | None:
    """A write by index that adds, made in float32 on all of a tensor that is not large."""
    (target,) = targets
    if max(t.numel() for t in args if isinstance(t, Tensor)) > _LARGEST or not integers.accumulates(func, args, kwargs):
        return None
    exact = IN_PLACE[func](*(a.float() if isinstance(a, Tensor) and a.dtype in NARROW else a for a in args), **kwargs)
    return _Rehearsed(func, lambda: [target], [target.clone()], [exact], target, lambda error: error)


def _counted(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], targets: list[Tensor]) -> _Rehearsed | None:
    """The same in float64 for a tensor in float32, of which only what has become too large is judged."""
    (target,) = targets
    values = args[2] if func is _PUT else args[3]
    if target.numel() > _LARGEST or _added(args) > _LARGEST or not integers.accumulates(func, args, kwargs):
        return None
    exact = IN_PLACE[func](*(a.double() if a is target or a is values else a for a in args), **kwargs)
    full = target.abs() >= _FULL * values.abs().amax()
    return _Rehearsed(func, lambda: [target], [target.clone()], [exact], target, lambda error: error, due=full)


def _normalised(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], targets: list[Tensor]) -> _Rehearsed | None:
    """What a batch normalisation should do to its running statistics, where they are still far from the batch's."""
    given, at = args[0], _NORMALISES[func]
    trains = at == _MEAN + 2 or args[at - 1]
    if not trains or not is_plain(given) or given.numel() > _LARGEST or given.dim() < 2:
        return None
    before, exact = [t.clone() for t in targets], []
    variance, mean = torch.var_mean(given.float(), [d for d in range(given.dim()) if d != 1])
    many = given.numel() // mean.numel()
    chance = (variance / many).sqrt(), variance * (2 / many) ** 0.5
    for now, goal, by_chance in zip(before, (mean, variance), chance):
        off = goal - now.float()
        far = off.abs() > torch.maximum(_FAR * goal.abs(), _BY_CHANCE * by_chance)
        exact.append(now.float() + torch.where(far & (far.float().mean() > _MOST_OF_IT), args[at] * off, 0.0))
    index = sum(isinstance(a, torch.Tensor) for a in args[:_MEAN])
    return _Rehearsed(func, lambda: targets, before, exact, kept=index)


def _share(error: Tensor, of: Tensor) -> Tensor:
    """The root mean square of an error, relative to that of what it is an error of; 0 where that is not finite."""
    share = error.norm() / of.norm()
    return torch.where(torch.isfinite(share), share, 0.0)


def _total(*masks: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(torch.stack([m.sum() for m in ms]).sum() for ms in masks)


def _stiller(*masks: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The counts of the tensor that lost most of its changes."""
    due, done = (torch.stack([m.sum() for m in ms]) for ms in masks)
    worst = (due - done).argmax()
    return due[worst], done[worst]


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is an ordinary one whose values can be read."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.numel() > 0 and readable(tensor)
