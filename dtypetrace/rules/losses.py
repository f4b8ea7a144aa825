"""Where a measured loss began, in a run that was also computed in higher precision.

The ordinary rounding of bfloat16 training is the yardstick. Rounding each result once in bfloat16 gives an error of at
most 0.2%; after a deep network, and on the way back, a few per cent. There is damage where a result keeps at most half
of what it should hold, or is infinite while the reference is not, and the result counts: a gradient that meets its
weight, an update, an average, a number that the program reads, an output.

From there the loss is followed back along the operands, to the op that made it: by its own rounding (numbers that
became zero, became infinite, or were absorbed), or by amplifying ordinary errors of its operands (differences of close
numbers, functions of large angles).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import inf, prod

from .. import graph
from ..records import FORWARD, Input, LeftOut, Op, Precision
from ..tables.dtypes import DTYPES, NARROW, REAL, narrower
from ..tables.operators import NAMED_CASTS, flops, is_cast, is_move, tagged
from . import flows
from .compensated import low_order
from .infinities import scaled, skipped
from .run_facts import Run

ROUNDING = 2.0**-8
"""One rounding of bfloat16, relative to the number."""
LOST = 0.5
"""Half of what a tensor should hold: with such an error not one digit is right."""
ORDINARY = 4 * ROUNDING
"""An error below this is usual after a few ops in bfloat16."""
KEPT = 0.25
"""The loss came through an operand that has at least this share of the result's loss."""
JUMP = 4.0
"""If an op multiplies its operands' error by at least this, it is not one of many ordinary ops."""
BY_ERROR = 8.0
"""How many times the error of numbers, in whole ones, is the most of their integers that it makes others by itself: of
numbers that lie anywhere, as many as that error."""
_GROWN = 16.0
"""Running sums at least this many times as large as what they add up have lost four bits of it."""
_ZERO_BESIDE_HALF, _ZERO = 2.0**-18, 2.0**-46
"""If a result cancels to this little of its operands, the rest is rounding of the reference: float32 for 16 bits, and
float64 for float32."""
_FLOAT32 = 2.0**-20
"""An error below this is that of some ops in float32."""
_ZERO_BESIDE_LITTLE = 2.0**-30
"""The same where 16 bits do not show: the float32 reference of what was in them is a thousandth of their error off."""
_ZERO_BESIDE_UNSEEN = 2.0**-18
"""The same where something was rounded unseen, to float32 at best, and computed with since."""
_NO_ROUNDING = 2.0**-12
"""Beside the operands, a difference of less than a rounding of float16: what is measured is not far from them."""
_SIZES = "exact", "total", "product", "root", "sum", "values_and_indices", "check", "observed"
"""What asks for the size of a difference."""
_USUAL = 2.0**-10
"""Numbers at least this large, relative to the operands of a difference, are no leftover of it."""
_NEARLY_ALL = 0.9
_CALLS = 2
"""Once may be a coincidence."""
_FOLLOWED_BACK = 64
"""Ops above a difference that are searched for 16-bit numbers."""
_FINE = "int32", "int64", "float64"
"""Dtypes with neighbours that are equal in float32 (``rules.integers``)."""
_ABOVE = 512
"""Ops above each operand of a difference that are compared with those above the other."""


@dataclass(frozen=True, slots=True)
class Cause:
    """The op at which a loss began."""

    op: int
    how: str
    """``flushed``, ``infinite``, ``rounded``, ``stopped``, ``miscounted`` or ``merged`` (its own doing), or
    ``amplified``."""
    rounded: int = -1
    """For an amplified error: the op whose ordinary rounding it was, -1 where unknown."""


