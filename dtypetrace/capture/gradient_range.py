"""Whether gradients leave their range: one of them is summed at the end of each step, and no device is waited for."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import torch

from . import private
from .increments import is_plain

Tensor = torch.Tensor
_LARGEST = 1 << 16
"""Elements of a gradient that is summed."""
_FIRST = 16
"""Parameters of which the first with such a gradient is taken: what is not finite spreads to the first ones."""
_KNOWN, _FAR = 8, 16.0
"""After so many steps the range is known; it is left by a sum that is so many times the largest before."""


class GradientRange:
    """The sums of the absolute values of one gradient, step by step."""

    def __init__(self) -> None:
        self._steps = 0
        self._largest = 0.0
        self._landing: Tensor | None = None
        """Where the sum of the step before arrives from an accelerator."""

    def leaves(self, optimizer: Any) -> str:
        """An optimizer's step has ended: how its gradient left its range, that of the step before on an accelerator;
        empty where it did not."""
        try:
            with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
                size = self._size(optimizer)
        except RuntimeError:  # a device that has no memory left, or no sum of this kind
            return ""
        if size is None:
            return ""
        if not math.isfinite(size):
            return "a gradient that is not finite"
        self._steps += 1
        before, self._largest = self._largest, max(size, self._largest)
        return "a gradient that left its range" if self._steps > _KNOWN and size > _FAR * before else ""

    def _size(self, optimizer: Any) -> float | None:
        groups = getattr(optimizer, "param_groups", None)
        if not groups:
            return None
        gradients = (p.grad for p in islice(groups[0]["params"], _FIRST))
        found = next((g for g in gradients if g is not None and g.numel() <= _LARGEST and is_plain(g)), None)
        if found is None:
            return None
        if found.device.type == "cpu":
            return float(_sum(found))
        if found.device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            return None
        if self._landing is None:
            self._landing = torch.zeros((), pin_memory=True)
        before = float(self._landing)
        self._landing.copy_(_sum(found), non_blocking=True)
        return before


def _sum(gradient: Tensor) -> Tensor:
    return torch.linalg.vector_norm(gradient, 1, dtype=torch.float32 if gradient.dtype.itemsize < 4 else None)
