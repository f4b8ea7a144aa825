"""Who is wrong: which operand of a refused call is out of line, and the fact that says so.

What needs no weighing comes first: a format to store in is out of line where one to compute in meets it, as is a tensor whose
dtype was changed after the other had been made from it; and where one side was seen, the text tells the other.
Else the judgement weighs what the run shows, in this order:

1. Under autocast the call's compute dtype is autocast's; where this very call has run before, the operands that
   have not changed since are in line; and what a library chose for a function of the program's that it calls is.
2. A model agrees with itself: the dtype of most of its parameters, less those in dispute, is in line. Not so a float64
   that all of them owe to numpy alone.
3. Where no model was running, or nothing else of it is left, the parameters of the whole run decide.
4. A default yields to a plan: where everything that speaks for float32 merely fell out of the
   default, while the run decided on a half dtype in more than one place, the half dtype is in line.
   One lone cast is no plan.
5. Weights that are trained are in line with themselves where only float64 meets them.
   Else what was chosen on purpose is in line and what fell out of a default is not; then the
   majority; then the narrower dtype, as a stray wide tensor is the commonest mistake.

Swap the two sides of a collision and every one of these swaps with them.
"""

from __future__ import annotations

from collections import Counter

from .. import graph
from ..records import Recording, Refused, Step, Witness
from ..tables.dtypes import COUNTERPART, FLOATING, HALF, STORAGE_ONLY, bytes_of

_ACCIDENTS = frozenset({"factory", "parameter", "conversion", "load", "worker", "promotion"})


def contenders(refused: Refused) -> list[Witness]:
    """The operands whose dtypes disagree: the floating ones, or all where those agree."""
    floating = [w for w in refused.witnesses if w.dtype in FLOATING]
    if len({w.dtype for w in floating}) > 1:
        return floating
    tensors = [
        w for w in refused.witnesses if not w.dtype.startswith("python") and w.argument.split("[")[0] not in _POINTERS
    ]
    return tensors if len({w.dtype for w in tensors}) > 1 else floating or tensors


def in_line(recording: Recording, refused: Refused) -> tuple[str | None, str]:
    """The dtype that the run was meant to have at this op, and the fact that says so."""
    sides = contenders(refused)
    present = {w.dtype for w in sides}
    computing = present - STORAGE_ONLY
    if refused.wants == "agree" and len(computing) == 1 and computing != present:
        return next(iter(computing)), "that is a format to store in, not to compute in"
    changed = {w.dtype for w in sides if w.changed}
    if len(changed) == 1 and len(present) == 2:
        return next(iter(present - changed)), "what was made from it before its dtype was changed did not follow"
    if refused.wants == "agree" and len(present) == 1:  # one side was seen, the text tells the other
        told = {dtype for _, dtype in refused.dtypes}
        if present < told and len(told) == 2:
            return next(iter(told - present)), "that is what the exception says it met"
    if refused.autocast:
        compute = refused.autocast.partition(":")[2]
        if compute in present:
            return compute, f"autocast computes in {compute} here"
    before = _ran_before(recording, refused, sides)
    if before is not None:
        return before, f"the same {refused.op} ran with that {before} operand before; the other has changed since"
    given = _handed(recording, refused, sides)
    if given is not None:
        return given, f"the library that calls this function hands it {given}"
    disputed = {w.name for w in sides if w.name}
    # a parameter that gave an operand its dtype is a party, too; not so a cast that all of the model went through
    shared = Counter(p.step for p in refused.model)
    parties = {n for w in sides for n in graph.steps_above(recording, w.step) if shared[n] == 1}
    # casting a module leaves its complex weights as they are: where complex numbers disagree, the real ones tell the precision
    complexes = len(present) > 1 and all(dtype.startswith("complex") for dtype in present)
    sizes: Counter[str] = Counter()
    for p in refused.model:
        if p.name not in disputed and p.step not in parties:
            sizes[COUNTERPART.get(p.dtype, p.dtype) if complexes else p.dtype] += p.size
    scope = "the model's"
    if not sizes:
        sizes.update(dict(refused.run))
        for w in sides:
            if w.holder == "parameter":
                sizes[w.dtype] -= _elements(w)
        scope = "the run's"
    sizes = +sizes
    if sizes:
        dominant, size = sizes.most_common(1)[0]
        share = size / sum(sizes.values())
        # where no side has the model's dtype it is an island, such as a loss, and judged by what is in it
        if share > 0.5 and (dominant in present or len(present) < 2):
            if dominant == "float64" and len(present) == 2 and _by_numpy(recording, refused):
                return next(iter(present - {dominant})), f"{scope} parameters are float64 only as numpy made them so"
            planned = _plan(recording, refused, sides, dominant)
            if planned is not None:
                return planned, f"{scope} parameters are {dominant} by default only, while the run decided on {planned}"
            return (
                dominant,
                f"{scope} other parameters are {COUNTERPART.get(dominant, dominant) if complexes else dominant} ({share:.0%})",
            )
    if refused.code == "DT112" and len(wide := {d for d in present if not d.startswith("float8")}) == 1:
        return wide.pop(), "float8 is a format to store in and to multiply matrices of"
    if refused.wants == "other":
        written = [w for w in sides if w.argument.split("[")[0] == refused.argument] or [
            w for w in sides if ("out", w.dtype) in refused.dtypes
        ]
        rest = [w.dtype for w in sides if w not in written]
        if written and rest:
            return rest[0], f"what meets it is {rest[0]}"
    return _by_purpose(recording, sides)


