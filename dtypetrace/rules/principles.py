"""The principles by which a refused call is judged, in the order in which they are tried.

Each is a function from a collision to a verdict, or to None where it has nothing to say; the first that answers
decides. The first paragraph of its docstring is its reason. What happened comes first (which side changed, what
autocast decides here, what a library chose); counts of dtypes come last. Swap the two sides of a collision and every
verdict swaps with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

from .. import graph
from ..records import Event, Frame, Op, Recording, Witness
from ..source import expressions
from ..tables.dtypes import COMPLEX, FLOATING, INTEGERS, STORAGE_ONLY, bytes_of, wider
from ..tables.english import quoted
from ..tables.operators import is_cast, is_destination, tagged
from .autocast_off import own_forward, ran_in_forward, runs
from .case import trained_root
from .collision import Collision, Verdict
from .parameters import (
    cast_of_a_part,
    cast_where_used,
    computed_from,
    default_left_behind,
    default_yields,
    float64_from_numpy,
    most_parameters,
    taken_from_file,
    took_what_was_left,
    trained_beside_frozen,
    trained_outside,
)

Principle = Callable[[Collision], Verdict | None]


# ---------------------------------------------------------------- what happened


def storage_format(case: Collision) -> Verdict | None:
    """A dtype to store numbers in (float8, unsigned integers) is wrong where all operands must have one dtype, and
    exactly one dtype to compute in is among them."""
    computing = case.present - STORAGE_ONLY
    if case.refused.wants != "agree" or len(computing) != 1 or computing == case.present:
        return None
    return Verdict(next(iter(computing)), "that is a format for storage, not for computing")


def complex_beside_real(case: Collision) -> Verdict | None:
    """Where complex numbers meet real ones that are no weights, or weights of which this line made complex numbers
    before, complex is right: a cast to real would drop the imaginary part."""
    complexes = case.present & COMPLEX
    if len(case.present) != 2 or len(complexes) != 1:
        return None
    real = case.present - complexes
    if any(w.holder == "parameter" for w in case.sides if w.dtype in real) and not _joined_before(case, real):
        return None
    return Verdict(next(iter(complexes)), "a cast to real numbers would drop the imaginary part")


def _joined_before(case: Collision, real: frozenset[str]) -> bool:
    """Whether the refused line made complex numbers of complex and real ones before."""
    site = graph.place_of(case.recording, case.refused.place).stack[:1]
    joins = (e for e in case.recording.events if e.how == "promotion" and e.to in COMPLEX and real <= {*e.source})
    return any(graph.place_of(case.recording, e.place).stack[:1] == site for e in joins)


def widened_destination(case: Collision) -> Verdict | None:
    """Outside an optimizer's step, a tensor that the program widened is right where narrower numbers are written into
    it in place: it holds all of them, as an average keeps what they add up to."""
    into = next((w for w in case.sides if w.index == 0 and is_destination(case.refused.op, w.argument, w.index)), None)
    if into is None or case.refused.phase == "optimizer" or len(case.present) != 2:
        return None
    line = graph.lineage(case.recording, into.event)
    widened = line is not None and line.root.how == "cast" and line.root.explicit
    if not widened or not wider(into.dtype, case.other(into.dtype)):
        return None
    return Verdict(into.dtype, f"{into.name or 'what it is written into'} was widened to {into.dtype} on purpose")


def changed_later(case: Collision) -> Verdict | None:
    """Where a tensor's dtype was changed after another tensor had been made from it, the changed one is wrong.

    An optimizer's state and an average keep the old dtype of the weights.
    """
    changed = {w.dtype for w in case.sides if w.changed}
    if len(changed) != 1 or len(case.present) != 2:
        return None
    kept = next(w for w in case.sides if w.dtype not in changed)
    new = changed.pop()
    reason = f"{kept.name or 'the other operand'} was made earlier, in {kept.dtype}"
    return Verdict(case.other(new), reason)


def fused_path(case: Collision) -> Verdict | None:
    """Where a fused path refuses weights that do not have autocast's dtype, autocast's is right: inside, the weights
    are not cast to it everywhere."""
    compute = case.refused.autocast.partition(":")[2]
    weights = {w.dtype for w in case.sides if w.holder == "parameter"}
    if not tagged(case.refused.op, "fused") or not compute or len(weights) != 1 or compute in weights:
        return None
    return Verdict(compute, f"torch's fused path casts it to {compute} in one part of its work and not in another")


def named_by_exception(case: Collision) -> Verdict | None:
    """Where only one operand was seen, the other dtype that the exception's text names is right."""
    asked = dict(case.refused.dtypes).get("expected", "")
    if case.refused.wants == "other" and asked and len(case.present) == 1 and asked not in case.present:
        return Verdict(asked, "the exception asks for it")
    named = {dtype for _, dtype in case.refused.dtypes}
    if case.refused.wants != "agree" or len(case.present) != 1 or len(named) != 2 or not case.present < named:
        return None
    return Verdict(next(iter(named - case.present)), "the exception names it as the other dtype")


