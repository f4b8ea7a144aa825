"""Measured damage, in a run that was also computed in higher precision: all value-based findings, from one comparison.

:mod:`.losses` says which results count and where a loss began. The kind follows from what the op did there: it made
numbers infinite (DT301) or zero (DT302), a whole gradient zero (DT305), a table too coarse (DT204), or it lost most
digits in another way (DT308). What optimizer steps did to weights (DT303, DT304), and small changes to tensors that the
program keeps (DT307), are compared with what they would have done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf, prod

from .. import graph
from ..records import FORWARD, Compared, Event, Finding, Fix, Op, Place, Precision
from ..source import editing
from ..tables.dtypes import COMPLEX, COUNTERPART, DTYPES, FLOATING, NARROW, REAL, wider
from ..tables.english import listed, quoted, share
from ..tables.operators import is_cast, is_move, name_of, tagged, writes
from . import averages, decisions, flows, narrow_tables, titles, trials
from .advice import advise
from .blame import Damaged, Decision, decided, event_born, event_of_output, given_up
from .case import short
from .checks import born_otherwise
from .infinities import scaled
from .kept_wide import compute_wide, from_birth, keep_wide, scale_loss, wide_here
from .losses import KEPT, LOST, ROUNDING, Cause, Losses
from .lost_steps import lost_gradients
from .run_facts import Run
from .silent_findings import found_at, tensor_of

_CODES = {"infinite": "DT301", "flushed": "DT302", "stopped": "DT307"}
NOTABLE = 32 * ROUNDING
"""An eighth: the error that one op alone adds, at once. The roundings of a deep network add up to less."""
_SPOTTED = 0.25
"""The same for a sample: twice as much, because one batch of small tensors shows less than a run."""
_IN_FLOAT32 = 4 * ROUNDING
"""The same where nothing is in 16 bits: a hundred thousand roundings."""


def find(run: Run) -> Iterable[Finding]:
    """The findings of every value-based kind."""
    if not run.recording.precisions:
        return
    losses, causes = _in_reference(run)
    tables = list(narrow_tables.measured(losses))
    yield from tables
    sums = averages.find(run)
    known = _tensors((*tables, *sums)) | {f.site.stack[:1] for f in sums} - {()}
    results = list(_beyond(_of_causes(losses, causes, known), known))
    yield from results
    told = {(f.code, tensor_of(f)) for f in results}
    gradients = _gradients(losses, lost_gradients(run.recording))
    yield from (f for f in _beyond(gradients, known) if (f.code, tensor_of(f)) not in told)


def sampled(run: Run) -> Iterable[Finding]:
    """DT301, DT302 and DT308 for results that lost what they should hold, DT204 for tables whose entries are equal:
    small ops of the first steps that were also computed in higher precision.

    Only results of the forward pass count: what the program reads, returns or decides by. And only the first of several
    losses on one way is shown, because what is computed from it is lost as well.
    """
    losses, causes = _in_sample(run)
    tables = list(narrow_tables.measured(losses, narrow_tables.is_spoilt, counted=True))
    yield from tables
    known = _tensors(tables)
    yield from _beyond(_of_causes(losses, causes, known), known)


def to_try(run: Run) -> list[trials.Asked]:
    """What to try, for each result that lost what it should hold, when the run has ended."""
    return [one for losses, causes in (_in_reference(run), _in_sample(run)) for one in trials.to_try(losses, causes)]


def _in_reference(run: Run) -> tuple[Losses, dict[Cause, int]]:
    losses = Losses(run, run.recording.precisions)
    return losses, _causes(losses, NOTABLE)


def _in_sample(run: Run) -> tuple[Losses, dict[Cause, int]]:
    followed = {p.op for p in run.recording.precisions}
    losses = Losses(run, [p for p in run.recording.spot_checks if p.op not in followed])
    return losses, _first(run, _causes(losses, _SPOTTED))


def _first(run: Run, causes: dict[Cause, int]) -> dict[Cause, int]:
    """The causes whose operands no other cause has spoilt."""
    ops = {cause.op for cause in causes}
    above = lambda op: {*graph.ops_above(run.ops, [i.producer for i in run.ops[op].inputs])} - {op}
    return {cause: number for cause, number in causes.items() if not above(cause.op) & ops}


# ---------------------------------------------------------------- forward: the results of the program


def _tensors(findings: Iterable[Finding]) -> set[tuple[object, ...]]:
    """The lines where the tensors to blame got their dtypes."""
    known: set[tuple[object, ...]] = {tensor_of(f) for f in findings}
    return known - {()}


def _beyond(findings: Iterable[Finding], known: set[tuple[object, ...]]) -> Iterable[Finding]:
    """Those that say more than findings about tables and sums. ``known``: the lines that these name."""
    for finding in findings:
        if finding.code != "DT308" or not {tensor_of(finding), finding.site.stack[:1]} & known:
            yield finding


def _causes(losses: Losses, least: float) -> dict[Cause, int]:
    """Where losses began that reach a result of the program, each with the worst such result. ``least``: the error of a
    result that counts, relative to it, where 16 bits take part."""
    found = _of_ends(losses, least, set(losses.results)) or _of_ends(losses, _SPOTTED, _going_on(losses), among=True)
    for cause, number in _known_ways(losses):
        found.setdefault(cause, number)
    return found


def _going_on(losses: Losses) -> set[int]:
    """Ops in or after 16 bits whose results are a state that went on long after it was last looked at: more was lost in
    the end."""
    early = (n for n, p in losses.of.items() if p.calls < LOST * losses.run.ops[n].count)
    return {n for n in early if n in losses.in_16_bits and losses.comes_back(n) and losses.compounds(n)}


def _of_ends(losses: Losses, least: float, ends: set[int], *, among: bool = False) -> dict[Cause, int]:
    """The same for ``ends`` as the results of the program, and what becomes infinite on the way to any; ``among``: only
    for those, and where 16 bits take part."""
    found: dict[Cause, int] = {}
    for number, p in losses.of.items():
        if among and (number not in ends or p.total < least):
            continue
        if not (p.spoiled or p.total >= _IN_FLOAT32) or losses.run.ops[number].phase not in FORWARD:
            continue
        cause = losses.began(number)
        if losses.finds_scale(cause) or losses.on_bounds(cause.op):
            continue
        shows = _of_one_cast(losses, cause) or losses.compounds(cause.op) or decisions.ranked(losses, cause.op) >= 0
        enough = min(least, NOTABLE) if shows and not among else least
        if not p.spoiled and p.total < enough and cause.op in losses.in_16_bits and not _is_of_float32(losses, cause):
            continue
        if _counts(losses, number, cause, number in ends):
            known_as = found.get(cause)
            if known_as is None or p.total > losses.of[known_as].total:
                found[cause] = number
    return found


def _is_of_float32(losses: Losses, cause: Cause) -> bool:
    """Whether what shows is the rounding of an op in float32, beside which that to 16 bits before it is little."""
    known = cause.how == "amplified" and cause.rounded >= 0
    return known and losses.run.ops[cause.rounded].outputs[0] == "float32" and not losses.shows_16_bits(cause.op)


def _known_ways(losses: Losses) -> Iterator[tuple[Cause, int]]:
    """Causes that are known by what an op is for, and not by the error of a result alone."""
    for number in decisions.choices(losses):
        yield decisions.led_to(losses, number), number
    for number in losses.mere_rounding:
        yield Cause(number, "amplified", losses.stored_before(number)), number
    for number in (*decisions.searched_sums(losses), *decisions.merged_ranks(losses)):
        yield Cause(number, "merged"), number
    for number in _lost_numbers(losses):
        yield losses.began(number), number
    for number in losses.gone_at_poles:
        yield losses.began(number) if losses.own(number) else Cause(number, "flushed"), number
    for number in decisions.taken_for_none(losses):
        yield Cause(number, "flushed"), number
    for number in _inexact_counts(losses):
        yield Cause(number, "miscounted"), number
    for number in sorted(losses.stopped_sums):
        yield Cause(number, "stopped"), number


def _inexact_counts(losses: Losses) -> list[int]:
    """Forward ops in 16 bits that add up whole numbers one after the other, and are not exact: places and limits that
    are counted so move by whole steps."""
    ops = losses.run.ops
    inexact = (n for n, p in losses.of.items() if p.introduced > 0 and not p.spoiled and tagged(ops[n], "running"))
    narrow = (n for n in inexact if ops[n].outputs[:1] in (("bfloat16",), ("float16",)) and ops[n].phase in FORWARD)
    return [n for n in narrow if _whole(losses.run, n)]


def _whole(run: Run, number: int) -> bool:
    """Whether an op's first operand holds whole numbers: it was rounded to them, or cast from integers."""
    for above in list(graph.first_operands(run.ops, number))[1:]:
        op = run.ops[above]
        if tagged(op, "whole") or is_cast(op) and op.inputs and op.inputs[0].dtype not in FLOATING:
            return True
        if not (is_move(op) or tagged(op, "exact")):
            break
    return False


