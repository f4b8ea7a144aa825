"""What optimizer steps did to weights (DT303, DT304), and which gradients were lost before them, compared with the same
steps in higher precision."""

from __future__ import annotations

from collections.abc import Iterable

from .. import graph
from ..records import Compared, Finding, Fix, FlowStep, Operand, Recording
from ..tables.dtypes import HALF
from . import titles, training, wide_weights
from .losses import LOST
from .making import At, silent_finding
from .mechanisms import mechanism

_KINDS = {"DT301": "overflow", "DT303": "underflow", "DT304": "lost-update"}
_STRUCTURAL = 1e-3
"""A gradient smaller than the model's largest by this factor cancels by structure (a bias before a softmax): what is
left is noise."""
_NOTHING = 1e-6
"""A gradient smaller than the model's largest by this factor does not count, even if all its digits are right."""
_STATE = 0.05
_TOO_FAR = 2.0
_SHOWN = 8


def lost_gradients(recording: Recording) -> list[Compared]:
    """Gradients that have lost so much that they are useless."""
    gradients = [c for c in recording.compared if c.what == "gradient" and c.steps]
    largest = max((c.size for c in gradients), default=0.0)
    unmoved = {c.name for c in recording.compared if c.what == "update" and c.arrived < LOST and c.dtype not in HALF}
    found = []
    for c in gradients:
        gone = c.zero >= LOST * c.steps and c.size > _NOTHING * largest
        off = c.error >= LOST and c.arrived < LOST and c.lost >= LOST and c.size > _STRUCTURAL * largest
        # the large numbers arrive, but a step that needs the small ones does not
        thin = c.flushed >= LOST and c.name in unmoved
        if gone or off or thin or c.spoiled:
            found.append(c)
    return found


def find(recording: Recording, starved: set[str]) -> Iterable[Finding]:
    """DT303 and DT304: what steps did to weights, compared with what they would have done."""
    groups: dict[tuple[object, ...], list[Compared]] = {}
    updates = [c for c in recording.compared if c.what == "update"]
    for lost, c in _lost_updates(recording):
        if c.name not in starved:
            origin = graph.origin(recording, c.event, c.dtype, c.name)
            groups.setdefault((lost, c.dtype, origin.place.stack[-3:], c.place), []).append(c)
    states = _lost_states(recording)
    for (code, *_), members in groups.items():
        same = [c for c in updates if c.place == members[0].place]
        dead = (
            code == "DT304"
            and all(c.zero == c.steps for c in same)
            or code == "DT303"
            and any(c.spoiled for c in members)
        )
        yield _of_parameters(recording, str(code), members, states, dead)


def _lost_states(recording: Recording) -> dict[str, list[Compared]]:
    """The parts of the optimizer's state that are zero where the reference's are not, by the parameter's name."""
    states: dict[str, list[Compared]] = {}
    for c in recording.compared:
        if c.what not in ("gradient", "update") and c.flushed > _STATE:
            states.setdefault(c.name, []).append(c)
    return states


def _lost_updates(recording: Recording) -> Iterable[tuple[str, Compared]]:
    """The updates that did not arrive, each with the code of its finding."""
    states = _lost_states(recording)
    pulled = {c.name for c in recording.compared if c.what == "gradient" and c.steps}
    moved = {u.name for u in recording.updates if mechanism(u).name == "healthy"}
    for c in recording.compared:
        # what a compensation keeps of one step arrives in a later one: then the run as a whole moves the weights
        late = c.name in moved and c.arrived >= LOST / 2 and not c.spoiled
        if c.what == "update" and not late:
            lost = _code(c, states.get(c.name, []), c.name in pulled)
            if lost is not None:
                yield lost, c