def autocast_narrowed(case: Collision) -> Verdict | None:
    """If autocast narrowed only one operand, and the other one still has the dtype of the parameter that it comes
    from, that dtype is right.

    An Embedding is not on autocast's list, and a Linear is: the region's policy made them differ.
    """
    compute = case.refused.autocast.partition(":")[2]
    if compute not in case.present or len(case.present) != 2:
        return None
    roots = {dtype: {_root(case, w) for w in case.sides if w.dtype == dtype} for dtype in case.present}
    other = case.other(compute)
    if roots[compute] != {"autocast"} or not roots[other] <= {"parameter", "load"}:
        return None
    return Verdict(other, f"autocast made one operand {compute} and left the other {other}")


def autocast_left(case: Collision) -> Verdict | None:
    """In the backward of a hand-written function whose forward ran under autocast, the dtype of the parameters is
    right: what autocast made meets them outside of its region."""
    if len(case.present) != 2 or ran_in_forward(case.recording, case.refused) is None:
        return None
    made = {w.dtype for w in case.sides if _root(case, w) == "autocast"}
    weights = {w.dtype for w in case.sides if w.holder == "parameter"}
    if len(made) != 1 or len(weights) != 1 or made == weights:
        return None
    dtype = weights.pop()
    return Verdict(dtype, "autocast was on in forward and is off in backward")


def cast_in_forward(case: Collision) -> Verdict | None:
    """In the backward of a hand-written function, the dtype is right in which its forward computed its products:
    what it saved before it cast it, and the gradient, where it cast its result, have another."""
    forward, ops = own_forward(case.recording, case.refused), case.recording.ops
    if forward is None or len(case.present) != 2:
        return None
    inside = {n for n, op in enumerate(ops) if op.phase != "backward" and runs(case.recording, op, forward)}
    every = set[str]()
    for n in inside:
        computed = {i.dtype for i in ops[n].inputs}
        if not tagged(ops[n], "matmul") or len(computed) != 1 or not computed < case.present:
            continue
        every |= computed
        saved = {w.event for w in case.sides if w.dtype not in computed}
        above = inside & {*graph.ops_above(ops, [n])}
        if any(i.event in saved for m in above for i in ops[m].inputs):
            right = computed.pop()
            return Verdict(right, f"forward casts it to {right}, and saves it in {case.other(right)}")
    if len(every) != 1:
        return None
    return Verdict(right := every.pop(), f"forward computes its products in {right}")


def _root(case: Collision, witness: Witness) -> str:
    """The kind of event that decided a side's dtype."""
    if trained_root(case.recording, case.refused, witness, None) >= 0:
        return "parameter"
    line = graph.lineage(case.recording, witness.event)
    return line.root.how if line is not None else ""


def made_like_another(case: Collision) -> Verdict | None:
    """Under autocast, a buffer, or a tensor that took its dtype from another one, is right where autocast's result is
    written into it in place: the cast belongs to what is written."""
    into = next((w for w in case.sides if w.index == 0 and is_destination(case.refused.op, w.argument, w.index)), None)
    compute = case.refused.autocast.partition(":")[2]
    if into is None or into.dtype == compute or len(case.present) != 2 or into.event < 0:
        return None
    made, values = case.recording.events[into.event], [w for w in case.sides if w is not into]
    kept = into.holder == "buffer" and wider(into.dtype, compute)
    if not (kept or made.how == "factory" and made.reads) or {_root(case, w) for w in values} != {"autocast"}:
        return None
    name, why = into.name or "what it is written into", "is kept" if kept else "was made like another tensor,"
    return Verdict(into.dtype, f"{name} {why} in {into.dtype}")


