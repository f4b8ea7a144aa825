"""Repeats each operator that a program runs in higher precision, on the references of its operands.

Two more results are computed: the *reference*, from the references of the operands, and the *local* result, from the
program's own operands. The difference between the program's result and the local one was *introduced* by this
operator; the difference between the local one and the reference was *inherited*. An operator of the backward pass is
repeated like any other, on the references of the gradients and of what forward saved. Where no operand has a
reference of its own, the two are the same.

Nothing of the program's is touched: no random number is drawn, none of its tensors is written to or kept alive, and
its decisions (indices, masks, comparisons, numbers that Python reads) are used as they are. If an operator does not
run in higher precision, the program's values become the references of its results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ..capture import private, warning_places
from ..capture.calls import TO_COPY
from ..capture.marks import Ref
from ..tables.operators import tagged
from . import choices
from .calls import Done, ReferencedCall, argument, drops, plain, tensors_of
from .operators import RERUN, STRANGE, VIEW, Kind, kind_of
from .samples import own_sample
from .shadows import WIDE, Shadow, Shadows, floating

Tensor = torch.Tensor
_CLAMP = torch.ops.aten.clamp.default
_ONE_SIZE = 0.875
"""How much smaller than the largest numbers of a mask may be, after scores were added to it."""
_MOST_ABOVE = 64
"""Ops above one op that are remembered."""
_MOST_MAKERS = 8
"""Ops that wrote to parts of one storage that are remembered."""
_MANY = 2
"""Numbers that are equal one by one and are no coincidence. One alone is: a loss that stands still."""
_ROUNDED = 0.25
"""How far numbers are off at most, relative to them, where they were only rounded: to 4 bits."""
_FIRST, EVERY = 48, 4
"""The first ``_FIRST`` calls of each op are measured, then one in ``EVERY``. Every call is followed."""


@dataclass(slots=True)
class Written:
    """What a call is about to write to, with its old values."""

    tensors: list[Tensor]
    before: list[Tensor | None]
    """The program's values, widened, where they differ from the references; else None."""
    samples: list[Tensor | None]
    """A sample of the program's values where the call changes them, None where it overwrites them."""


@dataclass(slots=True)
class Followed:
    """One result of an operator and what it is compared with, all of one shape."""

    made: Tensor
    local: Tensor
    reference: Tensor
    before: Tensor | None
    """A sample of the tensor's values before an operator that changes it; None for a new tensor."""


