"""What a program decides by rounded numbers: what it chooses, compares, ranks and searches for.

A decision sees only differences: of scores near 8 that are a hundredth apart, one rounding leaves nothing, however
small it was. So it is measured by what would have been decided in higher precision (``reference.choices``), or by
numbers that have become equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import log, prod

from .. import graph
from ..records import FORWARD, Finding, Op, Origin
from ..source import editing
from ..tables.dtypes import DTYPES, HALF, REAL, narrower
from ..tables.operators import is_cast, is_move, tagged, writes
from .advice import advise
from .checks import born_otherwise
from .flows import feeds_pole, replaces_zeros, tells_apart
from .losses import BY_ERROR, KEPT, LOST, ROUNDING, Cause, Losses
from .run_facts import FAR, Run
from .silent_findings import found_at
from .whole_sums import sum_of_integers

_OTHERS = 0.1
"""Share of choices that would be others: of a healthy router in bfloat16, and of a matcher in float32, under 1%; of the
routers with a rounded bias in public reports, from 5% on."""
_APART = 0.125
"""The least error of what is chosen from, beside its differences, that matters."""
_OTHERS_COMPARED = 0.25
"""The same of comparisons, relative to the rarer of their two answers."""
_COMPARED = 64
"""The fewest comparisons of a call of which a share says something."""
_TIED = ROUNDING / 16
"""The error of what is compared, beside its differences, under which other answers come from ties: numbers that are
meant to be equal, such as a grid's and its bounds, of which in every dtype the last bit decides."""
_OTHERS_BY_CAST = 0.02
"""The same where one cast of a wider number makes the difference, which would have been there to choose by."""
_WHOLE = 1.0
"""The error of numbers, in whole ones, from which on each of their integers is another."""
_OF_DRAWS = 0.25
"""How many draws are compared for each one of which half a dtype's digits are left, that one of those takes part."""
_AGAIN = 64
"""How many times as often a program chooses at once, if what few draws reach should have been chosen."""
_SHAPED = "sum", "product", "divide", "scale", "exact"
"""Tags of what a random number goes through, beside functions with a pole, until something is chosen by it."""


def choices(losses: Losses) -> list[int]:
    """Forward ops that choose by rounded numbers and choose others than in higher precision: by differences that
    are rounding to a good part, or that a cast just before rounded more than the numbers; or as integers that serve
    as indices."""
    found = []
    for number, p in losses.of.items():
        op = losses.run.ops[number]
        if p.others < _OTHERS_BY_CAST or op.phase not in FORWARD:
            continue
        if is_cast(op):
            counts = p.others >= _OTHERS and not _on_bounds(losses, number)
            used = _serves_as_index(losses, number) or _tells_apart(losses, number)
            counts = counts and (used or _counts_out(losses, number))
        elif op.outputs[:1] == ("bool",):
            zero = _made_zero(losses, number)
            # what is zero beside others is nothing, but not what one divides by
            many = prod(op.shape) >= _COMPARED if zero < 0 else feeds_pole(losses.run, zero)
            tied = zero < 0 and 0.0 < p.apart < _TIED
            counts = many and (not tied and p.others >= _OTHERS_COMPARED or _by_a_cast(losses, number))
        else:
            cast = p.apart >= ROUNDING and _narrowed_before(losses, number) >= 0
            counts = (cast or p.others >= _OTHERS and p.apart >= _APART) and _chosen(losses, number)
        if counts:
            found.append(number)
    return found


def _by_a_cast(losses: Losses, choice: int) -> bool:
    """Whether one cast of a wider number, which would have been there to compare by, spoils what is compared."""
    p = losses.of[choice]
    cast = led_to(losses, choice).rounded if p.others >= _OTHERS_BY_CAST and p.apart >= LOST * _APART else -1
    return cast >= 0 and losses.narrowed_by_choice(cast)


def _made_zero(losses: Losses, choice: int) -> int:
    """The program's own cast that makes a good part of the numbers zero that are compared, as the scales of whole
    channels; -1 for none."""
    cast = _narrowed_before(losses, choice)
    return cast if cast in losses.of and losses.of[cast].flushed >= _OTHERS and losses.narrowed_by_choice(cast) else -1


