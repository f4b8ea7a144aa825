"""A state that is stored narrow, round after round: what is computed from it in float32, and stored again.

``precision = (precision.float() + step).bfloat16()``, or an image that a background model keeps in bytes. Each round
may round off all that it changes, though no narrow operator computes anything. So what a cast stored is followed
through the arithmetic on it until the same cast stores it again. Of each number two sums are kept: how much the rounds
should have moved it, up or down, and what was rounded off. Where roundings go either way, as around an average that has
arrived, or where random bits are added before a cast, the second one stays small; where changes are lost, it does not.

A state may also be scaled before it is widened (``second = (0.999 * second + 0.001 * gradient.square()).bfloat16()``,
where ``second`` is bfloat16). That product is rounded by itself: where it gives back the numbers that it scales, they
never decay, however large what is added was.

Only casts that the program itself asks for are followed, and an operator in float32 is looked at only while a state
comes through it. What an optimizer keeps is followed as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..tables.operators import NAMED_CASTS
from .calls import HALVES, TO_COPY, TO_DTYPE
from .increments import Call, Changed, is_plain
from .marks import Origins, Stored
from .ops import GrowingOp
from .updates import sample

Tensor = torch.Tensor
_aten = torch.ops.aten
NARROW = frozenset((*HALVES, torch.uint8, torch.int8, torch.int16))
_CASTS = frozenset(map(id, (TO_COPY, TO_DTYPE)))
_ROUNDS = frozenset(map(id, (_aten.round.default, _aten.clamp.default)))
_ARITHMETIC = _ROUNDS | frozenset(
    map(id, (_aten.add.Tensor, _aten.sub.Tensor, _aten.mul.Tensor, _aten.div.Tensor, _aten.lerp.Scalar,
             _aten.lerp.Tensor, _aten.where.self))
)  # fmt: skip
CONCERNED = _CASTS | _ARITHMETIC
"""By id: hashing an operator runs Python code."""
_SCALES = frozenset(map(id, (_aten.mul.Tensor, _aten.div.Tensor)))
_PHASES = ("forward", "other", "optimizer")
_BEGINS, _IN_STEPS, _TRIES = 3, 2, 8
"""The call of a cast from which on it is followed, the same of one in an optimizer's steps, of which only the first two
are measured completely, and the calls in which its state must have come back."""
_ABOVE = 5
"""Operators between two casts of a state."""
_MOST_STATES = 3
"""States that come together in one tensor."""
_LOST = 0.5
"""Share of all its movement that was rounded off, from which on a number stands still."""
_NOISE = 1e-6


class Stores:
    """The casts that may store a state, and what became of it."""

    def __init__(self) -> None:
        self._tries: dict[int, int] = {}
        """By cast: in how many calls its state did not come back."""
        self._above: dict[int, int] = {}
        """By op that computes what a cast stores: the cast."""
        self.carried = False
        """Whether a state went through the last call."""
        self.decay: tuple[int, Tensor, Tensor] | None = None
        """What became of the decay of a state that the last call stored: the op that scaled it, how many numbers it
        should have changed, and how many it did."""

    def follows(self, number: int) -> bool:
        """Whether each call of an op is looked at: it stores a state, or computes what is stored."""
        return self._above.get(number, number) in self._tries

    def begins(self, op: GrowingOp, ops: Sequence[GrowingOp]) -> list[GrowingOp]:
        """If a cast is followed from this call on, the operators that compute what it stores."""
        first = _BEGINS if op.phase != "optimizer" else _IN_STEPS
        if op.count != first or op.op not in NAMED_CASTS or op.phase not in _PHASES:
            return []
        if not op.operands or op.operands[0][0] is not torch.float32 or op.outputs[0] not in NARROW:
            return []
        self._tries[op.number] = 0
        found = self._computing(op, ops)
        self._above.update((above.number, op.number) for above in found)
        return found

    @staticmethod
    def _computing(op: GrowingOp, ops: Sequence[GrowingOp]) -> list[GrowingOp]:
        """The operators that compute what a cast stores, each number by itself: in float32, or in its own dtype."""
        found: list[GrowingOp] = []
        waiting = [(op, 0)]
        while waiting:
            at, depth = waiting.pop()
            for operand in at.operands:
                made = ops[operand[2]] if operand[2] >= 0 else None
                if made is None or id(made.func) not in _ARITHMETIC or made.shape != op.shape or depth == _ABOVE:
                    continue
                if made not in found and (made.steady in (torch.float32, op.outputs[0]) or made.steady is None):
                    found.append(made)
                    waiting.append((made, depth + 1))
        return found

    def saw(self, call: Call, origins: Origins) -> Changed | None:
        """Follows a call. Returns what arrived, if it stores what it stored the time before."""
        if not call.outputs or not call.inputs or call.phase not in _PHASES:
            return None
        out, source = call.outputs[0], call.inputs[0]
        if out.dtype in NARROW:
            if id(call.func) in _SCALES:
                self._scaled(call, source, out, origins)
                return None
            stores = id(call.func) in _CASTS and call.op in self._tries and source.dtype is torch.float32
            return self._stores(call.op, source, out, origins) if stores and is_plain(source) else None
        mark = origins.of(out) if out.dtype is torch.float32 else None
        states = self._states(call.inputs, out, origins) if mark is not None else ()
        if mark is not None and states:
            self.carried = True
            if id(call.func) in _ROUNDS:
                states = tuple(s if s.exact is not None else s._replace(exact=sample(source).clone()) for s in states)
            elif id(call.func) not in _CASTS:
                states = tuple(s._replace(exact=None) for s in states)
            mark.stored = states
        return None

    def _scaled(self, call: Call, source: Tensor, out: Tensor, origins: Origins) -> None:
        """A state times a number, in the dtype in which it is stored."""
        mark, states = origins.of(out), getattr(origins.of(source), "stored", ())
        by = [a for a in call.args if a is not source]
        alone = len(by) == 1 and not (isinstance(by[0], Tensor) and by[0].dim())
        if mark is None or not states or not alone or source.dtype is not out.dtype or out.dtype not in HALVES:
            return
        before = sample(source)
        wide = before.float()
        exact = call.func(wide, *by) if call.args[0] is source else call.func(*by, wide)
        due = (exact - wide).abs() > _NOISE * wide.abs()
        decay = call.op, due.sum(), (due & (sample(out) != before)).sum()
        mark.stored = tuple(s._replace(decay=decay) for s in states)

    @staticmethod
    def _states(inputs: Sequence[Tensor], out: Tensor, origins: Origins) -> tuple[Stored, ...]:
        found: dict[int, Stored] = {}
        for t in inputs:
            if t.shape == out.shape:
                found.update((s.number, s) for s in getattr(origins.of(t), "stored", ()))
        return tuple(found.values())[:_MOST_STATES]

    def _stores(self, number: int, source: Tensor, out: Tensor, origins: Origins) -> Changed | None:
        mark = origins.of(out)
        states = {s.number: s for s in getattr(origins.of(source), "stored", ())}
        state = states.get(number)
        now = sample(out).float()
        if mark is None:
            return None
        if state is None or state.now.shape != now.shape:
            self._tries[number] += 1
            if self._tries[number] > _TRIES:
                del self._tries[number]
            else:
                mark.stored = (Stored(number, now, torch.zeros_like(now), torch.zeros_like(now)),)
            return None

        self._tries[number] = 0
        self.decay = state.decay
        exact = sample(source) if state.exact is None else state.exact
        meant = state.meant + (exact - state.now).abs()
        lost = state.lost + (exact - now)
        mark.stored = (Stored(number, now, lost, meant),)
        due = meant > _NOISE * now.abs()
        return Changed(due.sum(), (due & (lost.abs() < _LOST * meant)).sum(), 0)