class Engine:
    """Computes the references of one run.

    saw: called with the number of the op and what to compare for one call.
    chose: called with the number of the op and the sums of ``choices`` for one call.
    """

    def __init__(
        self,
        saw: Callable[[int, list[Followed]], None],
        chose: Callable[[int, Tensor], None],
    ) -> None:
        self.shadows = Shadows()
        self.refused: dict[str, str] = {}
        """Operators that did not run in higher precision, with the reason."""
        self.above: dict[int, set[int]] = {}
        """For each measured op: the ops that made its operands' references, in all of its calls."""
        self._saw, self._when_chosen = saw, chose
        self._kinds: dict[int, tuple[Any, Kind]] = {}
        """With the operator, which keeps its id its own."""
        self._calls: dict[int, int] = {}
        self.measuring = True
        """Whether calls are measured; if not, they are only followed."""
        self._limited: tuple[Ref, float, Tensor] | None = None
        """What a call last limited to a symmetric range, the limit, and what it had been."""

    def kind(self, func: Any) -> Kind:
        """How an operator is followed."""
        known = self._kinds.get(id(func))  # by id: hashing an operator runs Python code
        if known is None:
            known = self._kinds[id(func)] = func, kind_of(func)
        return known[1]

    def before(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Written | None:
        """Before a call: shadows of what it will write to; None where it writes to nothing."""
        kind = self.kind(func)
        if not kind.written:
            return None
        kwargs = kwargs or {}
        if kind.undeclared >= 0 and not argument(args, kwargs, kind.undeclared, "training"):
            return None
        tensors = [
            t
            for a in kind.written
            if a.name not in kind.kept_names
            for t in tensors_of(argument(args, kwargs, a.position, a.name))
            if plain(t)
        ]
        for t in tensors:
            if not self.shadows.follows(t):
                self.shadows.forget(t)  # written through a view of another dtype
        if kind.how is not RERUN or kind.outs or not tensors:
            return Written(tensors, [], [])
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowInplaceOrView():
            known = [self.shadows.of_memory(t) is not None for t in tensors]
            if kind.overwrites:
                for t in tensors:
                    if t.dtype in self.shadows.wide and not whole(t):
                        self.shadows.adopt(t)
                return Written(tensors, [None] * len(tensors), [None] * len(tensors))
            looked = self.measuring
            before = [
                t.to(self.shadows.wide_of(t.dtype), copy=True) if k and looked else None for t, k in zip(tensors, known)
            ]
            samples = [own_sample(t) if looked and self.shadows.follows(t) else None for t in tensors]
            for t in tensors:
                if self.shadows.follows(t):
                    self.shadows.adopt(t)
            return Written(tensors, before, samples)

    def after(self, call: Done, written: Written | None) -> None:
        """After a call has run: the references of its results."""
        kind = self.kind(call.func)
        how = kind.how
        if how is VIEW:
            return
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowInplaceOrView():
            if how is RERUN and not (kind.dropout >= 0 and drops(call.func, kind, call.args, call.kwargs)):
                self._rerun(call, kind, written)
            else:
                self._decided(kind, call.args, call.kwargs, written)
                if how is STRANGE:
                    self.untie(call)

    def forget_written(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """After a call that was not followed: what it wrote to has no reference any more."""
        kind = self.kind(func)
        written = [argument(args, kwargs, a.position, a.name) for a in kind.written]
        if kind.how is STRANGE and written:  # it may write to any of its arguments
            written = [args, kwargs]
        for t in tensors_of(written):
            if plain(t):
                self.shadows.forget(t)

    def _decided(self, kind: Kind, args: tuple[Any, ...], kwargs: dict[str, Any], written: Written | None) -> None:
        """The program's values are the references of what a call wrote or made."""
        if kind.how is STRANGE:  # a collective or another library's kernel may write to any of its arguments
            for t in tensors_of((args, tuple(kwargs.values()))):
                if plain(t) and kind.written:
                    self.shadows.forget(t)
        for t in written.tensors if written is not None else ():
            self.shadows.anchor(t)

    def _rerun(self, done: Done, kind: Kind, written: Written | None) -> None:
        number, func, args, kwargs, out = done
        tensors, before, samples = (
            (written.tensors, written.before, written.samples) if written is not None else ([], [], [])
        )
        call = ReferencedCall(self.shadows, done, kind, tensors, before)
        if kind.chooses and (reference := self._reference_of(args[0])) is not None and self.measuring:
            self._add_above(number, map(self.shadows.shadow, tensors_of(args)))
            others = tuple(a if (own := self._reference_of(a)) is None else own for a in args[1:])
            self._chose(number, partial(choices.compared, func, args, kwargs, out, reference, others))
        if not call.made:
            if kind.counts:
                self._counted(number, args[0], out)
            return
        if not call.followable:
            self._give_up(done, call, "an operand that is no plain tensor")
            return
        mixed = self._mixes(call)
        if not call.needed:
            return
        measured = self._due(number)
        if measured:
            self._comes_from(number, call)
        try:
            # the local one first, because the other writes into the shadows
            locals_ = call.run(local=True) if measured and call.inherits and not (call.heavy or mixed) else None
            references = call.run(local=mixed)
            references, locals_ = self._unlimited(done, call, references, locals_)
            references = self._of_copies(done, call, references)
        except Exception as error:
            self._give_up(done, call, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
            return
        followed = []
        known = samples + [None] * (len(call.made) - len(samples))
        exact = call.made if call.inherits and call.heavy else references
        seen = 1 if tagged(str(func), "scratch") else len(call.made)
        exact_copy = kind.overwrites and not call.inherits and _holds_all(call)
        for n, (made, reference, local, before_) in enumerate(zip(call.made, references, locals_ or exact, known)):
            if exact_copy and whole(made):
                self.shadows.forget(made)
                continue
            kept = self._keep(number, made, reference if n not in kind.free else None) and n < seen
            if kept and measured and reference is not None and local is not None:
                followed.append(Followed(made, local.to(reference.dtype), reference, before_))
        if followed:
            self._saw(number, followed)

    def _unlimited(
        self, done: Done, call: ReferencedCall, references: list[Tensor | None], locals_: list[Tensor | None] | None
    ) -> tuple[list[Tensor | None], list[Tensor | None] | None]:
        """The results of a call; of a cast, as if its operand had not been limited to what the narrower dtype holds,
        which nothing wider needs."""
        if done.func is _CLAMP:
            limit = _limit(done.args[1:], done.kwargs)
            cuts = limit in _LARGEST
            self._limited = (Ref(done.out), limit, call.widened(done.args[0]).clone()) if cuts else None
        elif done.func is TO_COPY and self._limited is not None:
            given: Tensor = done.args[0]
            made, (limited, limit, before) = done.out.dtype, self._limited
            if limited() is given and made.itemsize < given.dtype.itemsize and limit == _largest(made):
                self._limited, meant = None, _meant(before, limit).to(self.shadows.wide_of(made))
                return [meant], [meant.clone()] if locals_ is not None else None
        return references, locals_

    def _of_copies(self, done: Done, call: ReferencedCall, references: list[Tensor | None]) -> list[Tensor | None]:
        """The results of a call; of a difference from a tensor that came back unseen, out of a file or another process,
        the program's own where all its numbers are equal to the other's: it is a copy of it, rounded as that is."""
        operands = call.operands
        if not call.inherits or call.changed or len(operands) != 2 or len(call.made) != 1:
            return references
        if operands[0].shape != operands[1].shape or operands[0].numel() < _MANY:
            return references
        if not tagged(str(done.func), "difference"):
            return references
        came_back = [True if (r := self.shadows.of(t)) is None else (r == t).all() for t in operands]
        copy = (call.made[0] == 0).all() & (came_back[0] | came_back[1])
        return [None if r is None else torch.where(copy, 0.0, r) for r in references]

    def _mixes(self, call: ReferencedCall) -> bool:
        """Whether a call has operands that do not go with the references of the others; then neither do its results."""
        untied = [self.shadows.is_untied(t) for t in call.operands]
        if not any(untied):
            return False
        for made in call.made:
            self.shadows.untie(made)
        return any(not u and self._is_near(t) for u, t in zip(untied, call.operands))

    def _is_near(self, tensor: Tensor) -> bool:
        """Whether a tensor is off its reference by no more than what rounding does: by more, it is off everything.
        This waits for the device."""
        shadow = self.shadows.shadow(tensor)
        if shadow is None:
            return False
        reference = self.shadows.view(shadow, tensor)
        return bool((tensor - reference).norm() < _ROUNDED * reference.norm())

    def _due(self, number: int) -> bool:
        """Whether a call of an op is measured: in a step that is measured, its first calls, then every fourth."""
        calls = self._calls[number] = self._calls.get(number, -1) + 1
        return self.measuring and (calls < _FIRST or calls % EVERY == 0)

    def _counted(self, number: int, source: Any, out: Any) -> None:
        """Floating numbers were cast to integers, which are used as they are: counts how many would have been
        others."""
        reference = self._reference_of(source)
        if reference is None or not isinstance(out, Tensor) or reference.is_complex() or out.dtype is torch.bool:
            return
        self._add_above(number, (self.shadows.shadow(source),))
        counted = reference.to(out.dtype)
        self._chose(number, lambda: choices.counted(out, counted))
        wide = out.to(reference.dtype)
        self._saw(number, [Followed(wide, wide, counted.to(reference.dtype), None)])

    def _reference_of(self, source: Any) -> Tensor | None:
        """The reference of an argument, None where it has none of its own."""
        known = isinstance(source, Tensor) and plain(source) and self.shadows.follows(source)
        return self.shadows.of(source) if known else None

    def _chose(self, number: int, compare: Callable[[], Tensor | None]) -> None:
        """Compares what a call chose. A kernel that refuses higher precision is left out."""
        try:
            sums = warning_places.unheard(compare)
        except RuntimeError:
            return
        if sums is not None:
            self._when_chosen(number, sums)

    def _comes_from(self, number: int, call: ReferencedCall) -> None:
        """Adds the ops that made a call's operands to those above op ``number``."""
        changed = (self.shadows.shadow(t) for t in call.operands if id(t) in call.changed)
        self._add_above(number, (*call.held.values(), *changed))

    def _add_above(self, number: int, shadows: Iterable[Shadow | None]) -> None:
        above = self.above.setdefault(number, set())
        for shadow in shadows:
            if shadow is not None and len(above) < _MOST_ABOVE:
                above.update(shadow.makers)

    def _keep(self, number: int, made: Tensor, reference: Tensor | None) -> bool:
        """Sets the reference of one result of op ``number``; returns False where there is none."""
        if reference is None or reference.shape != made.shape:
            self.shadows.forget(made)
            return False
        shadow = self.shadows.shadow(made)
        if shadow is None:
            self.shadows.give(made, reference).makers = (number,)
            return True
        kept = self.shadows.view(shadow, made)
        if kept.data_ptr() != reference.data_ptr() or kept.dtype is not reference.dtype:
            kept.copy_(reference)
        self.shadows.written(shadow, made)
        if whole(made):
            shadow.makers = (number,)
        elif number not in shadow.makers:
            shadow.makers = (*shadow.makers[1 - _MOST_MAKERS :], number)
        return True

    def _give_up(self, done: Done, call: ReferencedCall, reason: str) -> None:
        self.refused.setdefault(str(done.func), reason)
        for t in call.made:
            self.shadows.forget(t)
        self.untie(done)

    def untie(self, done: Done) -> None:
        """After a call that was not followed: its results do not go with the references of its operands."""
        operands = (t for t in tensors_of((done.args, tuple(done.kwargs.values()))) if floating(t.dtype) and plain(t))
        if any(self.shadows.shadow(t) is not None or self.shadows.is_untied(t) for t in operands):
            for t in tensors_of(done.out):
                if floating(t.dtype) and plain(t):
                    self.shadows.untie(t)


def _holds_all(call: ReferencedCall) -> bool:
    """Whether what a call writes has a dtype that holds all numbers of what it reads."""
    read = {t.dtype for t in call.operands if id(t) not in call.changed}
    fits = lambda a, b: a is b or a.itemsize < b.itemsize
    return bool(read) and all(fits(a, made.dtype) for a in read for made in call.made)


def _largest(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).max if dtype.is_floating_point else 0.0


_LARGEST = frozenset(_largest(d) for d in WIDE)


def _limit(bounds: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """The limit of a call that limits both sides alike; 0 for others."""
    low, high = (argument(bounds, kwargs, n, name) for n, name in enumerate(("min", "max")))
    return float(high) if isinstance(high, (int, float)) and low == -high else 0.0


def _meant(numbers: Tensor, limit: float) -> Tensor:
    """Numbers as they were meant, before they were limited: where all beyond the limit are about as large, as in a
    mask, they stand for infinity, and the limit does as well."""
    size = numbers.abs()
    above = size > limit
    same = torch.where(above, size, math.inf).amin() >= _ONE_SIZE * torch.where(above, size, 0.0).amax()
    return torch.where(above & same, numbers.clamp(-limit, limit), numbers)


def whole(tensor: Tensor) -> bool:
    """Whether a tensor covers all of its storage."""
    return tensor.numel() * tensor.dtype.itemsize == tensor.untyped_storage().nbytes()