def _ran_before(recording: Recording, refused: Refused, sides: list[Witness]) -> str | None:
    """The dtype of the operands that this very call had when it ran before, where those of the other dtypes are new.

    Where everything has changed since (a model was cast after a first try), the past says nothing.
    """
    site = graph.place_of(recording, refused.place).stack[:1]
    known: set[tuple[str, int]] = set()
    # a healed call runs after it was refused: that is no past
    past = list(recording.ops[: refused.after if refused.after >= 0 else None])
    # nor are the other calls that one line makes inside torch, such as an attention's three projections
    while past and graph.place_of(recording, past[-1].place).stack[:1] == site:
        past.pop()
    for op in past:
        if (
            op.op == refused.op
            and op.module == refused.module
            and op.phase in ("forward", "recompute")
            and not op.autocast
        ):
            operands = [(i.dtype, i.step) for i in op.inputs if i.dtype in FLOATING]
            # a transpose and the like have one operand; they ran as a part of the refused call too
            if len(operands) > 1 and graph.place_of(recording, op.place).stack[:1] == site:
                known.update(operands)
    old = {w.dtype for w in sides if (w.dtype, w.step) in known}
    return old.pop() if len(old) == 1 else None


def _handed(recording: Recording, refused: Refused, sides: list[Witness]) -> str | None:
    """The dtype that a library chose for what it hands to a function of the program's own that it calls, where that meets what
    the program made itself: the library is not the program's to change."""
    stack = graph.place_of(recording, refused.place).stack
    if len({w.dtype for w in sides}) != 2 or not stack or not stack[0].user or any(w.holder for w in sides):
        return None
    running = set(stack[1:])
    handed = set()
    for w in sides:
        line = graph.lineage(recording, w.step)
        born = graph.place_of(recording, line.root.place) if line is not None else graph.NOWHERE
        # born below a call of the program's that has not returned yet
        if born.stack and not born.stack[0].user and line.root.explicit and born.user_frame in running:
            handed.add(w.dtype)
    return handed.pop() if len(handed) == 1 else None


def _by_numpy(recording: Recording, refused: Refused) -> bool:
    """Whether all float64 of a model came with numbers from outside torch, for which nobody named a dtype."""
    roots = [
        line.root
        for p in refused.model
        if p.dtype == "float64" and (line := graph.lineage(recording, p.step)) is not None
    ]
    return bool(roots) and all(root.how == "conversion" and not root.explicit and root.default < 0 for root in roots)


def _elements(witness: Witness) -> int:
    size = 1
    for n in witness.shape:
        size *= n
    return size


def _plan(recording: Recording, refused: Refused, sides: list[Witness], dominant: str) -> str | None:
    """The half dtype that the run decided on, where all that is against it is a default (principle 4)."""
    rivals = {w.dtype for w in sides} & HALF
    model_is_a_side = any(w.dtype == dominant and w.holder == "parameter" for w in sides)
    if dominant in HALF or len(rivals) != 1 or not model_is_a_side or refused.phase not in ("forward", "recompute"):
        return None
    rival = rivals.pop()
    if any(w.dtype == rival and w.holder == "parameter" for w in sides):
        return None  # a parameter against its own model: the model agrees with itself
    if any(w.dtype == dominant and w.trained for w in sides):
        return None  # weights that are trained are no default: beside frozen ones in half they stay what they are
    for p in refused.model:
        line = graph.lineage(recording, p.step)
        if p.dtype == rival or line is None or line.root.explicit or line.root.how in ("input", "load"):
            return None
    named = [s for s in recording.steps if s.explicit and s.to == rival and not s.module]
    # `.to(y.dtype)` repeats a decision, it makes none
    repeats = {s.place for s in named if any(graph.linked(recording, s, r) for r in s.reads)}
    decisions = {graph.place_of(recording, s.place).stack[:1] for s in named if s.place not in repeats}
    parameters = dict(refused.run).get(rival, 0)
    return rival if len(decisions) > 1 or parameters else None