def _lost_numbers(losses: Losses) -> list[int]:
    """Single numbers that are computed from the program's own numbers alone, and of which nothing is right, such as one
    minus a decay; or less and less, such as a rate that a factor should make smaller."""
    run = losses.run
    wrong = lambda n, p: p.lost_in_all >= LOST or p.total >= NOTABLE and losses.compounds(n)
    lost = (n for n, p in losses.of.items() if wrong(n, p) and not p.spoiled and n in losses.in_16_bits)
    single = (n for n in lost if prod(run.ops[n].shape) == 1 and run.ops[n].phase in FORWARD and not losses.own(n))
    single = (n for n in single if not losses.asks_for_rounding(losses.began(n).op))
    return [n for n in single if narrow_tables.source_of(run, n, narrow_tables.MEASURED_NO_TABLE).pure]


def _of_causes(losses: Losses, causes: dict[Cause, int], known: set[tuple[object, ...]]) -> list[Finding]:
    """One finding for each code and birth. ``known``: the lines that tables and sums name; what rounded there has the
    dtype of another tensor where the finding names that one."""
    found: dict[tuple[object, ...], Finding] = {}
    for cause, number in sorted(causes.items(), key=lambda item: item[0].op):
        cause = trials.decided(losses, number, cause)
        taken = losses.run.of_call(cause.op)
        cause = replace(cause, op=taken) if taken in losses.of else cause
        finding = _at_op(losses, cause, _said_of_result(losses, number, cause), result=number)
        finding = replace(finding, tried=trials.tried(losses, number, cause))
        between = finding.culprit is not None and finding.culprit.dtype not in NARROW and losses.shows_16_bits(cause.op)
        if between and (cause.how == "infinite" or not trials.of_wide(losses, number)):  # it rounds no digit away
            continue
        if finding.code == "DT308" and _made_at(losses.run, cause.rounded) in known:
            continue
        found.setdefault((finding.code, tensor_of(finding)), finding)
    return list(found.values())