def autocast_region(case: Collision) -> Verdict | None:
    """Under autocast the dtype that autocast computes in is right."""
    compute = case.refused.autocast.partition(":")[2]
    return Verdict(compute, f"autocast computes in {compute} here") if compute in case.present else None


def gathered_weights(case: Collision) -> Verdict | None:
    """Under FSDP the dtype in which its policy gathers the weights is right, not the one in which they are kept."""
    policies = {s.computes: s.by for plan in case.recording.plans for s in plan.shared if s.computes}
    gathered = {w.dtype for w in case.sides if w.holder == "parameter"}
    if len(case.present) != 2 or len(gathered) != 1 or not gathered <= policies.keys():
        return None
    dtype = gathered.pop()
    return Verdict(dtype, f"{policies[dtype]} gathers the weights in {dtype}")


def left_cast(case: Collision) -> Verdict | None:
    """Weights that an earlier call of a function cast, and left so, are wrong where that function runs again.

    A pipeline that casts its decoder in place for one image, and its latents only where it does so.
    """
    weights = [w for w in case.sides if w.holder == "parameter"]
    line = graph.lineage(case.recording, weights[0].event) if weights else None
    if line is None or len({w.dtype for w in weights}) != 1 or len(case.present) != 2:
        return None
    cast, wrong = line.root, weights[0].dtype
    right = case.other(wrong)
    if cast.how != "cast" or cast.source != (right,):
        return None
    made = wrong, _decision(case.recording, weights[0].event)
    past = [stack for operands, stack in _past_runs(case) if made in operands]
    at = {(f.file, f.function): f.line for f in graph.place_of(case.recording, cast.place).stack}
    running = _in_program(case.recording, case.refused.place)
    for number, frame in enumerate(running, 1):
        # one call of the function runs all of this once, so what ran before was another call of it
        if expressions.repeats(case.recording.text, frame):
            return None
        if at.get((frame.file, frame.function), frame.line) != frame.line:
            if not any(stack[:number] == running[:number] for stack in past):
                return None
            return Verdict(right, f"an earlier call of {frame.function}() cast it from {right} and left it so")
    return None


def ran_before(case: Collision) -> Verdict | None:
    """Where this very call ran before, the operands that have not changed since are right.

    If all of them have changed (a model was cast after a first try), earlier calls show nothing.
    """
    refused, known = case.refused, {operand for operands, _ in _past_runs(case) for operand in operands}
    old = {w.dtype for w in case.sides if (w.dtype, _decision(case.recording, w.event)) in known}
    if len(old) != 1:
        return None
    dtype = old.pop()
    return Verdict(dtype, f"in earlier calls of this {quoted(refused.op)} both operands were {dtype}", although=True)


def _decision(recording: Recording, event: int) -> tuple[object, ...]:
    """What decided a dtype, whoever called the function that it is in: a batch is made anew for each call."""
    if event < 0:
        return ()
    decided = recording.events[event]
    return decided.how, decided.op, decided.name, graph.place_of(recording, decided.place).stack[:1]


_Operand = tuple[str, tuple[object, ...]]
"""The dtype of an operand, and what decided it."""


def _past_runs(case: Collision) -> list[tuple[list[_Operand], list[Frame]]]:
    """The floating operands of each earlier, successful run of the refused call, and where the program made it."""
    recording, refused = case.recording, case.refused
    site = graph.place_of(recording, refused.place).stack[:1]
    # a healed call runs after it was refused, so it is not an earlier call
    past = list(recording.ops[: refused.after if refused.after >= 0 else None])
    # nor are other calls that the same call makes inside torch, such as an attention's three projections
    while past and past[-1].place == refused.place and not _alone(case, past[-1]):
        past.pop()
    known: list[tuple[list[_Operand], list[Frame]]] = []
    for op in past:
        if (op.op, op.module, op.autocast) != (refused.op, refused.module, "") or _of_another_model(case, op):
            continue
        if op.phase not in ("forward", "recompute") and not op.phase == case.refused.phase == "optimizer":
            continue
        operands = [(i.dtype, _decision(recording, i.event)) for i in op.inputs if i.dtype in FLOATING]
        # ops with one operand, such as a transpose, ran as a part of the refused call, too
        if len(operands) > 1 and graph.place_of(recording, op.place).stack[:1] == site:
            known.append((operands, _in_program(recording, op.place)))
    return known


