"""Which modules must compute in float32 so that a step stays close to higher precision: ranked, searched, verified.

A run with a reference shows what each module's rounding does to the loss and to the gradients; modules are tried in
that order. The step is then run with the chosen modules in float32, and its error is measured. The smallest set that
stays within the tolerance is the plan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from math import inf
from typing import Any

from ..records import FORWARD, Recording
from ..tables.dtypes import NARROW, REAL, bytes_of
from ..tables.english import listed
from ..tables.operators import flops, is_cast, is_move
from ..terminal import seen
from .losses import Losses
from .run_facts import Run, held_weights

RUNS = 24
"""The most runs: those that search, and the one that verifies."""


@dataclass(frozen=True, slots=True)
class StepError:
    """The difference between a run and its reference, as relative root mean squares; infinite where one of the
    compared numbers became infinite."""

    results: float
    """The worst among the losses and outputs of the program."""
    gradients: float
    """All gradients as one vector."""
    updates: float
    """The share of all updates, as one vector, that does not arrive."""

    @property
    def worst(self) -> float:
        return max(self.results, self.gradients, self.updates)


@dataclass(frozen=True, slots=True)
class KeptModule:
    """One module that may be kept in float32, with the effect and the cost."""

    module: str
    """Its path in the outermost module called."""
    share: float
    """Its share of the effect of all modules' rounding on the step, to first order."""
    infinite: int
    """Numbers that became infinite in it."""
    parameters: int
    """Numbers of its own weights in a narrow dtype, including its children's."""
    added_bytes: int
    """Memory that keeping those in float32 adds."""
    flops: int
    """Floating point operations of its matmuls and convolutions, which would run in float32."""