def _made_at(run: Run, number: int) -> tuple[object, ...]:
    """The line where what an op made got its dtype; nothing for no op."""
    event = event_of_output(run, number) if number >= 0 else -1
    return graph.place_of(run.recording, run.recording.events[event].place).stack[:1] if event >= 0 else ()


def _counts(losses: Losses, number: int, cause: Cause, ends: bool) -> bool:
    """Whether the loss of a result is damage. A loss that a root or a quotient makes from an infinity is, in any
    case."""
    p = losses.of[number]
    if not ends:
        return cause.how == "infinite" and not p.spoiled and p.total >= LOST
    if flows.never_read(losses.run, number) or not p.spoiled and _decides_alike(losses, number):
        return False
    if p.spoiled:
        return cause.how != "infinite" or not _is_absorbed(losses, number)
    if cause.how != "amplified":
        return True
    if losses.asks_for_rounding(cause.op) or any(one_sided(losses, cause) for one_sided in _ONE_SIDED):
        return False
    if _leaves_only_rounding(losses.run, cause):
        return False
    if losses.cancels(cause.op) or losses.compares_models(cause):
        return losses.goes_through(number, cause)
    return p.total >= LOST or losses.jumps(cause.op) or losses.compounds(cause.op)


def _is_absorbed(losses: Losses, number: int) -> bool:
    """Whether infinities end where others take them, as those of a mask do in a softmax: nothing that is computed from
    them is infinite or wrong."""
    reached, waiting = {number}, [number]
    while waiting:
        users = losses.run.users[waiting.pop()]
        measured = [losses.of[user] for user in users if user in losses.of]
        if not users or any(not p.spoiled and p.total >= LOST for p in measured):
            return False
        on = [user for user in users if user not in losses.of or losses.of[user].spoiled]
        if any(user not in losses.of and not losses.run.moves(user) for user in on):
            return False  # what becomes of them there is not known
        waiting += [user for user in on if user not in reached]
        reached.update(on)
    return True


