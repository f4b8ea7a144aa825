"""What keeps a parameter from learning, found from measurements alone.

The facts: whether a step wrote, whether weights moved, what is in the optimizer's state, how fine the dtype is next to
the weights. The optimizer's name decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ..records import State, Update
from ..tables.dtypes import DTYPES, HALF, REAL
from ..tables.english import listed, quoted

LEAST_STEPS = 2
"""Two, because in the first step the gradient of a LoRA's down matrix is rightly zero, and warm-up may begin at
zero."""
LEAST_MOVED = 0.5
"""With a suitable dtype, all but a few per cent of the weights move; half is far below that."""
STATE_LOST = 0.05
"""The share of an optimizer's state that is zero where the gradient is not: with a suitable dtype it is almost none."""
FAR = 5.0
"""Steps of at least this many learning rates, from a state that is partly zero, overshoot: an adaptive step is about
one learning rate long."""
LONGER = 1.5
"""The same ratio to the steps of the same optimizer with a wide state: then only rounding can be another reason."""
_MOST_SAMPLED = 1024
"""Elements of a parameter that are sampled (``capture.updates``)."""


@dataclass(frozen=True, slots=True)
class Mechanism:
    """What keeps a parameter from learning: a short name, and the facts that show it."""

    name: str
    """One of ``MECHANISMS``."""
    facts: tuple[str, ...] = ()


HEALTHY = Mechanism("healthy")
MECHANISMS = (
    "refused",
    "state underflow",
    "overshoot",
    "broken",
    "untouched",
    "below resolution",
    "gradient underflow",
    "no learning rate",
    "scaler backing off",
    "broken gradient",
    "not in the optimizer",
    "frozen",
    "no gradient",
    "zero gradient",
    "decay only",
    "one step",
    "healthy",
)
"""What can be wrong with a parameter, ordered so that earlier ones explain later ones: a LoRA's down matrix gets no
gradient while its up matrix stays zero for any reason."""


def mechanism(update: Update) -> Mechanism:
    """What the measured steps show for one parameter: the first check that has an answer."""
    return next((found for check in _CHECKS if (found := check(update)) is not None), HEALTHY)


# ---------------------------------------------------------------- one check after the other


def _frozen(u: Update) -> Mechanism | None:
    return Mechanism("frozen", ("its requires_grad is False",)) if u.frozen else None


def _not_held(u: Update) -> Mechanism | None:
    return None if u.held else Mechanism("not in the optimizer", ("no parameter group of the optimizer holds it",))


def _backing_off(u: Update) -> Mechanism | None:
    if not u.skipped or u.steps or u.zero >= LEAST_STEPS or u.scale <= 1:
        return None
    fact = f"the loss scaler left out {u.skipped} steps, because gradients were infinite at its scale (now {u.scale:g})"
    return Mechanism("scaler backing off", (fact,))


def _no_gradient(u: Update) -> Mechanism | None:
    if u.gradient_dtype:
        return None
    return Mechanism("no gradient", ("no step found a gradient on it: what it computes does not reach the loss",))


def _broken(u: Update) -> Mechanism | None:
    if not u.broken:
        return None
    lost = lost_state(u) or _lost_eps(u)
    sampled = max(u.reached, u.broken, min(_MOST_SAMPLED, math.prod(u.shape)))
    fact = (
        f"{u.broken:,} of {sampled:,} checked numbers became infinite or NaN in a step; "
        "before it, weight and gradient were finite"
    )
    return Mechanism("state underflow" if lost else "broken", (*lost, fact))


def _no_learning_rate(u: Update) -> Mechanism | None:
    return Mechanism("no learning rate", ("its learning rate is 0",)) if u.lr == 0 and u.moved == 0 else None


def _no_good_gradient(u: Update) -> Mechanism | None:
    if u.steps:
        return None
    if u.broken_gradient:
        fact = f"its gradient held an infinity or NaN in each of {u.broken_gradient} steps"
        return Mechanism("broken gradient", (fact,))
    return Mechanism("zero gradient", (f"its gradient was exactly zero in {u.zero} steps",))


def _not_moved(u: Update) -> Mechanism | None:
    if u.moved >= LEAST_MOVED * u.reached:
        return None
    facts = (f"{_share(u.moved, u)} of the numbers whose gradient is not zero changed in {u.steps} measured steps",)
    if u.steps < LEAST_STEPS:
        return Mechanism("one step", facts)
    lost = lost_state(u)
    if not u.written and u.moved == 0:
        name = "state underflow" if lost else "untouched"
        return Mechanism(name, (f"step() changed no number in {u.steps} measured steps", *lost))
    if lost and u.moved == 0:
        return Mechanism("state underflow", (*facts, *lost))
    return Mechanism("below resolution", (*facts, *_resolution(u)))


def _overshoot(u: Update) -> Mechanism | None:
    lost = lost_state(u)
    if u.lr <= 0 or u.change <= FAR * u.lr or not lost:
        return None
    return Mechanism("overshoot", (f"a step changes a weight by {u.change:.0e} on average, with lr {u.lr:.0e}", *lost))


def _decay_only(u: Update) -> Mechanism | None:
    if not 0 <= u.own < LEAST_MOVED * u.reached:
        return None
    fact = f"{_share(u.own, u)} of the numbers whose gradient is not zero changed, apart from weight decay"
    return Mechanism("decay only", (fact,))


