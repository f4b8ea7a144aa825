"""What is known about each live tensor: which event decided its dtype, and which op made it.

A mark refers to its tensor by weak reference. So it keeps no tensor alive and leaves no attribute on the tensor
(``torch.save`` and ``deepcopy`` would copy that). Following a dtype costs one table look-up for each op. Equal
events are stored once, so a loop adds no new ones.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from ..records import UNWATCHED
from . import private
from .ops import GrowingOp

_DEEPEST = 24
"""The longest chain of events: one more gets the number of its parent. No reader follows more."""
_FORGOTTEN = 4
"""A tensor that was in none of so many watched steps is forgotten: the program may have dropped it long ago."""
_ROOM = 1024
"""The table is swept when it has more than twice its live marks plus this many."""


class RawRead(NamedTuple):
    """See :class:`dtypetrace.records.Read`."""

    dtype: torch.dtype
    place: int
    event: int
    frames_up: int
    op: int = -1


class RawEvent(NamedTuple):
    """See :class:`dtypetrace.records.Event`; module is a number, dtypes are torch's."""

    how: str
    op: str
    place: int
    module: int
    source: tuple[torch.dtype, ...]
    to: torch.dtype
    parents: tuple[int, ...] = ()
    reads: tuple[RawRead, ...] = ()
    name: str = ""
    default: int = -1
    explicit: bool = False
    healed: int = -1


class Ref(weakref.ref[torch.Tensor]):
    """A weak reference of our own class. Python may give the program the same plain weak reference, and torch refuses
    to swap a tensor that has one; with our own class, :func:`not_ours` can tell them apart."""

    __slots__ = ()


class Kept(NamedTuple):
    """What is known about a tensor that an op made, perhaps scaled since."""

    number: int
    base: torch.Tensor | None = None
    """A sample of what the op made, where this tensor is computed from it; None where this tensor is what the op
    made."""
    exact: torch.Tensor | None = None
    """What this tensor would be if nothing had been rounded since then."""
    error: torch.Tensor | None = None
    """How far that is from what it would be if the op had not rounded the times before, either."""
    version: int | None = None
    """The tensor's version then, where an error is known: once it was written to, that is another one's."""


class Stored(NamedTuple):
    """What a cast stored in a narrow dtype, and a tensor was computed from (``capture.stored``): samples in float32."""

    number: int
    """The cast's op."""
    now: torch.Tensor
    lost: torch.Tensor
    """What was rounded off in all rounds, with its sign."""
    meant: torch.Tensor
    """How far the rounds should have moved each number, up or down."""
    exact: torch.Tensor | None = None
    """The numbers before they were rounded to whole ones or limited; None where the tensor holds them."""
    decay: tuple[int, torch.Tensor, torch.Tensor] | None = None
    """What became of the state as it was scaled in its own dtype (``Stores.decay``)."""


class Mark(Ref):
    """A weak reference to a tensor with what is known about it.

    value, kept, stored: used with numerics (``values``, ``increments``, ``stored``); was: the event before
    ``.data =`` or before a swap.
    """

    __slots__ = ("event", "op", "value", "kept", "stored", "was")
    event: int
    op: int
    value: tuple[int, int]
    kept: Kept | None
    stored: tuple[Stored, ...]
    was: int


class Resting(NamedTuple):
    """What is known about a tensor between two watched steps, without a Python reference to it.

    The tensor is recognised by its id and its memory: torch refuses to swap a tensor that has a weak reference, and
    while nothing is watched nobody answers for ours.
    """

    memory: Any
    """A weak reference to the storage, of C++."""
    facts: tuple[Any, ...]
    """dtype, offset and shape."""
    event: int
    op: int
    unused: int
    """In how many watched steps the tensor was not seen."""


def not_ours(references: Iterable[weakref.ref[Any]]) -> list[weakref.ref[Any]]:
    """The weak references to a tensor that are not dtypetrace's."""
    return [reference for reference in references if not isinstance(reference, Ref)]