def lost_steps(recording: Recording) -> dict[str, str]:
    """What optimizer steps should have done in higher precision and did not, in words, by the weight's name."""
    found = {c.name: f"its gradient would be {c.size:.2g}, and {_arrived(c)}" for c in lost_gradients(recording)}
    for _, c in _lost_updates(recording):
        found.setdefault(c.name, f"a step would change it by {c.size:.1g}, and {_arrived(c)}" if c.steps else _STILL)
    return found


_STILL = "its step changes nothing"
_MORE = 1.5
"""From here on, what arrives is said as a multiple and not as a share."""


def _arrived(c: Compared) -> str:
    if c.spoiled:
        return "it is infinite or NaN"
    if c.arrived >= _MORE:
        return f"{c.arrived:.1f} times as much arrives"
    return f"{c.arrived:.0%} of that arrives" if c.arrived >= 0.005 else "nothing of that arrives"


def _code(c: Compared, states: list[Compared], pulled: bool) -> str | None:
    if (
        not c.steps
    ):  # because of lost numbers the step changed nothing, and the reference follows the program's decisions
        return "DT304" if pulled and any(s.flushed >= LOST for s in states) else None
    if c.spoiled:
        return "DT303" if states else "DT301"
    if c.flushed >= LOST and c.arrived < LOST:
        return "DT304"
    return "DT303" if states and c.arrived > _TOO_FAR else None


def _of_parameters(
    recording: Recording, code: str, members: list[Compared], states: dict[str, list[Compared]], dead: bool
) -> Finding:
    worst = max(members, key=lambda c: (len(states.get(c.name, [])), c.size))
    updates = [u for u in recording.updates if u.name in {c.name for c in members}]
    optimizer = updates[0].optimizer if updates else "the optimizer"
    site = graph.place_of(recording, worst.place)
    operands = tuple(
        Operand(i, c.name, c.dtype, c.shape, "", "parameter", graph.origin(recording, c.event, c.dtype, c.name))
        for i, c in enumerate([worst, *(m for m in members if m is not worst)][:_SHOWN])
    )
    still = dead or all(c.zero == c.steps for c in members)
    said = {
        "DT301": f"{optimizer}'s step makes these weights infinite or NaN",
        "DT303": f"{optimizer}'s step makes these weights infinite, NaN or far too large",
        "DT304": f"{optimizer}'s step changed {'none' if still else 'few of the numbers'} of these weights",
    }[code]
    many = titles.shared([worst.name], len(members))
    does = "it makes numbers infinite or NaN" if worst.spoiled else _arrived(worst)
    them = "it" if len(members) == 1 else "each of them"
    due = f"a step should change {them} by {worst.size:.1g}, but {does}"
    facts = [f"{many}: {due if worst.steps else _STILL}"]
    for s in states.get(worst.name, []):
        there = f"in higher precision they are not ({s.size:.1g} on average)"
        facts.append(f"{s.what}: {s.flushed:.0%} of the numbers are zero; {there}")
    origin = operands[0].origin
    birth = training.birth(
        recording, worst.event, origin, f"{worst.dtype} weights, such as {worst.name}, are made here"
    )
    change, lines = wide_weights.advice(recording, origin, worst.dtype, site)
    instead = training.other_optimizer(worst.dtype) if worst.dtype in HALF else ()
    if worst.dtype not in HALF and not any(training.is_quantity(u) for u in updates):  # its own dtype is not to blame
        narrow = any(s.dtype in HALF for s in states.get(worst.name, []))
        change = f"keep {'the state of the optimizer' if narrow else 'what this step is computed from'} in float32"
    return silent_finding(
        code,
        _KINDS[code],
        At.step(site, worst.name.rpartition(".")[0]),
        severity="error" if dead else "warning",
        title=titles.training(code, updates, still, int(recording.meta.get("steps", 0))) if updates else "",
        count=sum(c.steps for c in members),
        operands=operands,
        flow=(*birth, FlowStep(site, "step", "", worst.dtype, worst.dtype, "value", said=said)),
        fix=Fix("plan", origin.place, (), False, change, instead, lines=lines),
        notes=tuple(facts),
    )