def taken_for_none(losses: Losses) -> list[int]:
    """Forward ops that make a good part of their numbers zero, where the program then puts others in the place of what
    is zero, to divide by them: as for channels of which all weights are zero."""
    return [number for number in _make_zeros(losses) if replaces_zeros(losses.run, number)]


def alone_makes_zeros(losses: Losses, number: int) -> bool:
    """Whether no other line's forward op makes a good part of its numbers zero: with this one computed wider, none
    does."""
    made, line = _make_zeros(losses), lambda n: losses.run.place(losses.run.ops[n]).stack[:1]
    return number in made and {line(n) for n in made} == {line(number)}


def _make_zeros(losses: Losses) -> list[int]:
    made = ((n, p) for n, p in losses.of.items() if p.flushed >= _OTHERS and losses.own(n))
    return [n for n, _ in made if losses.run.ops[n].phase in FORWARD]


def led_to(losses: Losses, choice: int) -> Cause:
    """Where the error began by which an op chooses wrongly."""
    if losses.run.ops[choice].outputs[:1] == ("bool",) and (cast := _made_zero(losses, choice)) >= 0:
        return Cause(cast, "flushed")
    if (cast := _narrowed_before(losses, choice)) in losses.of and not is_cast(losses.run.ops[choice]):
        return Cause(choice, "amplified", cast)
    above = max(losses.sources(choice), key=losses.badness, default=-1)
    enough = KEPT * min(losses.of[choice].apart or 1.0, 1.0)
    cause = losses.began(above) if above >= 0 else Cause(-1, "amplified")
    # beside what is left, a logarithm makes little of the numbers that became zero
    if above >= 0 and max(losses.badness(n) for n in (above, *_became_zero(cause))) >= enough:
        return Cause(cause.rounded, "flushed") if _by_what_is_gone(losses, choice, cause) else cause
    return Cause(choice, "amplified", losses.rounded(choice))


def _became_zero(cause: Cause) -> list[int]:
    """The op that made numbers zero, where that is how a loss began."""
    return [cause.op] if cause.how == "flushed" else []


def _by_what_is_gone(losses: Losses, choice: int, cause: Cause) -> bool:
    """Whether a cast of the program's makes a good part of its numbers zero, and nothing else is wrong with what is
    compared: the error of what is left is less than one rounding."""
    cast, compared = cause.rounded, losses.of[choice]
    gone = cast in losses.of and losses.of[cast].flushed >= _OTHERS and losses.narrowed_by_choice(cast)
    return gone and cause.how == "amplified" and compared.others >= _OTHERS_COMPARED and compared.apart < ROUNDING


def _narrowed_before(losses: Losses, number: int) -> int:
    """The cast by which what an op chooses by was made narrower, after it had been computed; -1 for none. It may have
    been widened since, and a bias added."""
    ops, seen, at = losses.run.ops, {number}, _spoilt_operand(losses, number)
    while at >= 0 and at not in seen:
        seen.add(at)
        op = ops[at]
        if is_cast(op) and op.inputs and narrower(op.outputs[0], op.inputs[0].dtype):
            return at if losses.run.computed(op.inputs[0]) or losses.sources(at) else -1
        if not (losses.run.moves(at) or _is_biased(op)):
            break
        at = _spoilt_operand(losses, at)
    return -1


def _is_biased(op: Op) -> bool:
    """Whether an op adds fewer numbers to others. Noise, of which there are as many, decides as much as they do."""
    made = [i for i in op.inputs if i.dtype in REAL]
    return tagged(op, "sum") and len(made) == 2 and len({prod(i.shape) for i in made}) == 2


def _spoilt_operand(losses: Losses, number: int) -> int:
    """The op that made the operand with the largest error of a sum or a comparison, else the first operand."""
    op = losses.run.ops[number]
    made = [i.producer for i in op.inputs[: None if tagged(op, "sum", "compare", "equal") else 1]]
    error = lambda n: max(
        (losses.of[s].total * losses.of[s].size for s in losses.moved(n) if s in losses.of), default=0
    )
    return max(made, key=error, default=-1)