@dataclass(frozen=True, repr=False)
class PrecisionPlan:
    """The modules to keep in float32, and what was measured with and without them."""

    tolerance: float
    keep: tuple[KeptModule, ...]
    before: StepError
    after: StepError | None
    """With the plan, measured by running the step; None where it was not run."""
    ranked: tuple[KeptModule, ...] = ()
    tried: tuple[tuple[tuple[str, ...], float], ...] = field(default=(), repr=False)
    """Every choice that was run, with its worst error."""
    work: int = 0
    """Floating point operations of all matmuls and convolutions of the step."""

    computed: tuple[str, ...] = ()
    """The floating dtypes that the step computed in."""

    @property
    def judged(self) -> bool:
        """Whether anything computed in a narrow dtype: else there was no error to find."""
        return not self.computed or not NARROW.isdisjoint(self.computed)

    @property
    def verified(self) -> bool:
        """Whether the step was run with the plan and stayed within the tolerance."""
        return self.judged and self.after is not None and self.after.worst <= self.tolerance

    def apply(self, model: Any) -> Any:
        """Keeps the plan's modules of a model in float32, also under autocast; returns a handle whose ``remove()``
        removes the casts."""
        # imported by name, because the rules do not import torch; to apply a plan, the caller has a model and so torch
        keeping = import_module("dtypetrace.reference.keeping")
        return keeping.keep_wide(model, [c.module for c in self.keep])

    def to_dataframe(self) -> Any:
        """A ``pandas.DataFrame``, one row for each module; the modules to keep come first."""
        import pandas

        kept = {c.module for c in self.keep}
        columns = ("module", "share", "infinite", "parameters", "added_bytes", "flops")
        rows = [{"keep": c.module in kept, **{name: getattr(c, name) for name in columns}} for c in self.ranked]
        return pandas.DataFrame(sorted(rows, key=lambda row: not row["keep"]))

    def __repr__(self) -> str:
        return "\n".join(map(seen, _lines(self)))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How IPython shows it."""
        printer.text(str(self))


def _lines(plan: PrecisionPlan) -> list[str]:
    if not plan.judged:
        return [f"no plan: nothing ran in a narrow dtype: the step computed in {listed(plan.computed)}"]
    if not plan.keep and plan.before.worst <= plan.tolerance:
        return [
            f"no module needs float32: the error of the step is {plan.before.worst:.2%}, "
            f"and {plan.tolerance:.2%} is allowed"
        ]
    total = plan.work or 1
    lines = [_heading(plan), ""]
    lines.append(f"  {'module':40}  {'share of rounding':>17}  {'infinite values':>15}  {'+MB':>7}  {'FLOP':>5}")
    for c in plan.keep:
        row = (
            f"  {c.module or '(the model)':40}  {c.share:17.1%}  {c.infinite:15,}  "
            f"{c.added_bytes / 2**20:7.2f}  {c.flops / total:5.1%}"
        )
        lines.append(row)
    after = plan.after
    kept = "with the plan" if plan.verified or after is None else "these in float32"
    lines += ["", f"  {'error of':14}{'as it is':>12}{kept:>18}"]
    for name in ("results", "gradients", "updates"):
        if name != "results" and not (getattr(plan.before, name) or after is not None and getattr(after, name)):
            continue  # there were none
        now = _error(getattr(after, name)) if after is not None else "not run"
        lines.append(f"  {name:14}{_error(getattr(plan.before, name)):>12}{now:>18}")
    said = "verified by running the step with it"
    if not plan.verified:
        said = "not met" if after is not None else "not verified, because the step was not run with it"
    lines += ["", f"tolerance {plan.tolerance:.2%}: {said}"]
    if after is not None and not plan.verified:
        lines.append(
            "The error may begin outside of modules. Which lines it begins on: dtypetrace run --precision reference"
        )
    return lines


def _heading(plan: PrecisionPlan) -> str:
    these = f"{len(plan.keep)} of {len(plan.ranked)} modules in float32"
    if plan.verified or plan.after is None:
        return f"keep {these}:" if plan.keep else "no plan was found: no module was measured"
    reached = (
        "the step is not finite" if plan.after.worst == inf else f"the error of the step is {plan.after.worst:.2%}"
    )
    return f"no plan was found: with these {these}, {reached}:"


def _error(error: float) -> str:
    return "not finite" if error == inf else f"{error:.3%}"


# ---------------------------------------------------------------- what was measured


def step_error(recording: Recording) -> StepError:
    """How far a recorded run was from its reference. Raises ValueError where it has no reference."""
    if not recording.precisions:
        raise ValueError(
            "this trace has no reference; make it with trace(precision='reference') or run --precision reference"
        )
    losses = Losses(Run(recording), recording.precisions)
    ends = [losses.of[n] for n in losses.results if losses.of[n].spoiled or not losses.cancels(n)]
    results = max((inf if p.spoiled else p.total for p in ends), default=0.0)
    return StepError(results, _vector(recording, "gradient"), _arrives(recording))


def _vector(recording: Recording, what: str) -> float:
    size = error = 0.0
    for c in recording.compared:
        if c.what == what:
            if c.spoiled:
                return inf
            size += (c.size * c.steps) ** 2
            error += (c.size * c.error * c.steps) ** 2
    return (error / size) ** 0.5 if size else 0.0


def _arrives(recording: Recording) -> float:
    due = done = 0.0
    for c in recording.compared:
        if c.what == "update":
            if c.spoiled:
                return inf
            due += c.size**2 * c.steps
            done += c.arrived * c.size**2 * c.steps
    return abs(1 - done / due) if due else 0.0


def candidates(recording: Recording) -> tuple[KeptModule, ...]:
    """The modules of a recorded run, those with the largest effect on the step first. What the outermost module
    computes itself is in none."""
    run, path_of = Run(recording), Paths(recording)
    effects = [shares for shares in _effects(run, path_of) if shares]  # none of backward where it did not run
    infinite: dict[str, int] = defaultdict(int)
    work: dict[str, int] = defaultdict(int)
    outgrown = {p.op: p.infinite for p in recording.precisions if p.infinite}
    for number, op in enumerate(recording.ops):
        path = path_of(op.module)
        if path is None:
            continue
        for above in _above(path):
            work[above] += flops(op) * op.count
        made = outgrown.get(number, 0)
        for above in _above(path) if made else ():
            infinite[above] += made  # cast back at its module's end, it is infinite again: the ones around may be kept
    weights = _weights(recording)
    found = [
        KeptModule(
            path,
            sum(shares.get(path, 0.0) for shares in effects) / (len(effects) or 1),
            infinite[path],
            *weights.get(path, (0, 0)),
            work[path],
        )
        for path in {*(p for shares in effects for p in shares), *(p for p, n in infinite.items() if n)} - {""}
    ]
    return tuple(sorted(found, key=_order))


def _work(recording: Recording) -> int:
    return sum(flops(op) * op.count for op in recording.ops)


def _computed(recording: Recording) -> tuple[str, ...]:
    """The floating dtypes that arithmetic was done in, the narrowest first."""
    arithmetic = (op for op in recording.ops if op.inputs and not (is_cast(op) or is_move(op)))
    found = {i.dtype for op in arithmetic for i in op.inputs if i.dtype in REAL}
    return tuple(sorted(found, key=lambda d: (bytes_of(d), d)))


def _order(c: KeptModule) -> tuple[bool, int, float, str]:
    """Modules that make finite numbers infinite come before those that only round, the innermost first."""
    return not c.infinite, -c.module.count(".") if c.infinite else 0, -c.share, c.module


def _above(path: str) -> list[str]:
    """A module and the modules around it, without the outermost one."""
    parts = path.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


class Paths:
    """The paths of a recording's modules in the outermost one called. The name of that one may have dots itself
    (``vae.decoder``)."""

    def __init__(self, recording: Recording) -> None:
        self.roots: list[str] = []
        for name in recording.modules:  # an outermost module comes before those in it
            if not any(_inside(name, root) for root in self.roots):
                self.roots.append(name)

    def root_of(self, module: str) -> str | None:
        """The name of the outermost module; None outside any."""
        return next((root for root in self.roots if _inside(module, root)), None) if module else None

    def __call__(self, module: str) -> str | None:
        root = self.root_of(module)
        return module[len(root) + 1 :] if root is not None else None


def _inside(module: str, root: str) -> bool:
    return module == root or module.startswith(root + ".")


def _effects(run: Run, path_of: Paths) -> tuple[dict[str, float], dict[str, float]]:
    """The effects of each module's own rounding: shares of the effect on the loss, and of the error that backward
    introduces."""
    forward: dict[str, float] = defaultdict(float)
    backward: dict[str, float] = defaultdict(float)
    weighed = any(p.effect for p in run.recording.precisions)
    for p in run.recording.precisions:
        op = run.ops[p.op]
        path = path_of(op.module)
        if path is None or not op.outputs or op.outputs[0] not in REAL:
            continue
        if op.phase in FORWARD:
            forward[path] += p.effect**2 if weighed else p.introduced**2
        elif op.phase == "backward":
            backward[path] += p.introduced**2
    return _shares(forward), _shares(backward)


def _shares(sums: dict[str, float]) -> dict[str, float]:
    total = sum(sums.values())
    return {path: value / total for path, value in sums.items() if value} if total else {}


def _weights(recording: Recording) -> dict[str, tuple[int, int]]:
    """Numbers that each module holds in a narrow dtype, and the bytes that float32 adds, children included."""
    found: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    path_of = Paths(recording)
    for weight in held_weights(recording):
        added = max(4 - bytes_of(weight.dtype), 0) * weight.size
        for above in ("", *_above(path_of(weight.module) or "")):
            numbers, more = found[above]
            found[above] = numbers + weight.size * bool(added), more + added
    return dict(found)


# ---------------------------------------------------------------- the search


def search(recording: Recording, run: Callable[[tuple[str, ...]], Recording], tolerance: float) -> PrecisionPlan:
    """The smallest set that the search finds. recording: of the step with nothing kept. run: runs the step with some
    modules in float32."""
    ranked = candidates(recording)
    before = step_error(recording)
    work = _work(recording)
    if before.worst <= tolerance or not ranked:
        after = before if before.worst <= tolerance else None
        return PrecisionPlan(tolerance, (), before, after, ranked, (), work, _computed(recording))
    tries = _Tries(lambda keep: step_error(run(keep)), RUNS)
    count = _enough(ranked, tries, tolerance)
    keep = _pruned(list(ranked[:count]), tries, tolerance)
    after = tries.of(keep)
    tried = tuple((k, e.worst) for k, e in tries.known.items())
    return PrecisionPlan(tolerance, tuple(keep), before, after, ranked, tried, work, _computed(recording))


def foretold(recording: Recording, tolerance: float) -> PrecisionPlan:
    """The plan that follows from the measured effects, assuming that errors of different modules add up as independent
    ones. Nothing is run."""
    ranked = candidates(recording)
    before = step_error(recording)
    keep: list[KeptModule] = []
    left = sum(c.share for c in ranked) or 1.0
    for c in ranked:
        expected = before.worst * max(left, 0.0) ** 0.5
        if expected <= tolerance and not c.infinite:
            break
        keep.append(c)
        left -= c.share
    return PrecisionPlan(tolerance, tuple(keep), before, None, ranked, (), _work(recording), _computed(recording))


class _Tries:
    """Runs each choice once, and not more than a given number of choices."""

    def __init__(self, measure: Callable[[tuple[str, ...]], StepError], most: int) -> None:
        self.measure = measure
        self.left = most
        self.known: dict[tuple[str, ...], StepError] = {}

    def of(self, keep: Sequence[KeptModule]) -> StepError:
        names = tuple(sorted(c.module for c in keep))
        if names not in self.known:
            self.left -= 1
            try:
                self.known[names] = self.measure(names)
            except RuntimeError:  # the rest of the model refuses what this choice makes: it ran without the casts
                self.known[names] = StepError(inf, inf, inf)
        return self.known[names]


def _enough(ranked: Sequence[KeptModule], tries: _Tries, tolerance: float) -> int:
    """How many of the first modules are enough: doubled until they are, then searched by halving."""
    low, high = 0, 1
    while high < len(ranked) and tries.of(ranked[:high]).worst > tolerance and tries.left > 2:
        low, high = high, min(2 * high, len(ranked))
    while high - low > 1 and tries.left > 2:
        middle = (low + high) // 2
        if tries.of(ranked[:middle]).worst <= tolerance:
            high = middle
        else:
            low = middle
    return high


def _pruned(keep: list[KeptModule], tries: _Tries, tolerance: float) -> list[KeptModule]:
    """Leaves out modules that the others make unnecessary, those with the smallest effect first."""
    if tries.of(keep).worst > tolerance:
        return keep
    for c in reversed(list(keep)):
        less = [k for k in keep if k is not c]
        if less and tries.left > 1 and tries.of(less).worst <= tolerance:
            keep = less
    return keep
