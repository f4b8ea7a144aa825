"""The principles that ask the parameters: which of them an optimizer trains, where they got their dtypes, and which
dtype most of them have. ``principles`` has the order in which all are tried.
"""

from __future__ import annotations

from .. import graph
from ..records import FORWARD, Event, Op, Parameter
from ..tables.dtypes import FLOATING, HALF, bytes_of
from ..tables.operators import flops, is_cast
from . import titles
from .autocast_off import ran_under
from .collision import Collision, Majority, Verdict


def trained_outside(case: Collision) -> Verdict | None:
    """Outside any model, where weights that an optimizer trains meet narrower tensors (an average, a difference), the
    dtype of the weights is right.

    What layers made is no such tensor: there the weights are a layer that is no module (an adapter in a plain class).
    """
    trained = {w.dtype for w in case.sides if w.trained}
    if case.refused.model and case.refused.module or len(trained) != 1 or len(case.present) != 2:
        return None
    dtype = trained.pop()
    narrow = case.other(dtype)
    if bytes_of(narrow) >= bytes_of(dtype):
        return None
    values = (w.producer for w in case.sides if w.dtype == narrow and w.producer >= 0)
    if any(op.module for producer in values for op in computed_from(case, producer, narrow)):
        return None
    return Verdict(dtype, f"the other operand is trained in {dtype}")


def trained_beside_frozen(case: Collision) -> Verdict | None:
    """Weights that an optimizer trains are right where the result of frozen weights meets them, if other trained
    weights have computed in the same dtype before.

    A student beside its teacher, or a classifier on features; but not the first adapter in the layers of a model.
    """
    trained = {w.dtype for w in case.sides if w.trained}
    values = [w for w in case.sides if w.holder is None]
    if len(trained) != 1 or len(case.present) != 2 or any(w.dtype in trained for w in values):
        return None
    dtype, ops = trained.pop(), case.recording.ops
    moved = {p.event for p in case.refused.model if p.trained}
    weights = {event for w in values for event in _weights_above(case, w.producer, case.other(dtype))}
    if not weights or weights & moved or ran_under(case.recording, case.refused):
        return None
    before = ops[: case.refused.after if case.refused.after >= 0 else None]
    ran = (op for op in before if flops(op) and op.phase in FORWARD and op.outputs[:1] == (dtype,))
    ran = (op for op in ran if any(i.event in moved and i.dtype == dtype for i in op.inputs))
    if all(_casts_for_itself(case, op, case.other(dtype)) for op in ran):
        return None
    return Verdict(
        dtype, f"other trained weights have computed in {dtype}, and {case.other(dtype)} comes from frozen ones"
    )


def _casts_for_itself(case: Collision, op: Op, narrow: str) -> bool:
    """Whether a library cast a narrow value just for this op or those before it, as adapters do: that is no work in a
    wider dtype."""
    ops = case.recording.ops
    values = [i.producer for i in op.inputs if i.holder is None and i.producer >= 0]
    above = (ops[n] for value in values for n in graph.first_operands(ops, value))
    cast = next((o for o in above if is_cast(o)), None)
    narrowed = cast is not None and any(i.dtype == narrow for i in cast.inputs)
    return narrowed and cast is not None and not graph.runs_own_line(case.recording, cast)


def float64_from_numpy(case: Collision) -> Verdict | None:
    """Parameters that are float64 only because numpy made them so are wrong where they meet another dtype."""
    most = case.majority
    if most is None or most.dtype != "float64" or len(case.present) != 2:
        return None
    lines = (graph.lineage(case.recording, p.event) for p in case.refused.model if p.dtype == "float64")
    roots = [line.root for line in lines if line is not None]
    if not roots or not all(root.how == "conversion" and not root.explicit and root.default < 0 for root in roots):
        return None
    return Verdict(
        case.other("float64"), f"the parameters of the {most.scope} are float64 only because numpy made them"
    )


def default_left_behind(case: Collision) -> Verdict | None:
    """Parameters that only have the default dtype, which a function set and left behind, are wrong where they meet a
    dtype that the program named."""
    most = case.majority
    if most is None or len(case.present) != 2 or most.dtype not in case.present:
        return None
    other = case.other(most.dtype)
    lines = (graph.lineage(case.recording, p.event) for p in case.refused.model if p.dtype == most.dtype)
    roots = [line.root for line in lines if line is not None]
    if not roots or not all(took_what_was_left(case, root) for root in roots):
        return None
    if not all(case.chose(w) for w in case.sides if w.dtype == other):
        return None
    return Verdict(other, f"the parameters are {most.dtype} only because the default dtype was left so")