_CHECKS: tuple[Callable[[Update], Mechanism | None], ...] = (
    _frozen,
    _not_held,
    _backing_off,
    _no_gradient,
    _broken,
    _no_learning_rate,
    _no_good_gradient,
    _not_moved,
    _overshoot,
    _decay_only,
)


# ---------------------------------------------------------------- several parameters, and two runs


def cancelled(u: Update, updates: Iterable[Update]) -> bool:
    """Whether a bias does not move because its exact gradient is zero: what was measured is rounding.

    A norm takes a bias of the layer before it away again, and a softmax that of its scores or keys. The gradients of a
    layer's outputs then add up to zero over the positions; the weight's gradient, which is the same sum with each term
    times an input, does not.
    """
    layer, _, last = u.name.rpartition(".")
    if last != "bias" or u.dtype not in HALF:
        return False
    beside = (o.gradient_peak for o in updates if o.name == f"{layer}.weight" and o.place == u.place)
    return u.gradient_peak < _CANCELS * DTYPES[u.dtype].rounding * next(beside, 0.0)


_CANCELS = 4.0
"""Roundings: what a sum leaves that is zero."""


def of_adapter(judged: Iterable[tuple[Update, Mechanism]]) -> Mechanism:
    """What is wrong with an adapter: the mechanism among its parameters' that explains the others.

    Two things explain nothing: a matrix that is frozen on purpose while the other one is trained; and a wide matrix
    that does not move yet while the other one began at zero and moves: its gradient is as small as the other matrix
    still is.
    """
    pairs = list(judged)
    begun = any(u.magnitude == 0 and m.name == "healthy" for u, m in pairs)
    early = [m for u, m in pairs if begun and u.magnitude > 0 and u.dtype not in HALF and m.name in _EARLY]
    telling = [m for _, m in pairs if m.name != "frozen" and m not in early]
    return min(telling or [m for _, m in pairs], key=lambda m: (MECHANISMS.index(m.name), -len(m.facts)))


_EARLY = ("below resolution", "one step")


def compared(narrow: Update, wide: Update) -> Mechanism:
    """What the steps show for a parameter if the same steps were also taken with it in a wider dtype.

    The comparison shows what was lost only in the narrow dtype.
    """
    found = mechanism(narrow)
    lost = lost_state(narrow)
    if found.name == "healthy" and wide.change and narrow.change > LONGER * wide.change and lost:
        times = narrow.change / wide.change
        fact = f"a step changes a weight {times:.1f} times as much as with {wide.dtype} weights and state"
        return Mechanism("overshoot", (fact, *lost))
    if found.name in ("healthy", "zero gradient") and narrow.reached < LEAST_MOVED * wide.reached:
        fact = (
            f"{narrow.reached:,} of its sampled numbers had a gradient other than zero, "
            f"and {wide.reached:,} with the weights in {wide.dtype}"
        )
        return Mechanism("gradient underflow", (fact,))
    return found


# ---------------------------------------------------------------- facts


def vanishes(number: float | None, dtype: str) -> bool:
    """Whether a positive number rounds to zero in a dtype."""
    return number is not None and dtype in REAL and 0 < number <= DTYPES[dtype].smallest / 2


def lost_states(u: Update) -> Iterator[State]:
    """The parts of the optimizer's state that were lost in their dtype."""
    return (s for s in u.state if s.dtype in HALF and s.zeros > STATE_LOST)


def lost_state(u: Update) -> tuple[str, ...]:
    """The facts that show that the optimizer's own numbers were lost in their dtype."""
    lost = list(lost_states(u))
    if not lost:
        return ()
    names = listed([f"all of {quoted(s.name)}" if s.zeros == 1 else f"{s.zeros:.0%} of {quoted(s.name)}" for s in lost])
    dtype = lost[0].dtype
    smallest = f"{DTYPES[dtype].smallest:.0e}"
    fact = f"in the optimizer's state, {names} became zero: {dtype} has no number between 0 and {smallest}"
    if not vanishes(u.eps, dtype):
        return (fact,)
    return fact, f"eps={u.eps:g}, which keeps the step from dividing by zero, also becomes 0 in {dtype}"


def _lost_eps(u: Update) -> tuple[str, ...]:
    """The facts that show that a step divided by zero where the gradient was zero."""
    dtypes = [s.dtype for s in u.state if s.dtype in HALF and vanishes(u.eps, s.dtype)]
    return (f"eps={u.eps:g} is 0 in {dtypes[0]}, the dtype of its state",) if dtypes else ()


def _resolution(u: Update) -> tuple[str, ...]:
    if u.dtype not in REAL:
        return ()
    if not u.magnitude:
        return (f"a {u.dtype} weight of 0 cannot change by less than {DTYPES[u.dtype].smallest / 2:.1g}",)
    least = u.magnitude * DTYPES[u.dtype].rounding
    hold = f"a {u.dtype} weight near {u.magnitude:.2g} cannot change by less than {least:.1g}"
    if u.lr <= 0:
        return (hold,)
    return (f"{hold}; the learning rate is only {u.lr:g}" if u.lr <= least else f"{hold}, and a step is smaller",)


def _share(count: int, u: Update) -> str:
    if count == 0:
        return "none"
    share = count / max(u.reached, 1)
    return f"{share:.0%}" if share >= 0.01 else "under 1%"