def _of_another_model(case: Collision, op: Op) -> bool:
    """Whether an earlier run was another model's: its weights were made again since, and then cast as a whole."""
    events = case.recording.events
    cast = {w.event for w in case.sides if w.holder == "parameter"}
    weights = [i.event for i in op.inputs if i.holder == "parameter" and i.event >= 0]
    whole = {p.event for p in case.refused.model if p.dtype in FLOATING} == cast
    if len(cast) != 1 or not weights or not whole or events[last := cast.pop()].how != "cast":
        return False
    made = _decision(case.recording, weights[0])
    return any(
        e.how == "parameter" and _decision(case.recording, n) == made
        for n, e in enumerate(events[:last])
        if n > weights[0]
    )


def _in_program(recording: Recording, place: int) -> list[Frame]:
    """The frames of the program's own code at a place, the innermost first."""
    return [f for f in graph.place_of(recording, place).stack if f.user]


def _alone(case: Collision, op: Op) -> bool:
    """Whether an op is all that its module's call runs in torch with a weight, so that it was another call."""
    named = {w.name.rpartition(".")[2] for w in case.sides if w.holder == "parameter"}
    return (op.op, op.module) == (case.refused.op, case.refused.module) and "weight" in named


def library_argument(case: Collision) -> Verdict | None:
    """What a library passes to a function of the program's own is right: the program cannot change the library.

    It applies where the value was born inside a call made by the program that has not returned yet.
    """
    stack = graph.place_of(case.recording, case.refused.place).stack
    if len(case.present) != 2 or not stack or not stack[0].user or any(w.holder for w in case.sides):
        return None
    running = set(stack[1:])
    passed = set()
    for w in case.sides:
        line = graph.lineage(case.recording, w.event)
        if line is None:
            continue
        born = graph.place_of(case.recording, line.root.place)
        if born.stack and not born.stack[0].user and line.root.explicit and born.user_frame in running:
            passed.add(w.dtype)
    if len(passed) != 1:
        return None
    dtype = passed.pop()
    return Verdict(dtype, f"the library that calls this function passes it {dtype}")


def cast_by_library(case: Collision) -> Verdict | None:
    """Weights that the program cast are right where a library cast a value to another dtype by itself.

    An accelerator that hands over what its prepared model returns in float32.
    """
    weights = {w.dtype for w in case.sides if w.holder == "parameter"}
    values = [w for w in case.sides if w.holder is None]
    if case.refused.wants != "agree" or len(weights) != 1 or len(case.present) != 2 or not values:
        return None
    held = {p.event for p in (*case.refused.model, *case.recording.parameters)}
    if not all(case.chose(w) for w in case.sides if w.holder == "parameter"):
        return None
    for w in values:
        line = graph.lineage(case.recording, w.event, next(iter(weights)))
        stack = graph.place_of(case.recording, line.root.place).stack if line is not None else ()
        if line is None or line.root.how != "cast" or not stack or stack[0].user or not line.root.explicit:
            return None
        if line.root.reads:
            return None  # it passes on what another tensor has
        if any(case.recording.events[event] is line.root for event in held if event >= 0):
            return None
    right = weights.pop()
    return Verdict(right, f"the program cast the weights to {right}, and a library cast this by itself")


def asked_in_the_call(case: Collision) -> Verdict | None:
    """What a call casts its own operand to is right where weights meet it, and the function casts back afterwards.

    A norm or a router that computes in float32, and is left with weights that a model's cast made narrow.
    """
    place = graph.place_of(case.recording, case.refused.place)
    weights = {w.dtype for w in case.sides if w.holder == "parameter"}
    values = [w for w in case.sides if w.holder is None]
    if case.refused.wants != "agree" or len(case.present) != 2 or len(weights) != 1 or len(values) != 1:
        return None
    line = graph.lineage(case.recording, values[0].event, next(iter(weights)))
    if line is None or line.root.how != "cast" or not line.root.explicit or line.root.reads:
        return None
    cast = graph.place_of(case.recording, line.root.place)
    if line.root.source != tuple(weights) or not wider(values[0].dtype, *weights):
        return None
    if not expressions.cast_inside_and_back(case.recording.text, place, cast, case.refused.op):
        return None
    return Verdict(values[0].dtype, f"this line asks for {values[0].dtype}, and its function casts back later")