def _decides_alike(losses: Losses, number: int) -> bool:
    """Whether a result is only compared, such as a difference with a tolerance, and each time as it should be."""
    ops, op = losses.run.ops, losses.run.ops[number]
    decides = lambda n: ops[n].outputs[:1] == ("bool",)
    users = losses.run.users[number]
    if op.op != name_of(op):
        inside = [n for n, other in enumerate(ops) if (other.op, other.place) == (op.op, op.place)]
        if decides(inside[-1]):  # a call of torch's that is made of others, such as isclose
            users = [*filter(decides, inside)]
    measured = [losses.of[n].others for n in users if n in losses.of]
    return bool(measured) and not any(measured) and all(map(decides, users))


def _meets_state(losses: Losses, cause: Cause) -> bool:
    """Whether what a cast rounded off shows only beside a state in its dtype, such as an average, of which nothing
    finer is known."""
    ops, op = losses.run.ops, losses.run.ops[cause.op]
    if cause.rounded < 0 or not is_cast(ops[cause.rounded]) or not tagged(op, "difference"):
        return False
    made = [
        n for i in op.inputs for n in [*losses.moved(i.producer)][-1:] if ops[n].outputs == ops[cause.rounded].outputs
    ]
    least = KEPT * losses.of[cause.rounded].total if cause.rounded in losses.of else 0.0
    return any(writes(ops[n]) and (n not in losses.of or losses.of[n].total < least) for n in made)


def _meets_rounded(losses: Losses, cause: Cause) -> bool:
    """Whether what float32 rounded off numbers that the program gave shows only beside others that came to float32 from
    elsewhere, such as a file: those are as rounded, and nobody knows by how much."""
    run = losses.run
    if cause.rounded < 0 or losses.shows_16_bits(cause.op) or not tagged(run.ops[cause.rounded], "conversion"):
        return False
    sides = [i.producer for i in run.ops[cause.op].inputs if i.dtype in REAL and i.shape]
    above = {n for side in sides for n in {side, *graph.ops_above(run.ops, [side])}}
    unknown = lambda n: n < 0 or n not in losses.of and tagged(run.ops[n], "conversion")
    return any(unknown(n) or any(i.producer < 0 for i in run.ops[n].inputs) for n in above)


_ONE_SIDED = _meets_rounded, _meets_state
"""Differences of which only one side was computed in higher precision: what they leave is no error of that side."""


def _said_of_result(losses: Losses, number: int, cause: Cause) -> str:
    """What a wrong result is, in words. ``number``: its op, which may be the one that went wrong itself."""
    p, op = losses.of[number], losses.run.ops[number]
    at = short(losses.run.place(op))
    where = f" of {op.module}" if op.module else f" ({at})" if at and number != cause.op else ""
    result = f"{'later, ' if number != cause.op else ''}the result of {quoted(_called(losses.run, number))}{where}"
    if p.others:
        chosen = f"of what {quoted(op.op)}{where} chooses" if p.apart else f"of the indices from {quoted(op.op)}{where}"
        return f"in higher precision {p.others:.0%} {chosen} would be others"
    if cause.how == "merged" and number in decisions.merged_ranks(losses):
        return f"{p.merged:.0%} of them have no order any more, and what is computed from it ranks them"
    if cause.how == "merged":
        return f"{p.merged:.0%} of the places for which these sums are searched cannot be found"
    if cause.how == "miscounted":
        return f"places and limits that {result} counts are off by whole steps"
    if p.spoiled:
        return f"{result} is infinite or NaN; in higher precision it is finite"
    if cause.how == "flushed" and number == cause.op:
        return "the program puts others in the place of the zeros, to divide by them"
    return f"{result} has an error of {_share(p.total)}"


# ---------------------------------------------------------------- backward: gradients as they meet their weights