def took_what_was_left(case: Collision, root: Event) -> bool:
    """Whether a dtype is the default that a function had set which has returned since."""
    if root.explicit or root.default < 0:
        return False
    setting = graph.place_of(case.recording, root.default).stack[:1]
    running = graph.place_of(case.recording, root.place).stack
    return any(
        f.function != "<module>" and all((f.file, f.function) != (r.file, r.function) for r in running) for f in setting
    )


def taken_from_file(case: Collision) -> Verdict | None:
    """Weights that took a checkpoint's dtype by being assigned are wrong where they meet the dtype that the model had
    before, and no line after the load names the checkpoint's.

    A load that copies keeps the model's dtype.
    """
    events, weights = case.recording.events, [w for w in case.sides if w.holder == "parameter"]
    loads = {w.event for w in weights}
    if case.refused.wants != "agree" or len(loads) != 1 or len(case.present) != 2 or not weights[0].name:
        return None
    load, loaded = loads.pop(), weights[0].dtype
    wanted, model = case.other(loaded), {p.event for p in case.refused.model if p.dtype == loaded}
    if load < 0 or events[load].how != "load" or loaded not in FLOATING or model != {load}:
        return None
    own = {w.name.rpartition(".")[2] for w in weights}
    made = max((n for n, e in enumerate(events[:load]) if e.how == "parameter" and e.name in own), default=-1)
    lines = [graph.lineage(case.recording, w.event) for w in case.sides if w.dtype == wanted]
    others = {line.root for line in lines if line is not None}
    cast = [e for e in events[made + 1 : load] if e.how == "cast" and e.explicit and e not in others]
    named = [e for e in events[load + 1 :] if e.to == loaded and (e.explicit or e.reads)]
    if made < 0 or (cast or [events[made]])[-1].to != wanted or named:
        return None
    if any(u.dtype == loaded for u in case.recording.unchanged) or case.refused.autocast.endswith(f":{loaded}"):
        return None
    return Verdict(wanted, f"the model was {wanted} until the load, and nothing after it names {loaded}")


def cast_of_a_part(case: Collision) -> Verdict | None:
    """Where only a part of a model was cast, its result is wrong where it meets the weights of the rest, and its
    weights are wrong where a result of the rest meets them.

    Or what is computed from trained ones of these, or from weights that were cast before. Both are on purpose, however
    many weights each has. A cast that covered all that the model had is none of a part.
    """
    sides, events = case.sides, case.recording.events
    trained = {p.event for p in case.refused.model if p.trained}
    cast = {p.event for p in case.refused.model if p.event >= 0 and events[p.event].how == "cast"}
    above = {dtype: _weights_of(case, dtype) for dtype in case.present}
    rests = {w.dtype for w in sides if w.holder == "parameter"}
    rests = rests or {dtype for dtype, known in above.items() if known & trained}
    rests = rests or {dtype for dtype, known in above.items() if known & cast}
    if case.refused.wants not in ("agree", "other") or len(case.present) != 2:
        return None
    found = [rest for rest in rests if _cast_later(case, cast, rest, above[case.other(rest)])]
    if not found and len(rests) == 1 and above[other := case.other(*rests)] & cast:  # what enters that part
        weights = {w.event for w in sides if w.holder == "parameter"}
        found = [other] if _cast_later(case, cast, other, weights) else []
    if len(found) != 1 or len(rests) == 2 and not rests <= {events[n].to for n in cast}:
        return None
    rest = found[0]
    return Verdict(rest, f"only a part of the model was cast to {case.other(rest)}, and the rest was left {rest}")


def _cast_later(case: Collision, cast: set[int], rest: str, passed: set[int]) -> bool:
    """Whether weights that made the values of one side were cast after those of the rest had their dtype."""
    left = [p.event for p in case.refused.model if p.dtype == rest and p.event >= 0]
    part = {p.event for p in case.refused.model if p.dtype == case.other(rest)}
    return any(made < later for made in left for later in cast & part & passed)


def _weights_of(case: Collision, dtype: str) -> set[int]:
    """The events of the sides of a dtype, and of the parameters that these were computed with."""
    values = [w for w in case.sides if w.dtype == dtype]
    return {event for w in values for event in (w.event, *_weights_above(case, w.producer, dtype))}


def _weights_above(case: Collision, producer: int, dtype: str) -> set[int]:
    """The events of the parameters that a value was computed with, as long as it had a dtype."""
    above = computed_from(case, producer, dtype)
    return {i.event for op in above for i in op.inputs if i.dtype == dtype and i.holder == "parameter"}