# ---------------------------------------------------------------- what the operation wants


def destination(case: Collision) -> Verdict | None:
    """Where the refusal names one argument (a destination, an index), the dtype of the other operands is right."""
    refused = case.refused
    if refused.wants != "other":
        return None
    named = [w for w in case.sides if w.argument.split("[")[0] == refused.argument]
    named = named or [w for w in case.sides if ("out", w.dtype) in refused.dtypes]
    rest = [w.dtype for w in case.sides if w not in named]
    return Verdict(rest[0], f"the other operand is {rest[0]}") if named and rest else None


def weights_meet_float64(case: Collision) -> Verdict | None:
    """Weights are right where only float64 meets them and no other parameter is float64: a wider input does not make
    them more exact."""
    trained = {w.dtype for w in case.sides if w.trained}
    weights = trained or {w.dtype for w in case.sides if w.holder == "parameter"}
    floating = {w.dtype for w in case.sides if w.dtype in FLOATING}
    if len(weights) != 1 or floating - weights != {"float64"}:
        return None
    if not trained and (dict(case.refused.run).get("float64") or any(p.dtype == "float64" for p in case.refused.model)):
        return None
    kind = "the trained weights are" if trained else "its weights are"
    return Verdict(weights.pop(), f"{kind}, and a wider input does not make them more exact")


def integers_on_purpose(case: Collision) -> Verdict | None:
    """Integers that the program or a library named as such are right where floating numbers would be written into them
    in place.

    Cell numbers that were cast to int64, a BatchNorm's counter; but not what a call is given as ``out``.
    """
    into = next((w for w in case.sides if w.index == 0 and is_destination(case.refused.op, w.argument, w.index)), None)
    if case.refused.code != "DT111" or into is None or into.dtype not in INTEGERS or len(case.present) != 2:
        return None
    line = graph.lineage(case.recording, into.event)
    if line is None or not line.root.explicit or case.other(into.dtype) not in FLOATING:
        return None
    return Verdict(into.dtype, f"{into.name or 'what is written into'} was made {into.dtype} on purpose")


def integers_beside_a_default(case: Collision) -> Verdict | None:
    """Integers are right where what would be written into them in place are integers, too, which were only joined with
    zeros or ones of the default dtype."""
    into = next((w for w in case.sides if w.index == 0 and is_destination(case.refused.op, w.argument, w.index)), None)
    if case.refused.code != "DT111" or into is None or into.dtype not in INTEGERS or len(case.present) != 2:
        return None
    given = next(w for w in case.sides if w.dtype != into.dtype)
    line = graph.lineage(case.recording, given.event)
    if line is None or line.root.how != "factory" or line.root.explicit or given.dtype not in FLOATING:
        return None
    above = computed_from(case, given.producer, given.dtype)
    joined = any(tagged(op, "join") and any(i.dtype in INTEGERS for i in op.inputs) for op in above)
    if not joined or not all(tagged(op, *(_PASSES_ON if op.inputs else _ONE_NUMBER)) for op in above):
        return None
    peaks = (v.peak for v in case.recording.values if case.recording.ops[v.op] in above)
    if not all(peak.is_integer() for peak in peaks):  # full(n, 0.5): fractions belong there
        return None
    return Verdict(into.dtype, f"it was joined of integers and of {line.root.op}() without a dtype")


def what_is_sent(case: Collision) -> Verdict | None:
    """Where processes exchange tensors, the dtype of what is sent is right where the buffers that receive it only have
    the default dtype."""
    lines = [(w, graph.lineage(case.recording, w.event)) for w in case.sides]
    blank = lambda born: born.how == "factory" and not born.explicit and tagged(born.op, "blank")
    buffers = [w for w, line in lines if line is not None and blank(line.root)]
    sent = {w.dtype for w in case.sides if w not in buffers}
    if case.refused.code != "DT117" or not buffers or len(sent) != 1 or sent & {w.dtype for w in buffers}:
        return None
    return Verdict(sent.pop(), "it receives what is sent, and only has the default dtype")