def _gradients(losses: Losses, lost: list[Compared]) -> Iterable[Finding]:
    groups: dict[tuple[Cause, bool], list[Compared]] = {}
    for c in lost:
        start = (
            c.op
            if c.op in losses.of
            else max(losses.sources(c.op), key=losses.badness, default=-1)
            if c.op >= 0
            else -1
        )
        if start < 0 or c.spoiled and scaled(losses.run.recording):
            continue
        gone = c.zero >= LOST * c.steps
        if gone and c.op not in losses.of and losses.badness(start) < LOST:
            continue  # what made it zero was not measured, and what led there was right
        groups.setdefault((losses.began(start), gone), []).append(c)
    found: dict[tuple[object, ...], Finding] = {}
    for (cause, gone), members in sorted(groups.items(), key=lambda item: item[0][0].op):
        worst = max(members, key=lambda c: c.size)
        many = titles.shared([worst.name], len(members))
        is_ = "it is 0" if gone else "it is not finite" if worst.spoiled else f"its error is {worst.error:.0%}"
        if not gone and not worst.spoiled and worst.error < LOST:
            is_ = f"{worst.flushed:.0%} of it is 0"
        said = f"{many}: its gradient should be {worst.size:.2g}, but {is_}"
        finding = _at_op(losses, cause, said, gone=gone, named=many)
        found.setdefault((finding.code, losses.run.ops[cause.op].phase, finding.site.stack[:1]), finding)
    reported: set[str] = set()
    for finding in found.values():  # one cause in backward affects all gradients after it, and makes some of them zero
        what = "DT302" if finding.code == "DT305" else finding.code
        yield finding if what not in reported else replace(finding, severity="note")
        reported.add(what)


# ---------------------------------------------------------------- one op


def _at_op(
    losses: Losses,
    cause: Cause,
    consequence: str,
    *,
    result: int = -1,
    gone: bool = False,
    named: str = "",
) -> Finding:
    """``result``: the op of the worst result that the cause damages, if that is one of the program."""
    run, op, p = losses.run, losses.run.ops[cause.op], losses.of[cause.op]
    # a whole gradient that is zero is one, however it came about
    code = "DT305" if gone else _CODES.get(cause.how, "DT308")
    blamed = _summed_up(losses, cause.rounded) if cause.rounded >= 0 else cause.op
    damaged = _damaged(losses, cause, blamed)
    decision, made = decided(damaged), damaged.dtype
    beside = [blamed, *losses.rounded_beside(cause)] if cause.rounded >= 0 and blamed != cause.op else []
    # a call rounds in several of its steps: it is one
    rounded = list({_named(run, n): n for n in reversed(beside)}.values())
    added = cause.rounded >= 0 and tagged(run.ops[cause.rounded], "sum")
    begins = [cause.rounded if added and n == blamed else n for n in sorted(rounded)]
    notes = [consequence, *_begins(losses, begins, made)]
    culprit, said = decision.culprit, _said(p, cause, made, _called(run, cause.op))
    if _by_numpy(run, blamed) is not None:
        culprit = replace(culprit, name=f"result of {_called(run, blamed)}")
    return found_at(
        run,
        op,
        code,
        culprit,
        _fix(losses, cause, decision, blamed, sorted(rounded), result),
        begins=decision.begins,
        made=made,
        said=_said_of_cut(losses.of[blamed], made) if _is_cut(losses, blamed) else said,
        title=_title(run, p, cause, made, named if gone else ""),
        notes=tuple(notes),
    )


def _summed_up(losses: Losses, number: int) -> int:
    """What an op adds up that would make its sum wide: the logarithms of probabilities in their dtype, or the larger
    operand, of which a cast gave wider numbers up. Else the op itself."""
    ops, made = losses.run.ops, losses.run.ops[number].outputs[:1]
    if tagged(ops[number], "sum") and made == ("float32",):
        return _larger_cast(losses.run, number)
    if not tagged(ops[number], "total"):
        return number
    for above in list(graph.first_operands(ops, number))[1:]:
        if tagged(ops[above], "log_softmax") and above in losses.of and ops[above].outputs[:1] == made:
            return above
        if not (is_move(ops[above]) or tagged(ops[above], "picks", "product")):
            break
    return number


def _larger_cast(run: Run, number: int) -> int:
    """The cast by which the program gave wider numbers up that make up a sum; the op itself if there is none."""
    sizes = {i.producer: run.peaks.get(i.producer, inf) for i in run.ops[number].inputs}
    larger = max(sizes, key=sizes.__getitem__)
    alone = len(sizes) == 2 and min(sizes.values()) <= _LITTLE * sizes[larger] < inf
    return larger if alone and larger >= 0 and given_up(run, larger) else number