class Origins:
    """Marks of live tensors and the table of events. ``ops``: the recording's growing list."""

    def __init__(self, ops: Sequence[GrowingOp] = ()) -> None:
        self._ops = ops
        self.marks: dict[int, Mark] = {}
        """By id; the entry of a tensor that is gone stays until its id is used again, or until :meth:`sweep`."""
        self.room = _ROOM
        self.replaced: dict[int, set[int]] = {}
        """Event that a live tensor got by ``.data =`` or by a swap -> the events it had before."""
        self.events: list[RawEvent] = []
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._gradients: dict[int, tuple[Ref, Ref]] = {}
        """By the id of the tensor that owns the gradient."""
        self._resting: dict[int, Resting] = {}
        """By id: tensors that were known when the last watched step ended and have not been seen again."""
        self.unsure: set[int] = set()
        """Events of tensors that were made in steps that were not watched, and those that come from them."""
        self.rested = False
        """Whether there were steps that were not watched."""
        self.still: set[int] = set()
        """Ids of tensors that were used where no op was seen: they are not forgotten."""

    def mark(self, tensor: torch.Tensor, event: int, op: int) -> Mark:
        """Notes that an event decided a tensor's dtype and that an op made it."""
        # No callback: it would run in the middle of the program, and a Ctrl-C that came during it would be lost
        # ("Exception ignored in"). Most ids are used again at once anyway.
        mark = Mark(tensor)
        mark.event = event
        mark.op = op
        self.marks[id(tensor)] = mark
        self.tidy()
        return mark

    def tidy(self) -> None:
        """Sweeps when the table has doubled since the last time, so the cost is spread over the marks made in
        between."""
        if len(self.marks) > self.room:
            self.sweep()

    def sweep(self) -> None:
        """Drops the marks of tensors that no longer exist."""
        marks = self.marks
        for key, mark in list(marks.items()):
            if mark() is None and marks.get(key) is mark:
                marks.pop(key, None)  # another thread of the engine may have removed it first
        self.room = 2 * len(marks) + _ROOM
        for key, (gradient, _) in list(self._gradients.items()):
            if gradient() is None:
                self._gradients.pop(key, None)

    def of(self, tensor: torch.Tensor) -> Mark | None:
        """The tensor's mark. If the id was reused, the weak reference shows it."""
        mark = self.marks.get(id(tensor))
        if mark is not None and mark() is tensor:
            return mark
        return self._known_before(tensor) if self._resting else None

    def _known_before(self, tensor: torch.Tensor) -> Mark | None:
        """The mark of a tensor that was known before steps that were not watched, if it is still that tensor."""
        known = self._resting.pop(id(tensor), None)
        if known is None or known.memory.expired():
            return None
        place = _place_in_memory(tensor)
        if place is None or (place[0]._cdata, place[1]) != (known.memory.cdata, known.facts):
            return None
        return self.mark(tensor, known.event, known.op)

    def mark_of(self, tensor: torch.Tensor, place: int = -1, name: str = "") -> Mark:
        """The tensor's mark. A tensor that was never seen gets an ``input`` origin, at the place of its first use."""
        mark = self.of(tensor)
        return mark if mark is not None else self._first_mark(tensor, place, name)

    def _first_mark(self, tensor: torch.Tensor, place: int, name: str = "") -> Mark:
        inner = self._inner_mark(tensor)
        if inner is not None:
            return self.mark(tensor, inner.event, inner.op)
        # a RawEvent, which need not be made where an equal one is known: the weights of an optimizer share one
        what = ("input", UNWATCHED if self.rested else "", place, -1, (), tensor.dtype, (), (), name, -1, False, -1)
        number = self._numbers.get(what)
        return self.mark(tensor, self.event(RawEvent(*what)) if number is None else number, -1)

    def changed_unseen(self, tensor: torch.Tensor) -> int:
        """The event of a tensor whose dtype was changed in place after the last watched step, before that; -1 for all
        others."""
        known = self._resting.get(id(tensor))
        if known is None or known.facts[0] is tensor.dtype or known.facts[2] != tuple(tensor.shape):
            return -1
        return known.event

    def _inner_mark(self, wrapper: torch.Tensor) -> Mark | None:
        """The mark of the tensor inside a wrapper or below a view, if it has the same dtype; else None.

        Wrappers are DTensor and what vmap and grad pass to a function. A view counts if no hook saw it being made
        (``as_subclass``).
        """
        if private.of_functorch(wrapper):
            inner = [private.functorch_inner(wrapper)]
        elif type(wrapper) not in (torch.Tensor, torch.nn.Parameter) and hasattr(wrapper, "__tensor_flatten__"):
            parts = (getattr(wrapper, name) for name in wrapper.__tensor_flatten__()[0])
            inner = [part for part in parts if isinstance(part, torch.Tensor)]  # a DTensor names its mesh, too
        else:
            with private.DisableTorchFunction():  # a subclass would return another object, without the mark
                inner = [wrapper._base] if wrapper._base is not None else []
        for tensor in inner:
            mark = self.of(tensor)
            if mark is None and private.of_functorch(tensor):
                mark = self._inner_mark(tensor)
            if mark is not None and tensor.dtype is wrapper.dtype:
                return mark
        return None

    def adopt(self, tensor: torch.Tensor, place: int, forward_op: int) -> Mark:
        """The tensor's mark. A tensor saved by autograd comes back without a mark: it gets that of its forward op's
        operand."""
        mark = self.of(tensor)
        return mark if mark is not None else self.adopt_new(tensor, place, forward_op)

    def adopt_new(self, tensor: torch.Tensor, place: int, forward_op: int) -> Mark:
        """The same for a tensor that has no mark."""
        if forward_op >= 0:
            dtype = tensor.dtype
            for operand in self._ops[forward_op].inputs:
                if operand.dtype is dtype and operand.event >= 0:
                    return self.mark(tensor, operand.event, operand.producer)
        return self._first_mark(tensor, place)

    def became(self, tensor: torch.Tensor, event: int) -> None:
        """The object stays, but its data were replaced (``x.data = y``): from now on this event explains its dtype."""
        mark = self.of(tensor)
        if mark is None:
            self.mark(tensor, event, -1)
        elif self.events[event].to is tensor.dtype:
            self.replaced.setdefault(event, set()).add(mark.event)
            mark.was, mark.event = mark.event, event

    def swapped(self, first: torch.Tensor, second: torch.Tensor) -> None:
        """Two tensors exchanged their contents, as when a module's conversion replaces each weight.

        So what is known about them is exchanged, too.
        """
        known = self.of(first), self.of(second)
        for tensor, mark, own in ((first, known[1], known[0]), (second, known[0], known[1])):
            self.marks.pop(id(tensor), None)
            if mark is None:
                continue
            moved = self.marks[id(tensor)] = Mark(tensor)
            for name in Mark.__slots__:
                if hasattr(mark, name):
                    setattr(moved, name, getattr(mark, name))
            if own is not None and own.event >= 0 and own.event != mark.event:
                self.replaced.setdefault(mark.event, set()).add(own.event)
                moved.was = own.event

    def gradient(self, gradient: torch.Tensor, owner: torch.Tensor) -> bool:
        """A watched thread has read or written a tensor's ``.grad``. Returns whether this gradient is new."""
        known = self._gradients.get(id(owner))
        if known is not None and known[0]() is gradient and known[1]() is owner:
            return False
        self._gradients[id(owner)] = Ref(gradient), Ref(owner)
        return True

    def gradients(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The gradients that watched threads have read or written, each with the tensor that owns it.

        This reads no ``.grad``: another thread's backward may be writing it, without the GIL.
        """
        for known in list(self._gradients.values()):
            gradient, owner = known[0](), known[1]()
            if gradient is not None and owner is not None:
                yield gradient, owner

    def event(self, event: RawEvent) -> int:
        """Number of an event; equal events share one.

        A value that a loop widens again and again would make an endless chain of events. If an event like it is already
        among its ancestors, it explains nothing new, so the number of the earlier one is returned. A chain that has
        reached its greatest length gets no further event either.
        """
        identity = _identity(event)
        number = self._numbers.get(identity)
        if number is not None:
            return number
        if event.parents:
            what = event[:6]
            above, depth = event.parents[0], 0
            while above >= 0:
                known = self.events[above]
                if known[:6] == what:
                    return above
                depth += 1
                above = known.parents[0] if known.parents else -1
            if depth >= _DEEPEST:
                return event.parents[0]
        number = self._numbers[identity] = len(self.events)
        self.events.append(event)
        if event.op == UNWATCHED or not self.unsure.isdisjoint(event.parents):
            self.unsure.add(number)
        return number

    def number(self, event: RawEvent) -> int | None:
        """Number of an event that is already known, else None."""
        return self._numbers.get(_identity(event))

    def same_as(self, event: RawEvent, number: int) -> None:
        """This event gets the number of a known one."""
        self._numbers[_identity(event)] = number

    def event_of(self, tensor: torch.Tensor) -> int:
        """The event that decided a tensor's dtype, -1 where it is not known."""
        mark = self.of(tensor)
        return mark.event if mark is not None else -1

    def root(self, event: int) -> int:
        """The first event of a chain, following first parents."""
        while event >= 0 and self.events[event].parents:
            event = self.events[event].parents[0]
        return event

    def rest(self) -> None:
        """Replaces every weak reference to a tensor by what recognises the tensor without one."""
        self.rested = True
        kept = {
            k: r if k in self.still else r._replace(unused=r.unused + 1)
            for k, r in self._resting.items()
            if r.unused < _FORGOTTEN or k in self.still
        }
        for number, mark in self.marks.items() if private.StorageWeakRef is not None else ():
            tensor = mark()
            place = _place_in_memory(tensor) if tensor is not None and mark.event >= 0 else None
            if place is not None:
                kept[number] = Resting(private.StorageWeakRef(place[0]), place[1], mark.event, mark.op, 0)
        self.clear()
        self._resting = {k: r for k, r in kept.items() if not r.memory.expired()}

    def clear(self) -> None:
        """Forgets every tensor; the events stay."""
        self.marks.clear()
        self._gradients.clear()
        self._resting.clear()
        self.still.clear()


def _place_in_memory(tensor: torch.Tensor) -> tuple[Any, tuple[Any, ...]] | None:
    """A tensor's storage, with dtype, offset and shape; None for one without memory of its own."""
    tensor = getattr(tensor, "_local_tensor", tensor)  # a DTensor's own part
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ or tensor.layout is not torch.strided:
        return None
    try:
        return tensor.untyped_storage(), (tensor.dtype, tensor.storage_offset(), tuple(tensor.shape))
    except (RuntimeError, NotImplementedError):  # what vmap and grad pass looks plain and has no storage
        return None


def _identity(event: RawEvent) -> RawEvent:
    """What makes an event distinct. The op that made the tensor whose dtype was read does not count: it may change when
    the same line runs again (an optimizer has written the weight since)."""
    return event._replace(reads=tuple(read._replace(op=-1) for read in event.reads)) if event.reads else event