_PASSES_ON = "view", "copy", "join", "picks"
_ONE_NUMBER = "blank", "fills"


def bits(case: Collision) -> Verdict | None:
    """Where an operation computes with bits, the dtype of the integers or truth values is right that floating numbers
    meet."""
    whole = {w.dtype for w in case.sides if w.dtype not in FLOATING | COMPLEX}
    if not tagged(case.refused.op, "bits") or len(whole) != 1 or whole == case.present:
        return None
    return Verdict(whole.pop(), f"{quoted(case.refused.op)} takes integers and truth values")


def floating_over_integers(case: Collision) -> Verdict | None:
    """Where one floating dtype meets integers or booleans, the floating dtype is right."""
    floating = [w.dtype for w in case.sides if w.dtype in FLOATING]
    if len(set(floating)) != 1 or len(floating) == len(case.sides):
        return None
    return Verdict(floating[0], "the other operand is floating point")


def torch_integers(case: Collision) -> Verdict | None:
    """Where integers of several widths meet, int64 is right: torch's indices, class numbers and sizes are int64."""
    if len(case.present) < 2 or not case.present <= INTEGERS or "int64" not in case.present:
        return None
    return Verdict("int64", "the other operand is int64, as torch's indices and class numbers are")


# ---------------------------------------------------------------- counts, and how each dtype was chosen


def single_number(case: Collision) -> Verdict | None:
    """An operand of one element is wrong where all others, which are larger and at least two, agree: a factor follows
    what it scales."""
    numbers = [w for w in case.sides if prod(w.shape) == 1 and w.holder is None]
    rest = {w.dtype for w in case.sides if w not in numbers}
    if (
        len(numbers) != 1
        or len(case.sides) < 3
        or len(rest) != 1
        or any(prod(w.shape) < 2 for w in case.sides if w not in numbers)
    ):
        return None
    dtype = rest.pop()
    return Verdict(dtype, f"it is one number, and all that it meets is {dtype}") if numbers[0].dtype != dtype else None


def sum_of_widened(case: Collision) -> Verdict | None:
    """Outside any module: where values that were widened on purpose are added to a running total that has the dtype of
    a narrow tensor, the total is wrong.

    An optimizer's state is none: it follows the weights on purpose.
    """
    adds = tagged(case.refused.op, "sum", "adds_at") and not tagged(case.refused.op, "store")
    if not adds or case.refused.module or case.refused.phase == "optimizer" or len(case.present) != 2:
        return None
    sums = [w for w in case.sides if is_destination(case.refused.op, w.argument, w.index)]
    values = [w for w in case.sides if w not in sums]
    if len({w.dtype for w in sums}) != 1 or len({w.dtype for w in values}) != 1:
        return None
    events = case.recording.events
    copied = all(w.event >= 0 and events[w.event].how == "factory" and events[w.event].reads for w in sums)
    wide = values[0].dtype
    if not copied or bytes_of(wide) <= bytes_of(sums[0].dtype) or any(_cast_from(case, w) is None for w in values):
        return None
    into = "the tensor they are added to only took its dtype from another tensor"
    return Verdict(wide, f"the values that are added were cast to {wide} on purpose; {into}")


def _cast_from(case: Collision, witness: Witness) -> int | None:
    """The event of what a side was cast from, by the program's own cast, out of the other side's dtype; None where it
    was not."""
    line = graph.lineage(case.recording, witness.event)
    if line is None or line.root.how != "cast" or not line.root.explicit:
        return None
    root = line.root
    casts = (o for o in case.recording.ops if is_cast(o) and o.place == root.place and o.outputs[:1] == (root.to,))
    other = case.present - {witness.dtype}
    return next((o.inputs[0].event for o in casts if o.inputs and o.inputs[0].dtype in other), None)


def most_operands(case: Collision) -> Verdict | None:
    """The dtype of most operands is right. Here all parameters and buffers of one dtype count once, and tensors of
    no dimensions do not count.
    """
    held = ("parameter", "buffer")
    voices = Counter(
        dtype for dtype, _ in {(w.dtype, -1 if w.holder in held else w.index) for w in case.sides if w.shape}
    )
    if len(voices) != 2:
        return None
    (dtype, count), (_, fewer) = voices.most_common(2)
    return Verdict(dtype, f"most operands are {dtype}") if count > fewer else None