_LITTLE = 2.0**-8
"""The part of a sum that comes from its smaller operand, at most, where the larger one makes the error."""


def _title(run: Run, p: Precision, cause: Cause, made: str, zero: str) -> str:
    """The title where the code's own does not say it; ``zero``: the parameters whose whole gradient is zero."""
    if zero:
        return f"the gradient of {zero} is zero"
    return f"{quoted(run.ops[cause.op].op)} chooses by what {made} cannot tell apart" if p.others else ""


def _by_numpy(run: Run, number: int) -> Event | None:
    """The event of an op that makes a tensor of numbers which NumPy cast before; None for any other op, such as
    ``torch.FloatTensor``, which casts by itself."""
    event = event_of_output(run, number) if name_of(run.ops[number]) == "lift_fresh" else -1
    known = run.recording.events[event] if event >= 0 else None
    return known if known is not None and known.source and (known.told >= 0 or known.how != "factory") else None


def _called(run: Run, number: int) -> str:
    """An op's name; for one that takes numbers of NumPy's or Python's, that of the call."""
    event = event_of_output(run, number) if name_of(run.ops[number]) == "lift_fresh" else -1
    return run.recording.events[event].op if event >= 0 else run.ops[number].op


def _of_one_cast(losses: Losses, cause: Cause) -> bool:
    """Whether a line of the program casts what it had computed in a wider dtype, and an op loses most of it: such a
    cast is nobody's way to compute, and less of its damage counts."""
    mine = cause.rounded >= 0 and given_up(losses.run, cause.rounded)
    return mine and losses.of[cause.op].total >= LOST and not losses.cancels(cause.op)


def _wide_here(run: Run, number: int, site: Place, made: str) -> Fix:
    if wider("float32", made):
        return wide_here(run, number, site)
    instead = "compute it with another formula, such as (a - b)**2 instead of a**2 - 2*a*b + b**2"
    return advise(site, f"cast the operands of {quoted(run.ops[number].op)} to float64 here", others=(instead,))


def _damaged(losses: Losses, cause: Cause, number: int) -> Damaged:
    """What rounded: an op's result; if that is exact, its narrowest operand, which was rounded unseen."""
    run, op, p = losses.run, losses.run.ops[number], losses.of[number]
    parts = (COUNTERPART[d] if d in COMPLEX else d for d in op.outputs)
    made = next((d for d in parts if d in REAL), "")
    event = event_born(run, number, made)
    narrow = min((i for i in op.inputs if i.dtype in REAL), key=lambda i: DTYPES[i.dtype].digits, default=None)
    exact = p.introduced < LOST * p.total and wider(made, narrow.dtype) if made and narrow is not None else not made
    if exact and narrow is not None:
        made, event = narrow.dtype, narrow.event
    known = _by_numpy(run, number)
    made = known.source[0] if known is not None else made
    rounded = cause.how not in ("infinite", "flushed")
    carried, grows = losses.comes_back(number), cause.how in ("amplified", "miscounted") and losses.grows(number)
    return Damaged(run, number, made, event, rounded, carried, grows)


def _said(p: Precision, cause: Cause, made: str, op: str) -> str:
    facts = DTYPES.get(made)
    if cause.how == "infinite":
        end = f": the largest {made} is {facts.largest:.5g}" if facts else ""
        become = "number becomes" if p.infinite == 1 else "numbers become"
        return f"{p.infinite:,} {become} infinite or NaN, but not in higher precision{end}"
    if cause.how == "flushed":
        end = f": the smallest {made} is {facts.smallest:.0e}" if facts else ""
        if p.vanished > p.flushed:
            return f"in {p.vanished:.0%} of its calls all numbers are zero{end}"
        return f"{p.flushed:.0%} of the numbers ({p.size:.1g} on average) become zero{end}"
    if cause.how == "miscounted" and facts:
        return f"{quoted(op)} counts beyond {2**facts.digits:,}, where {made} does not hold every whole number"
    if cause.how == "merged":
        return f"{p.merged:.0%} of the results of {quoted(op)} are equal to the next one"
    if cause.how == "stopped":
        error = _share(p.introduced)
        return f"{quoted(op)} adds so many numbers to one place that later ones are lost: the error is {error}"
    if p.others:
        by = f"differences with an error of {_share(p.apart)}" if p.apart else "rounded numbers, which serve as indices"
        return f"{quoted(op)} chooses by {by}" if p.apart else f"{quoted(op)} makes integers of {by}"
    if cause.how == "rounded":
        return f"{quoted(op)} itself loses {p.lost:.0%} of the numbers"
    return f"{quoted(op)} gets slightly rounded numbers, and its result has an error of {_share(p.total)}"