def computed_from(case: Collision, producer: int, dtype: str) -> list[Op]:
    """The ops that a value was computed with, as long as it had a dtype."""
    ops = case.recording.ops
    above = graph.ops_above(ops, [producer], lambda op: [i for i in op.inputs if i.dtype == dtype])
    return [ops[n] for n in above]


def default_yields(case: Collision) -> Verdict | None:
    """Parameters that are float32 only by default are wrong where they meet a half dtype that the run decided on in
    several places.

    One cast alone is no decision for the run. A parameter of the half dtype is judged against its own model. Weights
    that are trained in float32 next to frozen half ones are so on purpose, and so are those of a call that ran under
    autocast before.
    """
    most = case.majority
    rivals = case.present & HALF
    if most is None or most.dtype in HALF or len(rivals) != 1 or case.refused.phase not in ("forward", "recompute"):
        return None
    rival = next(iter(rivals))
    parameters = [w for w in case.sides if w.holder == "parameter"]
    if not any(w.dtype == most.dtype for w in parameters) or any(w.dtype == rival for w in parameters):
        return None
    if any(w.dtype == most.dtype and w.trained for w in case.sides) or ran_under(case.recording, case.refused):
        return None
    if not all(_by_default(case, p, rival) for p in case.refused.model):
        return None
    if len(_decisions(case, rival)) < 2:
        return None
    reason = f"the parameters of the {most.scope} are {most.dtype} only by default; the program chose {rival}"
    return Verdict(rival, reason)


def _by_default(case: Collision, parameter: Parameter, rival: str) -> bool:
    """Whether a parameter has its dtype because nobody named one, and is not of the rival's dtype.

    ``vae.to(torch.float32)`` names one, though it changes nothing.
    """
    recording = case.recording
    if any(u.event == parameter.event and u.dtype == parameter.dtype and not u.reads for u in recording.unchanged):
        return False
    line = graph.lineage(case.recording, parameter.event)
    return (
        parameter.dtype != rival
        and line is not None
        and not line.root.explicit
        and line.root.how not in ("input", "load")
    )


def _decisions(case: Collision, dtype: str) -> set[tuple[object, ...]]:
    """The lines that named a dtype themselves, outside any module; ``.to(y.dtype)`` repeats a decision and makes
    none, and so does reading what the run itself wrote."""
    recording = case.recording
    events = (s for n, s in enumerate(recording.events) if s.how != "load" or graph.written_before(recording, n) < 0)
    named = [s for s in events if s.explicit and s.to == dtype and not s.module]
    repeats = {s.place for s in named if s.reads}
    return {graph.place_of(recording, s.place).stack[:1] for s in named if s.place not in repeats}


def cast_where_used(case: Collision) -> Verdict | None:
    """A model that casts its weights to one other dtype for its products computes in that: theirs is for storage.
    Autocast casts them, too, and is asked before."""
    most = case.majority
    if most is None or ran_under(case.recording, case.refused):
        return None
    ops, cast, plain = case.recording.ops, list[str](), 0
    for op in ops:
        for weight in op.inputs if op.phase in FORWARD and flops(op) and not op.autocast else ():
            made = ops[weight.producer] if weight.producer >= 0 else None
            if weight.holder == "parameter" and weight.dtype == most.dtype:
                plain += 1
            elif made is not None and is_cast(made) and made.inputs[0].holder == "parameter":
                cast.append(weight.dtype)
    if len(set(cast)) != 1 or cast[0] not in case.present or len(cast) <= plain:
        return None
    dtype = cast[0]
    return Verdict(dtype, f"the model casts its {most.dtype} weights to {dtype} where it uses them", although=True)


def most_parameters(case: Collision) -> Verdict | None:
    """A model agrees with itself: the dtype of most of its other parameters is right, or else the dtype of most
    parameters of the run."""
    most = case.majority
    if most is None:
        return None
    many = "all" if most.share == 1 else "almost all" if most.share >= 0.995 else f"{most.share:.0%} of the"
    other = "other " if any(w.holder == "parameter" and w.dtype != most.dtype for w in case.sides) else ""
    model = f"{most.scope}{_except(case, most) if most.share == 1 and not other else ''}"
    return Verdict(most.dtype, f"{many} {other}parameters of the {model} are {most.shown}", although=True)


def _except(case: Collision, most: Majority) -> str:
    """The parameters that were not counted, because what is refused got its dtype from them."""
    names = [p.name for p in case.refused.model if p.dtype in FLOATING and p.dtype != most.dtype]
    counted = most.scope == "model" and most.shown == most.dtype  # else complex numbers are compared
    return f", except {titles.shared(names[:1], len(names))}," if names and counted else ""