def _by_purpose(recording: Recording, sides: list[Witness]) -> tuple[str | None, str]:
    floating = [w.dtype for w in sides if w.dtype in FLOATING]
    trained = {w.dtype for w in sides if w.trained}
    if len(trained) == 1 and set(floating) - trained == {"float64"}:
        return trained.pop(), "the weights that are trained are, and a wider input gains them nothing"
    if len(set(floating)) == 1 and len(floating) < len(sides):
        return floating[0], "what meets it is floating point"
    # what a module holds is one voice, and a tensor of no dimensions has none
    voices = Counter(
        dtype
        for dtype, _ in {(w.dtype, -1 if w.holder in ("parameter", "buffer") else w.index) for w in sides if w.shape}
    )
    if len(voices) == 2 and (most := voices.most_common(2))[0][1] > most[1][1]:
        return most[0][0], f"most operands are {most[0][0]}"
    chosen = {w.dtype for w in sides if _on_purpose(recording, w)}
    fallen = {w.dtype for w in sides} - chosen
    if len(chosen) == 1 and fallen:
        dtype = chosen.pop()
        return dtype, f"{dtype} was chosen on purpose, {' and '.join(sorted(fallen))} fell out of a default"
    counts = Counter(w.dtype for w in sides)
    if not counts:
        return None, ""
    ranked = sorted(counts, key=lambda d: (-counts[d], bytes_of(d)))
    if len(ranked) > 1 and counts[ranked[0]] > counts[ranked[1]]:
        return ranked[0], f"most operands are {ranked[0]}"
    return ranked[0], ""


def _on_purpose(recording: Recording, witness: Witness) -> bool:
    line = graph.lineage(recording, witness.step)
    if line is None:
        return False
    root: Step = line.root
    return root.explicit or root.how == "autocast" or root.how not in _ACCIDENTS and root.how != "input"


def culprit(refused: Refused, in_line: str | None) -> Witness | None:
    """The operand to blame, by what the op wanted."""
    witnesses = refused.witnesses
    if not witnesses:
        return None
    said = [dtype for _, dtype in refused.dtypes]
    if refused.wants == "fits":
        scalars = [w for w in witnesses if w.dtype.startswith("python")]
        return scalars[-1] if scalars else witnesses[-1]
    named = [w for w in witnesses if refused.argument and w.argument.split("[")[0] == refused.argument]
    if refused.wants == "kernel":
        met = [w for w in witnesses if ("found", w.dtype) in refused.dtypes] or [
            w for w in witnesses if w.dtype in said
        ]
        fitting = met or [w for w in witnesses if w.dtype in FLOATING]
        return _first(named or fitting or list(witnesses))
    if refused.wants in ("integer", "bool", "float"):
        wrong = [w for w in named or witnesses if not suits(w.dtype, refused.wants)]
        spoken = [w for w in wrong if w.dtype in said]
        roles = [w for role in _ROLES[refused.wants] for w in spoken or wrong if w.argument.split("[")[0] == role]
        return _first(named or roles or spoken or wrong or list(witnesses))
    sides = contenders(refused)
    out = [w for w in sides if w.dtype != in_line]
    return _first(out or named or sides)


def _first(witnesses: list[Witness]) -> Witness | None:
    return next((w for w in witnesses if w.holder == "parameter"), witnesses[0] if witnesses else None)


_ROLES = {  # the arguments that are most often meant come first
    "integer": ("index", "indices", "target", "labels", "tensor_indices_or_sections", "input"),
    "bool": ("mask", "condition", "attn_mask"),
    "float": ("target", "input", "self"),
}
_POINTERS = frozenset({"index", "indices", "offsets", "batch_sizes", "mask", "condition"})
"""Arguments that are integers or booleans by right: they have no side where the values disagree."""


def suits(dtype: str, wants: str) -> bool:
    if wants == "bool":
        return dtype in ("bool", "uint8")
    if wants == "integer":
        return dtype == "int64"
    return dtype in FLOATING
