"""Which optimizer steps, and which gradients before them, were lost, compared with the same steps in higher
precision."""

from __future__ import annotations

from ..records import Compared, Recording
from ..tables.dtypes import HALF
from .losses import LOST
from .mechanisms import mechanism

_STRUCTURAL = 1e-3
"""A gradient smaller than the model's largest by this factor cancels by structure (a bias before a softmax): what is
left is noise."""
_NOTHING = 1e-6
"""A gradient smaller than the model's largest by this factor does not count, even if all its digits are right."""
_STATE = 0.05
_TOO_FAR = 2.0


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


def _lost_states(recording: Recording) -> dict[str, list[Compared]]:
    """The parts of the optimizer's state that are zero where the reference's are not, by the parameter's name."""
    states: dict[str, list[Compared]] = {}
    for c in recording.compared:
        if c.what not in ("gradient", "update") and c.flushed > _STATE:
            states.setdefault(c.name, []).append(c)
    return states


def lost_steps(recording: Recording) -> dict[str, str]:
    """What optimizer steps should have done in higher precision and did not, in words, by the weight's name."""
    found = {c.name: f"its gradient would be {c.size:.2g}, and {_arrived(c)}" for c in lost_gradients(recording)}
    states = _lost_states(recording)
    pulled = {c.name for c in recording.compared if c.what == "gradient" and c.steps}
    moved = {u.name for u in recording.updates if mechanism(u).name == "healthy"}
    for c in recording.compared:
        # what a compensation keeps of one step arrives in a later one: then the run as a whole moves the weights
        late = c.name in moved and c.arrived >= LOST / 2 and not c.spoiled
        if c.what == "update" and not late and _lost(c, states.get(c.name, []), c.name in pulled):
            found.setdefault(
                c.name, f"a step would change it by {c.size:.1g}, and {_arrived(c)}" if c.steps else _STILL
            )
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


def _lost(c: Compared, states: list[Compared], pulled: bool) -> bool:
    """Whether an update did not arrive, or what arrived is of no use. ``states``: what is zero of the optimizer's."""
    if not c.steps:  # lost numbers made the step change nothing, and the reference follows the program's decisions
        return pulled and any(s.flushed >= LOST for s in states)
    return bool(c.spoiled) or c.flushed >= LOST and c.arrived < LOST or bool(states) and c.arrived > _TOO_FAR
