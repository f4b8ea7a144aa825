"""The lines to type so that trained weights stay in float32 and autocast computes in half, for findings about training.

They are words and no diff: an autocast region needs a statement of its own, and without it the edit of the weights
alone may lead to a collision.
"""

from __future__ import annotations

from ..records import Origin, Recording
from ..source import editing
from .case import short
from .ranges import scaled

_FORWARD = ("forward", "recompute")


def advice(recording: Recording, origin: Origin, dtype: str) -> str:
    """What to change, with the lines to type as far as the recording and the text show them; ``dtype`` is half."""
    lines = tuple(_lines(recording, origin, dtype))
    words = f"keep the weights that are trained in float32, and compute in {dtype} by autocast"
    return f"{words}: {'; '.join(lines)}" if lines else words


def _lines(recording: Recording, origin: Origin, dtype: str) -> list[str]:
    found = []
    edit = editing.at_birth(recording, origin.kind, origin.place, "float32") if origin.place.stack else None
    if edit is not None:
        found.append(f"write {edit.after} for {edit.before} at {short(origin.place)}")
    forward = [op for op in recording.ops if op.phase in _FORWARD]
    if forward and not any(op.autocast for op in forward):
        device = next((op.device for op in forward if op.device), "cpu").partition(":")[0]
        found.append(f'put the forward under torch.autocast("{device}", dtype=torch.{dtype})')
        if dtype == "float16" and not scaled(recording):
            found.append("scale the loss by torch.amp.GradScaler")
    return found
