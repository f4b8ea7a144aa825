"""The calls that were followed, kept so that they can be made again when the run has ended.

Kept are the numbers of the ops and, of each storage that no kept call made, one copy: weights, inputs, masks, random
numbers. Nothing of the program's is kept alive. A storage that something else wrote to is another one from then on.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from ..capture import private
from ..capture.calls import version_of
from .calls import Done, plain, tensors_of

Tensor = torch.Tensor
MOST_BYTES = 1 << 25
"""Memory of all copies."""
MOST_CALLS = 5000


class Seen(NamedTuple):
    """A tensor of a kept call: its storage, and where it lies in it."""

    storage: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    conj: bool
    neg: bool


@dataclass(slots=True)
class Call:
    """One call: its op, and its arguments with a ``Seen`` for each tensor."""

    number: int
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    made: tuple[Seen, ...]
    """The tensors of its result."""
    reads: frozenset[int]
    writes: frozenset[int]


@dataclass(slots=True)
class _Held:
    alive: weakref.ref[Any]
    number: int
    version: int
    late: bool = False
    """Whether torch counts its last write only when that has returned: the next version is then of the same numbers."""


@dataclass
class Tape:
    """The calls of one run. ``full``: some calls were left out, for want of memory."""

    calls: list[Call] = field(default_factory=list)
    first: dict[int, Tensor] = field(default_factory=dict)
    """The bytes that a storage held when a call first read it, if no call made it."""
    full: bool = False
    _known: dict[int, _Held] = field(default_factory=dict)
    _storages: int = 0
    _bytes: int = 0

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before a call that writes to its arguments: their present numbers are what it reads."""
        if self.full:
            return
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowInplaceOrView():
            for t in tensors_of((args, kwargs)):
                if plain(t):
                    self._seen(t)

    def after(self, done: Done, written: Iterable[Tensor]) -> None:
        """After a call; ``written``: the arguments that it wrote to."""
        number, func, args, kwargs, out = done
        if self.full or not all(map(plain, tensors_of((args, kwargs, out)))):
            return
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowInplaceOrView():
            changed = []
            for t in written:
                held = self._known.get(t.untyped_storage()._cdata)
                if held is not None and held.alive() is not None:
                    held.late, held.version = held.version == version_of(t), version_of(t)
                    changed.append(held.number)
            kept_args = self._packed(args)
            kept_kwargs = {k: self._packed(v) for k, v in kwargs.items()}
            reads = frozenset(s.storage for s in _in((kept_args, tuple(kept_kwargs.values()))))
            made = tuple(self._made(t) for t in tensors_of(out))
            writes = frozenset((*changed, *(m.storage for m in made)))
            self.calls.append(Call(number, func, kept_args, kept_kwargs, made, reads, writes))
            self.full = self.full or len(self.calls) >= MOST_CALLS

    def forget(self) -> None:
        """Drops everything."""
        self.calls, self.first, self._known, self.full = [], {}, {}, True

    # ------------------------------------------------------------ tensors

    def _packed(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._seen(value)
        if isinstance(value, (list, tuple)):
            return tuple(map(self._packed, value)) if isinstance(value, tuple) else list(map(self._packed, value))
        return value

    def _seen(self, t: Tensor) -> Seen:
        held = self._held(t)
        if held is None:
            held = self._new(t)
            storage = t.untyped_storage()
            self._bytes += storage.nbytes()
            self.full = self.full or self._bytes > MOST_BYTES
            if not self.full:
                whole = torch.empty(0, dtype=torch.uint8, device=t.device).set_(storage, 0, (storage.nbytes(),), (1,))
                self.first[held.number] = whole.clone()
        return _place(t, held.number)

    def _made(self, t: Tensor) -> Seen:
        held = self._held(t)
        return _place(t, (held if held is not None else self._new(t)).number)

    def _held(self, t: Tensor) -> _Held | None:
        storage = t.untyped_storage()
        held = self._known.get(storage._cdata)
        if held is None or held.alive() is not storage or version_of(t) not in (held.version, held.version + held.late):
            return None
        if held.version != version_of(t):
            held.version, held.late = version_of(t), False
        return held

    def _new(self, t: Tensor) -> _Held:
        storage = t.untyped_storage()
        self._storages += 1
        held = self._known[storage._cdata] = _Held(weakref.ref(storage), self._storages, version_of(t))
        return held

    # ------------------------------------------------------------ again

    def needed(self, results: Collection[int], most: int) -> list[Call]:
        """The first ``most`` calls of some ops and every call before them that they depend on, in their order."""
        wanted: set[int] = set()
        left = dict.fromkeys(results, most)
        ends = set()
        for at, call in enumerate(self.calls):
            if left.get(call.number, 0):
                left[call.number] -= 1
                ends.add(at)
        found = []
        for at in range(len(self.calls) - 1, -1, -1):
            call = self.calls[at]
            if at in ends or call.writes & wanted:
                wanted |= call.reads
                found.append(call)
        return found[::-1]

    def play(self, calls: list[Call], each: Callable[[Call, tuple[Any, ...], dict[str, Any]], Any]) -> None:
        """Makes calls again. ``each`` is given the call and its arguments, makes it, and returns its result."""
        last = {s: at for at, call in enumerate(calls) for s in (*call.reads, *call.writes)}
        memory: dict[int, Any] = {}
        for at, call in enumerate(calls):
            for s in call.reads:
                if s not in memory and s in self.first:
                    memory[s] = self.first[s].clone().untyped_storage()
            args, kwargs = _unpacked(call.args, memory), {k: _unpacked(v, memory) for k, v in call.kwargs.items()}
            out = each(call, args, kwargs)
            for seen, t in zip(call.made, tensors_of(out)):
                memory[seen.storage] = t.untyped_storage()
            for s in [s for s in memory if last.get(s, -1) <= at]:
                del memory[s]


def _place(t: Tensor, storage: int) -> Seen:
    return Seen(storage, t.dtype, tuple(t.shape), t.stride(), int(t.storage_offset()), t.is_conj(), t.is_neg())


def _in(value: Any) -> list[Seen]:
    if isinstance(value, Seen):
        return [value]
    return [s for v in value for s in _in(v)] if isinstance(value, (list, tuple)) else []


def _unpacked(value: Any, memory: dict[int, Any]) -> Any:
    if isinstance(value, Seen):
        storage = memory[value.storage]
        t = torch.empty(0, dtype=value.dtype, device=storage.device)
        t.set_(storage, value.offset, value.size, value.stride)
        t = torch._conj(t) if value.conj else t
        return t._neg_view() if value.neg else t
    if isinstance(value, (list, tuple)):
        found = [_unpacked(v, memory) for v in value]
        return tuple(found) if isinstance(value, tuple) else found
    return value