def _is_cut(losses: Losses, number: int) -> bool:
    """Whether an op is a cast that loses what does not fit its dtype, because a call before it has limited the numbers
    to that."""
    run, op, p = losses.run, losses.run.ops[number], losses.of.get(number)
    limits = op.inputs[0].producer if is_cast(op) and op.inputs else -1
    if p is None or limits < 0 or name_of(run.ops[limits]) != "clamp" or op.outputs[0] not in DTYPES:
        return False
    largest = DTYPES[op.outputs[0]].largest
    return p.introduced >= NOTABLE and run.peaks.get(limits, largest) >= largest


def _said_of_cut(p: Precision, made: str) -> str:
    return f"numbers are cut off at {DTYPES[made].largest:.5g}, the largest {made}: an error of {_share(p.introduced)}"


def _share(error: float) -> str:
    """An error relative to the number, in words that are readable even where nothing is right."""
    return share(error) if error < 1 else f"{error:{',.0f' if error >= 10 else '.2g'}} times its value"


def _fix(losses: Losses, cause: Cause, decision: Decision, number: int, rounded: list[int], result: int) -> Fix:
    """What to change: where the dtype was decided, if that reaches all that rounded, else how these are computed.
    ``number``: the op that is to blame, or whose dtype is; ``result``: that of the damaged result, or -1."""
    run = losses.run
    op, made = run.ops[number], decision.culprit.dtype
    site, origin = run.place(op), decision.culprit.origin.place
    if (known := _by_numpy(run, number)) is not None:
        wider_there = from_birth(run, decision.culprit, decision.event, [number]) if known.told >= 0 else None
        return wider_there or advise(origin, "keep these numbers in the dtype that they have before NumPy casts them")
    wide = "float32" if wider("float32", made) else "float64"
    if cause.how == "infinite" and not decision.itself:
        cast = any(i.dtype in REAL and wider(i.dtype, made) for i in op.inputs)
        return keep_wide(run, number, decision.culprit, decision.event, cast)
    if cause.how == "flushed" and op.phase in ("backward", "recompute"):
        return scale_loss(run, site, decision.culprit)
    if _is_cut(losses, number):
        largest = f"x.abs().amax() / {DTYPES[made].largest:.5g}"
        return advise(site, f"scale these numbers to what {made} holds: divide them by {largest}, and keep that factor")
    own_cast = is_cast(op) and graph.runs_own_line(run.recording, op) and wider(op.inputs[0].dtype, made)
    if own_cast and origin.stack[:1] == site.stack[:1] and len(rounded) < 2:
        return _uncast(run, number, op, site)
    beside = _states_beside(losses, cause, max(result, cause.op), decision)
    if op.phase in FORWARD and (fix := from_birth(run, decision.culprit, decision.event, rounded or [number], beside)):
        return fix
    if len(rounded) > 1:
        return _both_wide(run, cause.op, rounded, wide)
    if own_cast:
        return _uncast(run, number, op, site)
    if decision.itself:
        fix, of_range = _wide_here(run, number, origin, made), cause.how in ("infinite", "flushed")
        # bfloat16 has the range of float32, and fewer digits
        untrue = cause.how == "miscounted" or made == "float16" and not of_range
        return replace(fix, alternatives=()) if untrue else fix
    if decisions.alone_makes_zeros(losses, number) and (fix := compute_wide(run, number, ())).edits:
        return fix
    compute = f"compute {quoted(op.op)} and what uses its result in {wide}, and cast back afterwards"
    if decision.event < 0 or decision.event in run.events_of_weights or origin.stack[:1] == site.stack[:1]:
        return advise(site, compute)
    return advise(origin, f"keep these values in {wide} from here on", others=(compute,))