def _on_bounds(losses: Losses, number: int) -> bool:
    """Whether more integers would be others than errors of their size explain: the numbers lie on whole ones, as times
    divided by their step do, and in every dtype the last bit decides to which side they fall."""
    error = losses.error_before(number)
    return 0.0 <= error * BY_ERROR < losses.of[number].others


def _chosen(losses: Losses, number: int) -> bool:
    """Whether the program goes on with the places that an op found, and not only with the numbers there."""
    users = losses.run.taken(number)
    return not users or any(i.dtype not in REAL for i in users)


def _serves_as_index(losses: Losses, number: int) -> bool:
    """Whether integers, perhaps moved to their origin and limited since, say which numbers are taken or where others
    are put."""
    ops = losses.run.ops
    still = lambda n: is_move(ops[n]) or tagged(ops[n], *_PLACED) and ops[n].outputs[:1] == ("int64",)
    below = ((ops[n], taken) for n, taken in losses.run.below([number], still, FAR))
    used = lambda op, taken: any(i.dtype in REAL for i in op.inputs) or 1 in taken
    return any(tagged(op, "picks", "places") and used(op, taken) for op, taken in below)


def _tells_apart(losses: Losses, number: int) -> bool:
    """Whether things are told apart by integers of rounded numbers. What was an integer before it was rounded is told
    where that was (``integers``)."""
    rounded = losses.rounded(number) if tells_apart(losses.run, number) else -1
    return rounded >= 0 and all(i.dtype in REAL for i in losses.run.ops[rounded].inputs)


_PLACED = "sum", "difference", "lower_bound", "upper_bound", "picks"
"""Tags of what places go through until they are used."""


def _counts_out(losses: Losses, number: int) -> bool:
    """Whether integers that a program made of float32 numbers are places, whose distances it takes or which it reads
    one by one, and are whole ones away. Samples of sound in 32 bits are as far away, and nobody hears it. Of sums of
    integers, it depends on what is left of them (``whole_sums``)."""
    run = losses.run
    if number in losses.in_16_bits or losses.error_before(number) < _WHOLE or sum_of_integers(run, number) >= 0:
        return False
    still = lambda n: is_move(run.ops[n])
    below = [n for n, _ in run.below([number], still, FAR) if not still(n) or tagged(run.ops[n], "observed")]
    return any(tagged(run.ops[n], "difference", "observed") for n in below)


def merged_ranks(losses: Losses) -> list[int]:
    """Casts to 16 bits that make many neighbours equal, by whose differences the program ranks them: those are
    wrong, or too many to be computed again."""
    differences = (n for n, op in enumerate(losses.run.ops) if tagged(op, "difference"))
    differences = (n for n in differences if n not in losses.of or losses.of[n].lost_in_all >= KEPT)
    casts = dict.fromkeys(ranked(losses, n) for n in differences)
    return [n for n in casts if n in losses.of and losses.of[n].merged >= KEPT]


def ranked(losses: Losses, difference: int) -> int:
    """The cast to 16 bits of computed numbers that an op subtracts from each other, wherever they were put since,
    to ask which is larger; -1 for none."""
    op = losses.run.ops[difference]
    if not tagged(op, "difference") or len(op.inputs) != 2 or op.phase not in FORWARD:
        return -1
    one, other = (_stored(losses, i.producer) for i in op.inputs)
    if one < 0 or one != other:
        return -1
    compares = lambda n: tagged(losses.run.ops[n], "compare", "equal")
    return one if any(compares(n) for n, _ in losses.run.below([difference], losses.scales)) else -1


def _stored(losses: Losses, number: int) -> int:
    """The cast of the program's to 16 bits of computed numbers, of which an op only picks some; -1 for none."""
    for above in graph.first_operands(losses.run.ops, number):
        op = losses.run.ops[above]
        if is_cast(op) and op.outputs[:1] in (("bfloat16",), ("float16",)):
            return above if losses.narrowed_by_choice(above) else -1
        if not (losses.run.moves(above) or tagged(op, "picks", "join")):
            return -1
    return -1