class Losses:
    """The measured losses of one run, by op."""

    def __init__(self, run: Run, measured: Iterable[Precision]) -> None:
        self.run = run
        self.of: dict[int, Precision] = {p.op: p for p in measured}
        self.trials: dict[int, list[LeftOut]] = {}
        """What was tried for each damaged op."""
        for trial in run.recording.trials:
            self.trials.setdefault(trial.op, []).append(trial)
        self._passed: dict[int, tuple[int, ...]] = {}
        """For each op whose loss was followed: the ops that it came through, from the cause on."""
        self._all_behind: dict[int, list[int]] = {}
        self._infinite: dict[int, int] = {}
        """For each op whose ways were searched: the op that made its infinities."""

    @cached_property
    def in_16_bits(self) -> frozenset[int]:
        return flows.in_16_bits(self.run)

    @cached_property
    def from_unwatched(self) -> frozenset[int]:
        return flows.from_unwatched(self.run)

    def shows_16_bits(self, number: int) -> bool:
        """Whether an op computes with what was in 16 bits, and that shows: what it takes has larger errors than those
        of float32, and something was rounded to 16 bits."""
        above = [self.of[n] for n in self.sources(number)]
        shows = not above or max(p.total * p.size for p in above) >= _FLOAT32 * max(p.size for p in above)
        return shows and number in self.in_16_bits and self._rounded_to_16_bits(number)

    def _rounded_to_16_bits(self, number: int) -> bool:
        """Whether an op that makes 16-bit numbers above an op rounded any, as far as is known."""
        ops = self.run.ops
        above = {
            number,
            *self._behind(number),
            *graph.ops_above(ops, [i.producer for i in ops[number].inputs], most=_ABOVE),
        }
        narrow = (n for n in above if not is_move(ops[n]) and any(d in NARROW for d in ops[n].outputs))
        return any(n not in self.of or self.of[n].introduced for n in narrow)

    def badness(self, number: int) -> float:
        """How much of its result is lost: 0 nothing, 1 everything."""
        p = self.of.get(number)
        if p is None:
            return 0.0
        calls = p.lost_calls / p.calls if p.calls else 0.0
        return 1.0 if p.spoiled else max(p.lost_in_all, min(p.total, 1.0), calls)

    def own(self, number: int) -> bool:
        """Whether the op itself lost most of what is missing from its result."""
        p = self.of[number]
        if p.spoiled:
            return p.infinite >= LOST * p.spoiled
        lost = 0.0 if self._negligible(number) else p.lost
        return max(lost, min(p.introduced, 1.0)) >= LOST * max(p.lost_in_all, min(p.total, 1.0))

    def _negligible(self, number: int) -> bool:
        """Whether the numbers that an op makes zero are nothing beside the others: the probabilities of a softmax,
        unless a logarithm or a quotient takes them."""
        return tagged(self.run.ops[number], "softmax") and not flows.feeds_pole(self.run, number)

    def sources(self, number: int) -> list[int]:
        """The measured ops that made an op's operands, skipping ops that only move numbers.

        Operands are those of an op's first call. Where errors were followed from call to call, that is exact.
        """
        measured = self.of.get(number)
        if measured is not None and measured.above is not None:
            return [n for n in measured.above if n in self.of and n != number]
        found: list[int] = []
        seen = {number}
        waiting = [i.producer for i in self.run.ops[number].inputs]
        while waiting:
            at = waiting.pop()
            if at < 0 or at in seen:
                continue
            seen.add(at)
            if at in self.of:
                found.append(at)
            else:
                waiting += [i.producer for i in self.run.ops[at].inputs]
        return found

    def began(self, number: int) -> Cause:
        """The op at which the loss of an op's result began."""
        if self.of[number].spoiled and (made := self._made_infinite(number)) >= 0:
            return Cause(made, "infinite")
        if self.of[number].spoiled and (divisor := self._lost_divisor(number)) >= 0:
            return self.began(divisor)
        seen, way = {number}, [number]
        at = number
        self._passed[number] = ()
        least = ORDINARY if self.of[number].spoiled else KEPT * self.badness(number)
        while True:
            p = self.of[at]
            above = [n for n in self.sources(at) if n not in seen]
            if self.own(at) and not (gone := [n for n in above if p.flushed and self._gone(n)]):
                return Cause(at, "stopped" if at in self.stopped_sums else _how(p))
            if self.own(at):
                above = gone  # what is nearly all zero already is no result of this op
            worst = max(above, key=lambda n: (self.badness(n), self.of[n].flushed), default=-1)
            # an exact op may pick some of its operand's numbers, which are worse than the rest
            bad = [n for n in above if self.badness(n) >= ORDINARY]
            picks = bad == [worst] and not p.introduced and self.of[worst].introduced >= ORDINARY
            if (worst < 0 or self.badness(worst) < least) and (hidden := self._hidden(at, least) - seen):
                worst, picks = max(hidden, key=self.badness), True
            if worst < 0 or self.badness(worst) < least and not picks:
                small = self._vanished(at, seen)
                if small < 0 < p.vanished and p.vanished * p.calls >= LOST * p.lost_calls:
                    small = at  # each call lost a little of the range, until nothing was left
                return Cause(at, "amplified", self.rounded(at)) if small < 0 else Cause(small, "flushed")
            seen.add(worst)
            self._passed[number] = tuple(way)
            way.append(worst)
            at = worst

    def _hidden(self, number: int, least: float) -> set[int]:
        """What was lost before it was added to larger numbers, beside which that did not show, where a difference takes
        these away again: the ops that made what was added."""
        if not tagged(self.run.ops[number], "difference"):
            return set()
        sums = {n for i in self.run.ops[number].inputs for n in [*self.moved(i.producer)][-1:]}
        added = {n for at in sums if tagged(self.run.ops[at], "sum") for n in self.sources(at)}
        return {n for n in added if self.badness(n) >= least and self._error(n) >= LOST * self._error(number)}

    def finds_scale(self, cause: Cause) -> bool:
        """Whether a loss began with infinite gradients that are checked before each step: how a loss scaler finds its
        scale. What the program computes from them, such as their norm, is left with the step."""
        by_engine = self.run.ops[cause.op].phase == "backward"
        skips = scaled(self.run.recording) if by_engine else skipped(self.run, cause.op)
        return cause.how == "infinite" and skips

    def _gone(self, number: int) -> bool:
        """Whether an op itself made nearly all of its result zero."""
        p = self.of[number]
        return p.flushed > 0 and _how(p) == "flushed" and p.lost >= _NEARLY_ALL and self.own(number)

    def goes_through(self, number: int, cause: Cause) -> bool:
        """Whether the loss of an op's result, which began where a difference is zero by structure, went through numbers
        of usual size and lost half of them: the exponential of such a difference, as in a ratio of probabilities, but
        not its size."""
        scale = max((self.of[n].size for n in self.sources(cause.op)), default=0.0)
        sizes = lambda n: tagged(self.run.ops[n], *_SIZES) or self.run.moves(n)
        through = (self.of[n] for n in (*self._passed.get(number, ()), number) if n != cause.op and not sizes(n))
        return any(p.total >= LOST and p.size >= _USUAL * scale for p in through)

    def _made_infinite(self, number: int) -> int:
        """The nearest op on the ways to a spoiled result that made most of its infinities itself, -1 for none. In a
        loop its consequences come back as operands of all others."""
        waiting, seen, found = [number], {number}, -1
        while waiting and found < 0:
            at = waiting.pop(0)
            if at in self._infinite:  # its ways were searched before
                found = self._infinite[at]
            elif self.of[at].spoiled and self.own(at):
                found = at
            else:
                new = [n for n in self.sources(at) if n not in seen and self.of[n].spoiled]
                seen.update(new)
                waiting += new
        self._infinite.update(dict.fromkeys(seen if found < 0 else (number,), found))
        return found

    def _lost_divisor(self, number: int) -> int:
        """What a function with a pole takes on the ways to a spoiled result, where none of it is infinite and some of
        it is lost: a divisor that became zero; -1 for none."""
        poles = (n for n in (number, *self._behind(number)) if self.run.is_pole(n) and self.of[n].spoiled)
        taken = {s: self.of[s].lost_in_all for n in poles for s in self.sources(n) if not self.of[s].spoiled}
        worst = max(taken, key=taken.__getitem__, default=-1)
        return worst if worst >= 0 and taken[worst] > 0 else -1

    def _vanished(self, number: int, passed: set[int]) -> int:
        """The op that made the most numbers zero among those that a loss passed through, if that is how it came about;
        else -1.

        In a loop each round loses a little, and no op loses most of it by itself. Where the numbers that are left have
        ordinary errors, those that are missing are too small for the dtype.
        """
        most = max(passed, key=lambda n: self.of[n].flushed)
        return most if self.of[number].total < ORDINARY and self.of[most].flushed > 0 else -1

    def rounded(self, number: int) -> int:
        """The op whose own rounding makes up most of the error of an op's operands, -1 where none is measured."""
        apart = self._apart(number)
        if apart:
            return apart[0]
        if (kept := self._rounds_round_after_round(number)) >= 0:
            return kept
        way = self._way(number)
        if len(way) > 1 and not self._rounds(way[-1]):
            # ops inside one call of torch's are one op where they are alike, and a way comes back to itself
            return max(filter(self._rounds, self._behind(number)), key=lambda n: self.of[n].introduced, default=way[-1])
        return way[-1] if len(way) > 1 else -1

    def _rounds_round_after_round(self, number: int) -> int:
        """Of a state that is carried on: the op in its loop that rounds the most, where no rounding from outside of the
        loop is near it; -1 for none."""
        if not self.comes_back(number) or not self.compounds(number):
            return -1
        inside = {n: self.of[n].introduced for n in {number, *self._behind(number)} if self.comes_back(n)}
        worst = max(inside, key=inside.__getitem__)
        outside = (self.of[n].total for n in self._behind(number) if n not in inside)
        return worst if inside[worst] >= JUMP * max(outside, default=0.0) else -1

    def _rounds(self, number: int) -> bool:
        """Whether most of the error of an op's result is its own."""
        return self._own(number) >= LOST

    def _own(self, number: int) -> float:
        """The share of an error that is an op's own: its rounding, and of a sum that goes on those of all calls, which
        are what the errors of its terms do not explain."""
        p, terms = self.of[number], [self.of[n].total for n in self.sources(number) if n != number]
        share = min(p.introduced / p.total, 1.0) if p.total else 0.0
        if not (number in (p.above or ()) and tagged(self.run.ops[number], "sum") and terms and p.total):
            return share
        return max(share, max(1.0 - (max(terms) / p.total) ** 2, 0.0) ** 0.5)

    def _behind(self, number: int) -> list[int]:
        """The measured ops that an op's result was computed from, in all calls."""
        known = self._all_behind.get(number)
        if known is not None:
            return known
        found: dict[int, None] = {}
        waiting = [number]
        while waiting and len(found) < _ABOVE:
            new = [n for n in self.sources(waiting.pop(0)) if n not in found]
            found.update(dict.fromkeys(new))
            waiting += new
        self._all_behind[number] = list(found)
        return self._all_behind[number]

    def rounded_beside(self, cause: Cause) -> list[int]:
        """The other ops whose own rounding an amplified error comes from: those that made most of the error of operands
        whose error is nearly as large as that of the worst one."""
        apart = self._apart(cause.op)
        if apart:
            return apart[1:]
        errors = {n: self._error(n) for n in self.sources(cause.op)}
        near = [n for n, error in errors.items() if error and error >= KEPT * max(errors.values())]
        begins = [n if self._rounds(n) else self.rounded(n) for n in near]
        return [n for n in dict.fromkeys(begins) if n not in (-1, cause.op, cause.rounded)]

    def _apart(self, number: int) -> list[int]:
        """Where an op takes two results: for each of them the op whose own rounding is largest among those that the
        other one does not share, the largest first, if they explain the op's error.

        What both operands were computed from was rounded once: a difference of the two does not see it; but if one is
        broadcast, such as a mean, it shares little of the rounding of each number of the other. Of loops, the first
        round counts: the graph of first calls has no circles.
        """
        op = self.run.ops[number]
        made = dict.fromkeys(i.producer for i in op.inputs if i.producer >= 0)
        if len(made) != 2 or tagged(op, "scale") or flops(op):
            return []
        one, other = made
        need = KEPT * self._error(number)
        found = []
        for mine, beside in ((one, other), (other, one)):
            shared = self._passing(beside).keys() if self._numbers(mine) <= self._numbers(beside) else frozenset()
            passed = {n: w for n, w in self._passing(mine).items() if n in self.of and n not in shared}
            own = {n: min(w, self.of[n].introduced * self.of[n].size) for n, w in passed.items()}
            worst = max(own, key=own.__getitem__, default=-1)
            if worst >= 0 and own[worst] >= need > 0:
                found.append((own[worst], worst))
        largest = max(found, default=(0.0, -1))[0]
        return [n for error, n in sorted(found, reverse=True) if error >= KEPT * largest]

    def _passing(self, number: int) -> dict[int, float]:
        """The ops that an op's result was computed from, and itself, each with the largest error that can have come
        from it: on no way to the result the error was ever larger than the smallest on that way."""
        found: dict[int, float] = {}
        waiting = {number: inf}
        while waiting and len(found) < _ABOVE:
            at = max(waiting)  # producers come before consumers, so all ways to it are known
            chosen = at == number and at in self.of and self.of[at].others  # it has no size, and so no error
            error = self._error(at) if at in self.of and not chosen else inf
            found[at] = passed = min(waiting.pop(at), error)
            for i in self.run.ops[at].inputs:
                if 0 <= i.producer < at:
                    waiting[i.producer] = max(waiting.get(i.producer, 0.0), passed)
        return found

    def largest_above(self, number: int) -> list[int]:
        """The measured ops above an op whose own rounding adds the most to its error, the largest first."""
        own = {
            n: min(w, self.of[n].introduced * self.of[n].size) for n, w in self._passing(number).items() if n in self.of
        }
        return sorted((n for n in own if own[n] > 0), key=own.__getitem__, reverse=True)

    def _numbers(self, number: int) -> int:
        """How many different numbers an op's result can have: a mean that was expanded has fewer than elements."""
        op, count = self.run.ops[number], prod(self.run.ops[number].shape)
        while is_move(op) and op.inputs and op.inputs[0].producer >= 0:
            op = self.run.ops[op.inputs[0].producer]
            count = min(count, prod(op.shape))
        return count

    def _total(self, number: int) -> float:
        return self.of[number].total

    def _error(self, number: int) -> float:
        """The size of the error of an op's result."""
        return self.of[number].total * self.of[number].size

    def _way(self, number: int) -> list[int]:
        """The ops along which the largest error came to an op, back to the first one whose own rounding makes up most
        of its error, as far as half of the error came from there: what rounds after it only adds to it."""
        way, rounds, share = [number], 0, 1.0
        while share >= LOST:
            circle = max(self.sources(way[-1]), key=self._total, default=-1) in way  # what came into it is beside it
            above = {s for n in (way if circle else way[-1:]) for s in self.sources(n)}.difference(way)
            at = max(above, key=self._total, default=-1)
            if at < 0 or not self.of[at].total:
                break
            way.append(at)
            if self._rounds(at):
                rounds = len(way)
            elif apart := self._apart(at):
                return [*way, apart[0]]
            own = self._own(at)
            share *= (1.0 - own * own) ** 0.5
        return way[:rounds] if rounds else way

    def jumps(self, number: int) -> bool:
        """Whether an op's result, or a part of its numbers, is much worse than all of its operands."""
        sources = self.sources(number)
        total = max((self.of[n].total for n in sources), default=0.0)
        bad = max(map(self.badness, sources), default=0.0)
        return self.of[number].total >= JUMP * total or self.badness(number) >= JUMP * bad

    def error_before(self, number: int) -> float:
        """The root mean square error of the numbers that an op takes, in their unit; -1 where none was measured."""
        return max((self.of[n].total * self.of[n].size for n in self.sources(number)), default=-1.0)

    def on_bounds(self, number: int) -> bool:
        """Whether the remainders that an op makes have larger errors than those of its numbers explain: these are
        multiples, whose remainder in every dtype is nothing or all by the last bit."""
        p, error = self.of[number], self.error_before(number)
        remains = tagged(self.run.ops[number], "remainder")
        return remains and 0.0 <= 2 * BY_ERROR * error < p.total**2 * p.size

    def narrowed_by_choice(self, number: int) -> bool:
        """Whether an op is a cast of the program's that narrows what had been computed in a wider dtype."""
        op = self.run.ops[number]
        named = is_cast(op) and op.op in NAMED_CASTS and bool(op.inputs) and bool(op.outputs)
        return named and narrower(op.outputs[0], op.inputs[0].dtype) and self.run.computed(op.inputs[0])

    def comes_back(self, number: int) -> bool:
        """Whether an op's result is computed from that of its own call before: a state that is carried on."""
        alone = number in (self.of[number].above or ())
        return alone or number in self._may_come_back and number in self._behind(number)

    @cached_property
    def _may_come_back(self) -> frozenset[int]:
        """The measured ops that are in a circle, or between two: all but those that can be taken away one after the
        other, because none of those that are left made their operands."""
        sources = {n: set(self.sources(n)) for n in self.of}
        users: dict[int, list[int]] = {}
        for n, above in sources.items():
            for a in above:
                users.setdefault(a, []).append(n)
        waiting = [n for n, above in sources.items() if not above]
        while waiting:
            at = waiting.pop()
            del sources[at]
            for user in users.get(at, ()):
                sources[user].discard(at)
                if not sources[user]:
                    waiting.append(user)
        return frozenset(sources)

    def compounds(self, number: int) -> bool:
        """Whether the roundings of an op's operand have one sign and add up in its result: each number of that follows
        from the one before, as in a cumulative product or call after call, and the error is that of hundreds of
        roundings."""
        loops = self.comes_back(number)
        if not loops and not tagged(self.run.ops[number], "running"):
            return False
        above = self._behind(number)
        given = [n for n in above if not self.comes_back(n)] if loops else self.sources(number)
        total = max((self.of[n].total for n in given), default=0.0)
        return 0 < JUMP**2 * total <= self.of[number].total

    def grows(self, number: int) -> bool:
        """Whether an op adds up numbers to much larger ones: what is rounded off each of these is a whole number of
        the others, whatever dtype suits those."""
        size = max((self.of[n].size for n in self.sources(number)), default=0.0)
        return tagged(self.run.ops[number], "running") and 0 < _GROWN * size <= self.of[number].size

    def cancels(self, number: int) -> bool:
        """Whether an op's result is zero by structure: even in higher precision nothing is left of it but rounding."""
        op = self.run.ops[number]
        summed = max((prod(i.shape) for i in op.inputs), default=1) / max(prod(op.shape), 1)
        least = self._zero_beside(number) * max(summed, 1.0) ** 0.5
        return self.of[number].size < least * max((self.of[n].size for n in self.sources(number)), default=0.0)

    def compares_models(self, cause: Cause) -> bool:
        """Whether a difference is that of two results of the same op, as of a policy and its reference, and what was
        rounded is a matmul in 16 bits, or what autocast casts: that is what mixed precision is, and where two models
        agree to that, they agree."""
        ops = self.run.ops
        if cause.rounded < 0 or not tagged(ops[cause.op], "difference"):
            return False
        rounded = ops[cause.rounded]
        by_autocast = is_cast(rounded) and rounded.op not in NAMED_CASTS
        if not (by_autocast or tagged(rounded, "matmul", "addmm", "convolution")):
            return False
        made = [list(self.moved(i.producer))[-1:] for i in ops[cause.op].inputs]
        alike = {(ops[n].op, ops[n].shape) for numbers in made for n in numbers}
        return len(made) == 2 and all(made) and made[0] != made[1] and len(alike) == 1

    def _zero_beside(self, number: int) -> float:
        if number in self.from_unwatched:
            return _ZERO_BESIDE_UNSEEN
        if number not in self.in_16_bits:
            return _ZERO
        return _ZERO_BESIDE_HALF if self.shows_16_bits(number) else _ZERO_BESIDE_LITTLE

    @cached_property
    def mere_rounding(self) -> list[int]:
        """Forward differences that training goes through and that hold more rounding than numbers: what was subtracted
        had been rounded to 16 bits after it was computed, by a cast or as a logarithm.

        Matmuls in 16 bits are what mixed precision is; what the results of two of them differ by is theirs.
        """
        return [number for number, p in self.of.items() if self._is_mere_rounding(number, p)]

    def _is_mere_rounding(self, number: int, p: Precision) -> bool:
        op = self.run.ops[number]
        if not tagged(op, "difference") or p.total < LOST or p.spoiled or op.phase not in FORWARD or self.own(number):
            return False
        largest = max((self.of[n].size for n in self.sources(number)), default=0.0)
        size = p.size if tagged(op, "sum") else p.size**0.5  # a loss squares
        if size < self._zero_beside(number) * largest and not self._is_log_ratio(number):
            return False
        return not self.asks_for_rounding(number) and self._trains(number) and self.stored_before(number) >= 0

    def _is_log_ratio(self, number: int) -> bool:
        """Whether a difference is that of logarithms, and what rounding leaves of it is no ordinary error of their
        ratio. Where that should be 1, as of a policy that has not been trained since, nothing else is left."""
        users = (u for n in (number, *self._moves_below(number)) for u in self.run.users[n])
        return any(
            u in self.of and tagged(self.run.ops[u], "exponential") and self.of[u].total >= ORDINARY for u in users
        )

    def stored_before(self, difference: int) -> int:
        """The op that rounded most of what a difference subtracts after it had been computed, to 16 bits: a cast of the
        program's or a logarithm, perhaps added up since; -1 where it is none of these."""
        begun = next(iter(self._apart(difference)), self.rounded(difference))
        for number in graph.first_operands(self.run.ops, begun):
            op = self.run.ops[number]
            if op.outputs[:1] not in (("bfloat16",), ("float16",)):
                return -1
            if self.narrowed_by_choice(number) or tagged(op, "log_softmax", "pole"):
                return number
            if not (self.run.moves(number) or tagged(op, "total", "product", "picks")):
                return -1
        return -1

    def asks_for_rounding(self, number: int) -> bool:
        """Whether an op subtracts a tensor from its own cast, or the other way round: the program asks how much was
        rounded, as a compensated sum does. A ratio, the exponential of such a difference, is no question."""
        op = self.run.ops[number]
        if number in self._compensating:
            return True
        if tagged(op, "difference") and self._asks_how_far(number, op):
            return True
        if not tagged(op, "difference") or len(op.inputs) != 2:
            return False
        one, other = (list(self.moved(i.producer)) for i in op.inputs)
        casts = ([self.run.ops[n].outputs[:1] for n in way[:-1] if is_cast(self.run.ops[n])] for way in (one, other))
        alone = next(casts) != next(casts)  # what both are cast to alike is no question
        both = [self.run.ops[n] for n in {*one[:-1]} & {*other[:-1]}]
        merged = any(is_cast(o) and o.outputs[:1] == ("float32",) and o.inputs[0].dtype in _FINE for o in both)
        if one[-1:] != other[-1:] or not alone and not merged:
            return False  # what float32 merges is told where it does
        below = self.run.below([number], lambda n: True, _FOLLOWED_BACK)
        return not any(tagged(self.run.ops[n], "exponential") for n, _ in below)

    @cached_property
    def _compensating(self) -> frozenset[int]:
        """The ops that compute what sums round away, and those that add it to what comes next."""
        low = frozenset[int]().union(*(low_order(self.run, n) for n in self.of))
        adds = (n for n in self.of if tagged(self.run.ops[n], "sum", "difference"))
        return low.union(n for n in adds if not low.isdisjoint(self.sources(n)))

    def _asks_how_far(self, number: int, op: Op) -> bool:
        """Whether an op compares what was computed with the same computed in a wider dtype, by their difference or by
        how far their ratio is from a number, and only the size of that is used, with which nothing is trained."""
        sides = [i for i in op.inputs if i.dtype in REAL]
        above = [n for i in sides for n in self.moved(i.producer)][-1:] if len(sides) == 1 else []
        if above and tagged(self.run.ops[above[0]], "divide"):
            sides = [i for i in self.run.ops[above[0]].inputs if i.dtype in REAL]
        largest = max((self.of[n].size for n in self.sources(number)), default=0.0)
        if len(sides) != 2 or self.of[number].size >= _NO_ROUNDING * largest or self._trains(number):
            return False
        # float64 beside float32 is a yardstick; what 16 bits lose may be asked for because it harms
        apart = {self._digits_apart(*sides), self._digits_apart(*reversed(sides))}
        yardstick = apart == {DTYPES["float32"].digits, DTYPES["float64"].digits}
        if not yardstick and len({i.producer in self.in_16_bits for i in sides}) == 1:
            return False
        sizes = (*_SIZES, "divide", "compare", "equal") if yardstick else _SIZES
        below = (self.run.ops[n] for n, _ in self.run.below([number], lambda n: True, _FOLLOWED_BACK))
        return all(tagged(o, *sizes) or is_move(o) or is_cast(o) for o in below)

    def _digits_apart(self, side: Input, other: Input) -> int:
        """The fewest digits in which one operand was computed where the other was not, beyond what both begin with."""
        ops = self.run.ops
        numbers = lambda op: op.inputs if op.outputs[:1] != ("bool",) else ()
        one, both = (set(graph.ops_above(ops, [i.producer], numbers, _FOLLOWED_BACK)) for i in (side, other))
        made = (d for n in one - both if ops[n].inputs and not is_move(ops[n]) for d in ops[n].outputs if d in REAL)
        return min((DTYPES[d].digits for d in made), default=DTYPES[side.dtype].digits)

    def moved(self, number: int) -> Iterator[int]:
        """An op and those above it whose numbers it only moves or casts, the one that made them last."""
        for above in graph.first_operands(self.run.ops, number):
            yield above
            if not (self.run.moves(above) and self.run.ops[above].inputs):
                return

    def _trains(self, number: int) -> bool:
        """Whether the gradient goes back through what was computed from an op's result."""
        below = {number, *(n for n, _ in self.run.below([number], lambda n: True, _FOLLOWED_BACK))}
        return not below.isdisjoint(self._with_gradient)

    @cached_property
    def _with_gradient(self) -> frozenset[int]:
        return frozenset(op.of for op in self.run.ops if op.phase == "backward" and op.of >= 0)

    @cached_property
    def gone_at_poles(self) -> list[int]:
        """Forward ops whose whole result is zero because it is too small, call after call, and is limited and then
        divided by, or its logarithm taken: the limit stands where a number should be."""
        return [
            number
            for number, p in self.of.items()
            if p.vanished >= LOST
            and p.calls >= _CALLS
            and p.flushed
            and self.run.ops[number].phase in FORWARD
            and flows.feeds_pole(self.run, number)
        ]

    def scales(self, number: int) -> bool:
        return self.run.moves(number) or tagged(self.run.ops[number], "scale")

    @cached_property
    def stopped_sums(self) -> frozenset[int]:
        """Forward ops in 16 bits that add many numbers to each place of a tensor, and lose half of what they add up:
        from 256 on, bfloat16 ignores a 1."""
        return frozenset(
            number
            for number, p in self.of.items()
            if p.introduced >= LOST
            and p.calls >= _CALLS
            and tagged(self.run.ops[number], "adds_at")
            and self.run.ops[number].outputs[:1] in (("bfloat16",), ("float16",))
            and self.run.ops[number].phase in FORWARD
            and not p.spoiled
            and not self.cancels(number)
        )

    @cached_property
    def results(self) -> list[int]:
        """Measured forward ops whose results count: no op uses them, the program reads them or decides by them, or
        they enter a model or a loss."""
        found: dict[int, None] = {}
        counted = self._ends, self._enters, self._is_target, self._teaches_nothing
        for number, op in enumerate(self.run.ops):
            real = op.phase in FORWARD and bool(op.outputs) and op.outputs[0] in REAL
            if real and any(counts(number) for counts in counted):
                found.update(dict.fromkeys([number] if number in self.of else self.sources(number)))
        return list(found)

    def _enters(self, number: int) -> bool:
        """Whether a model takes what an op outside of it made."""
        mine = self._model(number)
        return any(self._model(u) not in ("", mine) for u in self.run.users[number])

    def _is_target(self, number: int) -> bool:
        """Whether a loss takes what an op makes of data."""
        learns = lambda n: n in self._with_gradient
        return not learns(number) and any(map(learns, self.run.users[number]))

    def _teaches_nothing(self, number: int) -> bool:
        """Whether a product with a weight takes a result of which nearly nothing is left: the weight's gradient is a
        product with it."""
        if number not in self.of or self.of[number].lost_in_all < _NEARLY_ALL:
            return False
        users = (self.run.ops[u] for n in (number, *self._moves_below(number)) for u in self.run.users[n])
        return any(flops(u) and any(self.run.weight_of(i) for i in u.inputs) for u in users)

    def _moves_below(self, number: int) -> list[int]:
        passes = lambda n: self.run.moves(n) or tagged(self.run.ops[n], "scale")
        return [n for n, _ in self.run.below([number], passes, _FOLLOWED_BACK) if passes(n)]

    def _model(self, number: int) -> str:
        module = self.run.ops[number].module
        return self.run.root(module) if module else ""

    def _ends(self, number: int) -> bool:
        users = [self.run.ops[u] for u in self.run.first_users[number]]  # the last round of a loop has no next one
        return not users or any(map(flows.reads, users))


def _how(p: Precision) -> str:
    if p.infinite:
        return "infinite"
    return "flushed" if p.flushed and p.flushed >= LOST * p.lost else "rounded"