def _states_beside(losses: Losses, cause: Cause, result: int, decision: Decision) -> list[int]:
    """The births of the other sums that are carried from call to call and that the damaged result is computed from,
    where a difference leaves little of them, as of that of squares and the squared sum in a variance: with one of them
    alone in a wider dtype, what the others round off is left."""
    run, found = losses.run, list[int]()
    if cause.how != "amplified" or not tagged(run.ops[cause.op], "difference"):
        return found
    for n in losses.largest_above(result):
        if tagged(run.ops[n], "sum") and losses.comes_back(n):
            born = decided(_damaged(losses, cause, n))
            known = born.event not in (-1, decision.event, *found, *run.events_of_weights)
            if known and born.culprit.dtype == decision.culprit.dtype:
                found.append(born.event)
    return found


def _uncast(run: Run, number: int, op: Op, site: Place) -> Fix:
    """Without a cast of the program's own."""
    wide, used = op.inputs[0].dtype, run.used_as(number)
    if used and sum(o.place == op.place and is_cast(o) for o in run.ops) > 1:
        return advise(site, f"keep {quoted(used)} in {wide}", "this line casts all of its module")
    given = run.operand(op, 0, None).shown
    event = event_of_output(run, number)
    events = [event, *run.beside(event)] if event >= 0 else []
    places = [site, *(graph.place_of(run.recording, run.recording.events[n].place) for n in events[1:])]
    edits = [editing.uncast(run.recording, place) for place in places] if events else []
    known = tuple(edit for edit in edits if edit is not None)
    what = "leave this cast out" if len(places) == 1 else "leave the casts of this line out"
    left = advise(site, what, f"keep {quoted(given)} in {wide}", edits=known if len(known) == len(places) else ())
    return born_otherwise(run, left, dict.fromkeys(events, wide))


# ---------------------------------------------------------------- masks that are added


_GONE = 746.0
"""The exponential of minus this is zero even in float64."""
_DETAIL = 0.125
"""Logarithms that are less than this apart have nearly the same exponential."""


def _leaves_only_rounding(run: Run, cause: Cause) -> bool:
    """Whether an exponential made much of what was rounded as a mask was added.

    That happens in rows that are masked as a whole, such as those of padding: nothing else is left of them, and nobody
    uses them. Without the mask, the rounding must be harmless.
    """
    if cause.rounded < 0 or not tagged(run.ops[cause.op], "softmax", "log_softmax", "exponential"):
        return False
    added = run.ops[cause.rounded]
    if not tagged(added, "sum") or not added.outputs or added.outputs[0] not in DTYPES:
        return False
    others = [i for i in added.inputs if i.producer < 0 or not narrow_tables.source_of(run, i.producer).pure]
    rounding = DTYPES[added.outputs[0]].rounding
    harmless = all(run.peaks.get(i.producer, 0.0) * rounding < _DETAIL for i in others)
    return len(others) < len(added.inputs) and run.peaks.get(cause.rounded, 0.0) >= _GONE and harmless


# ---------------------------------------------------------------- several rounded operands


def _begins(losses: Losses, rounded: list[int], made: str) -> list[str]:
    """In which ops an amplified error begins, in words. ``made``: the dtype that they round to."""
    if not rounded:
        return []
    several = len(rounded) > 1
    ops = listed([_named(losses.run, n) if several else quoted(_called(losses.run, n)) for n in rounded])
    errors = listed([f"{losses.of[n].introduced:.1%}" for n in rounded])
    if several:
        to = f" to {made}" if all(made in losses.run.ops[n].outputs for n in rounded) else ""
        return [f"the error begins in {ops}, which round{to} (errors of {errors})"]
    if _by_numpy(losses.run, rounded[0]) is not None:
        return [f"the error begins where NumPy casts these numbers to {made} (an error of {errors})"]
    return [f"the error begins in {ops}, which rounds to {made} (an error of {errors})"]


def _named(run: Run, number: int) -> str:
    name, at = quoted(_called(run, number)), short(run.place(run.ops[number]))
    return f"{name} ({at})" if at else name


def _both_wide(run: Run, number: int, rounded: list[int], wide: str) -> Fix:
    """Several operands of an op were rounded: it does not help to compute one of them in a wider dtype."""
    op, ops = run.ops[number], listed([_named(run, n) for n in rounded])
    why = f"{quoted(op.op)} takes what {'both' if len(rounded) == 2 else 'all of them'} make"
    return advise(run.place(op), f"compute {ops} in {wide}", why, named=run.place(run.ops[rounded[0]]))
