"""Autocast's casts of weights that were used after an optimizer's step, or a write, had changed the weight.

Autocast casts a weight once and keeps the copy until the outermost region ends. Where a region spans several steps,
what runs in it after the first one computes with the weights from before it. The copies are compared with their weights
when a step ends, so a region around one forward pass, which has ended by then, costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from . import private
from .marks import Ref
from .ops import GrowingOp
from .totals import Totals
from .updates import sample

Tensor = torch.Tensor
_STEPS = 16
"""Steps after which nothing more is compared: a region that spans so many is not left soon."""


class _Held:
    """A weight, the copy that autocast keeps of it, and what was seen of both when the last step ended."""

    __slots__ = ("weight", "copy", "uses", "changed")

    def __init__(self, weight: Tensor, copy: Tensor) -> None:
        self.weight, self.copy = Ref(weight), Ref(copy)
        self.uses = 0
        """Calls that had taken the copy by then."""
        self.changed: Tensor | None = None
        """Whether the weight had another value by then than its copy; None before the first step."""


class CachedCasts:
    """The copies of one run, by the op that cast."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}
        self._stale = Totals[int]("stale", whole=True)
        """Steps after which the copy was used although the weight had changed."""
        self._steps = 0

    def saw(self, number: int, weight: Tensor, copy: Tensor) -> None:
        """Autocast has cast a weight, in op ``number``."""
        if self._steps < _STEPS:
            self._held[number] = _Held(weight, copy)

    def rest(self) -> None:
        """Drops the references to tensors."""
        self._held.clear()

    def step_ended(self, ops: Sequence[GrowingOp]) -> None:
        """An optimizer's step has ended: compares the copies that autocast still keeps."""
        live = {n: h for n, h in self._held.items() if h.weight() is not None and h.copy() is not None}
        self._held = live
        if not live:
            return
        self._steps += 1
        uses = dict.fromkeys(live, 0)
        for op in ops:
            for operand in op.inputs:
                if operand.producer in uses:
                    uses[operand.producer] += op.count
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
            for number, held in live.items():
                if held.changed is not None and uses[number] > held.uses:
                    self._stale.add(number, held.changed)
                held.uses, held.changed = uses[number], _differs(held.weight(), held.copy())
        if self._steps >= _STEPS:
            self.rest()

    def read(self) -> dict[int, int]:
        """Steps after which a copy was used although its weight had changed, by op. Waits for the device."""
        return {number: int(row["stale"]) for number, row in self._stale.read().items()}


def _differs(weight: Tensor | None, copy: Tensor | None) -> Tensor | None:
    """Whether a sample of a weight, cast again, differs from that of its copy; as a count of 0 or 1."""
    if weight is None or copy is None or copy.numel() != weight.numel():
        return None
    return (sample(weight.detach()).to(copy.dtype) != sample(copy.detach())).any().long()
