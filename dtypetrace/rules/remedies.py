"""What to change: the strategies to repair a collision, in order.

A dtype that was an oversight is changed where it was born, other dtypes where they are used. What must stay wide is not
narrowed where it is computed; its result is cast back. What an optimizer trains is not cast at all. The first strategy
with an answer is the remedy that a finding shows; ``dtypetrace fix`` tries it, then those after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ..parts import attempt
from ..records import Fix
from . import alternatives, at_birth, at_use, checks, coded, on_path
from .advice import without_diff
from .case import Case
from .case import short as short
from .principles import name_of

Strategy = Callable[[Case], Iterable[Fix]]

STRATEGIES: tuple[Strategy, ...] = (
    at_use.fused_path,
    at_use.integer_parameter,
    coded.codes,
    at_use.imaginary_part,
    at_use.half_gradients,
    at_use.made_complex,
    at_use.into_widened,
    at_use.asked_in_the_call,
    at_use.follows,
    at_use.cut_in_the_call,
    at_use.divided_into,
    at_use.autocast_was_on,
    at_use.hand_written_backward,
    at_birth.default_dtype,
    at_use.trained_under_autocast,
    at_use.leaves_torch,
    at_birth.cast_of_all,
    at_use.left_cast,
    at_use.assigned,
    at_use.inverted,
    at_use.right_elsewhere,
    at_use.scalar_limit,
    at_use.bracketed,
    at_use.no_kernel,
    at_birth.unknown,
    at_birth.leaves_autocast,
    at_use.frozen_half,
    at_birth.library_value,
    at_birth.before_optimizer,
    at_birth.restored_state,
    at_use.leaves_part,
    at_use.wide_island,
    at_use.kept_wide,
    at_birth.ready_table,
    alternatives.needless,
    at_birth.like_what_it_meets,
    at_birth.birth,
)
"""What a finding may show, in the order in which they are tried."""

FURTHER: tuple[Strategy, ...] = (
    on_path.computed_in_float32,
    on_path.on_its_path,
    on_path.written_value,
    on_path.at_call,
    on_path.like_the_other,
    on_path.where_it_is_complete,
    on_path.at_callers,
    on_path.loaded_values,
    on_path.own_lines,
)
"""What ``fix`` tries after all the others."""

SHOWN: tuple[Strategy, ...] = (
    *STRATEGIES,
    on_path.where_it_widened,
    on_path.like_the_other,
    on_path.at_call,
    on_path.where_it_is_complete,
    on_path.at_callers,
    on_path.written_in_backward,
)
"""What a finding may show; what is cast in the refused call comes last."""

FINAL: frozenset[Strategy] = frozenset(
    {coded.codes, at_use.imaginary_part, at_use.scalar_limit, at_use.bracketed, at_use.kept_wide}
)
"""Nothing else may be tried after these: codes and complex numbers are not cast, a number has no dtype to change, what
is compared is not either, and an average must not be narrowed."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One change that may repair a collision, and the strategy that proposes it."""

    strategy: str
    fix: Fix


def candidates(case: Case, strategies: Sequence[Strategy] = (*STRATEGIES, *FURTHER)) -> Iterator[Candidate]:
    """Every change that may repair a collision, the best first. A strategy's second and later ones are numbered."""
    for strategy in strategies:
        found: tuple[Fix, ...] = attempt(f"the remedy {name_of(strategy)!r}", partial(_proposed, strategy, case), ())
        for number, fix in enumerate(found):
            name = name_of(strategy)
            yield Candidate(f"{name} {number + 1}" if number else name, fix)
        if found and strategy in FINAL:
            return


def _proposed(strategy: Strategy, case: Case) -> tuple[Fix, ...]:
    return tuple(strategy(case))


def remedy(case: Case) -> Fix | None:
    """The best change, which a finding shows, and what the libraries offer whose functions led to it."""
    best = _best(case)
    return alternatives.named(case, best) if best is not None else None


def _best(case: Case) -> Fix | None:
    """The first change whose edits nothing objects to, else the best one in words."""
    best: Fix | None = None
    doubt = ""
    for fix in (candidate.fix for candidate in candidates(case, SHOWN)):
        if best is not None and not fix.edits:
            continue
        why = attempt("the check of a remedy", partial(checks.objection, case, fix), "its check failed")
        if fix.edits and not why:
            return replace(fix, checked=checks.done(case, fix))
        if best is None:
            best, doubt = fix, why
            if not fix.edits and fix.kind not in ("dtype", "cast"):
                break  # no cast does what these words say
    if best is None or not doubt:
        return best
    return without_diff(best, doubt)