def default_of_the_program(case: Collision) -> Verdict | None:
    """A default dtype that the program set, and that still holds, is right where the other operand only turned truth
    values or integers into numbers: ``mask.float()`` asks for numbers, not for their precision."""
    lines = {w.dtype: graph.lineage(case.recording, w.event) for w in case.sides}
    roots = {dtype: line.root for dtype, line in lines.items() if line is not None}
    if len(case.present) != 2 or len(roots) != 2:
        return None
    set_by = {d for d, r in roots.items() if r.default >= 0 and not r.explicit and not took_what_was_left(case, r)}
    if len(set_by) != 1:
        return None
    dtype = set_by.pop()
    other = roots[case.other(dtype)]
    if other.how != "cast" or other.reads or not other.source or FLOATING.intersection(other.source):
        return None
    return Verdict(
        dtype, f"the program set {dtype} as its default dtype; only numbers made from {other.source[0]} are {other.to}"
    )


def made_like_the_data(case: Collision) -> Verdict | None:
    """A dtype that a function reads from its data for what it makes is right where it meets a tensor that the function
    made beside, in the default dtype."""
    events = case.recording.events
    if len(case.present) != 2:
        return None
    for side in case.sides:
        line = graph.lineage(case.recording, side.event)
        root = line.root if line is not None else None
        if root is None or root.how != "factory" or root.explicit or root.reads or root.default >= 0:
            continue
        right, here = case.other(side.dtype), _function(case, root)
        if here and any(
            e.how == "factory" and e.to == right and e.reads and _function(case, e) == here for e in events
        ):
            return Verdict(right, f"{here[1]}() makes other tensors in the {right} of its data")
    return None


def _function(case: Collision, event: Event) -> tuple[str, str] | None:
    """The program's function, with its file, in which an event took place."""
    frame = next(iter(graph.place_of(case.recording, event.place).stack), None)
    return (frame.file, frame.function) if frame is not None and frame.user else None


def chosen_on_purpose(case: Collision) -> Verdict | None:
    """A dtype that the program or autocast chose is right, and one that comes from a default is wrong."""
    chosen = {w.dtype for w in case.sides if case.chose(w)}
    fallen = case.present - chosen
    if len(chosen) != 1 or not fallen:
        return None
    dtype = chosen.pop()
    comes = "comes" if len(fallen) == 1 else "come"
    return Verdict(dtype, f"{dtype} was chosen on purpose, and {' and '.join(sorted(fallen))} {comes} from a default")


def narrower(case: Collision) -> Verdict | None:
    """Last, of the dtypes with equally many operands, the narrowest is right: a stray wide tensor is the commonest
    mistake."""
    counts = Counter(w.dtype for w in case.sides)
    most = [dtype for dtype, count in counts.items() if count == max(counts.values())]
    return Verdict(min(most, key=bytes_of)) if most else None


PRINCIPLES: tuple[Principle, ...] = (
    storage_format,
    complex_beside_real,
    widened_destination,
    changed_later,
    fused_path,
    named_by_exception,
    autocast_narrowed,
    autocast_left,
    cast_in_forward,
    made_like_another,
    autocast_region,
    gathered_weights,
    left_cast,
    ran_before,
    library_argument,
    cast_by_library,
    asked_in_the_call,
    bits,
    integers_on_purpose,
    integers_beside_a_default,
    what_is_sent,
    single_number,
    trained_outside,
    trained_beside_frozen,
    sum_of_widened,
    float64_from_numpy,
    default_left_behind,
    taken_from_file,
    cast_of_a_part,
    default_yields,
    cast_where_used,
    most_parameters,
    destination,
    weights_meet_float64,
    floating_over_integers,
    torch_integers,
    most_operands,
    default_of_the_program,
    made_like_the_data,
    chosen_on_purpose,
    narrower,
)
"""In the order in which they are tried."""


def name_of(rule: Callable[[Any], Any]) -> str:
    """The name of a principle, or of a strategy, as findings, JSON and CONTRIBUTING have it: ``most parameters``."""
    return rule.__name__.replace("_", " ")