def searched_sums(losses: Losses) -> list[int]:
    """Forward ops that make running sums in 16 bits, or cast them to it, which are searched for places, where many
    of the sums are equal to the next one: what stands there is never found, as the rare tokens of a cumulative
    distribution."""
    return [
        number
        for number, p in losses.of.items()
        if p.merged >= _OTHERS
        and any(tagged(losses.run.ops[n], "running") for n in losses.moved(number))
        and p.introduced >= LOST * p.total
        and losses.run.ops[number].outputs[:1] in (("bfloat16",), ("float16",))
        and losses.run.ops[number].phase in FORWARD
        and any(tagged(losses.run.ops[n], "searches") for n, _ in losses.run.below([number], losses.scales))
    ]


def coarse_draws(run: Run) -> Iterable[Finding]:
    """DT204: random numbers between 0 and 1 that are drawn in 16 bits, go through a logarithm or a quotient, and are
    compared with many others of their kind. The largest of n such numbers comes from a draw within 1/n of a bound, and
    there are none between a bound and the last bit: Gumbel noise in bfloat16 ends at 5.5. Or they choose among a few
    again and again, some of which are as far from the others as the noise reaches."""
    for number, op in enumerate(run.ops):
        if not (tagged(op, "between_0_and_1") and op.outputs[:1] and op.outputs[0] in HALF and op.phase in FORWARD):
            continue
        dtype = op.outputs[0]
        poles = {n for n, _ in run.below([number], lambda n: _shapes(run, n), FAR) if run.is_pole(n)}
        below = [n for n, _ in run.below(poles, lambda n: _shapes(run, n), FAR)]
        least, reach = _OF_DRAWS * 2.0 ** DTYPES[dtype].digits, DTYPES[dtype].digits * log(2)
        far = any(_beside(run, n, {*poles, *below}) >= reach for n in below)
        chooses = [n for n in below if tagged(run.ops[n], "largest", "order") and run.ops[n].outputs[:1] != ("bool",)]
        chosen = next((n for n in chooses if _compared(run, n) >= least), -1)
        rare = next((n for n in chooses if far and prod(run.ops[n].shape) >= _AGAIN * least), -1)
        if max(chosen, rare) < 0:
            continue
        culprit = run.result(number, None)
        if not writes(op):  # it could have named another dtype than the tensor that it is like
            culprit = replace(culprit, origin=Origin("factory", None, op.op, run.place(op)))
        born = culprit.origin
        edit = editing.at_birth(run.recording, born.kind, born.place, "float32")
        fix = advise(born.place, "draw them in float32", edits=edit)
        fix = born_otherwise(run, fix, {run.event_of(number): "float32"})
        said = f"between 0 and 1, draws in {dtype} are 1/{2 ** DTYPES[dtype].digits:,} apart"
        title = f"random numbers drawn in {dtype} are too coarse for what is chosen by them"
        end, largest = run.ops[max(chosen, rare)], "and the largest come from the ends"
        notes = (f"`{end.op}` compares {_compared(run, chosen):,} of them, {largest}",)
        if chosen < 0:
            notes = (
                f"`{end.op}` chooses {prod(end.shape):,} times, {largest}: what they do not reach is never chosen",
            )
        yield found_at(run, end, "DT204", culprit, fix, made=dtype, said=said, title=title, notes=notes)


def _beside(run: Run, number: int, noise: set[int]) -> float:
    """The largest of the numbers to which an op adds noise, and 0 for another op."""
    sides = run.ops[number].inputs if tagged(run.ops[number], "sum") else ()
    others = [i.producer for i in sides if i.producer not in noise]
    return max((run.peaks.get(n, 0.0) for n in others), default=0.0) if len(others) < len(sides) else 0.0


def _shapes(run: Run, number: int) -> bool:
    return run.moves(number) or tagged(run.ops[number], "pole", *_SHAPED)


def _compared(run: Run, number: int) -> int:
    """Among how many numbers an op chooses, each time."""
    op = run.ops[number]
    given = op.inputs[0].shape
    return given[-1] if len(given) == len(op.shape) and given else prod(given) // max(prod(op.shape), 1)
