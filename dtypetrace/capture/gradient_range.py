"""Whether gradients leave their range: one of them is summed at the end of some steps, and no device is waited for."""

from __future__ import annotations

import math
import weakref
from itertools import islice
from typing import Any

import torch

from . import private
from .increments import is_plain

Tensor = torch.Tensor
_LARGEST = 1 << 16
"""Elements of a gradient that is summed."""
_FEWEST = 64
"""Elements of a gradient that is taken where there is one: the sum of fewer varies much by itself."""
_FIRST = 16
"""Parameters of which one with a small gradient is taken: what is not finite spreads to the first ones."""
_KNOWN, _FAR = 8, 16.0
"""After so many steps the range is known; it is left by a sum that is so many times the largest before."""


class GradientRange:
    """The sums of the absolute values of one gradient, in those steps that are looked at."""

    def __init__(self) -> None:
        self._steps = 0
        self._largest = 0.0
        self._parameter: weakref.ref[Any] = weakref.ref(GradientRange)
        """The one whose gradient is summed."""
        self._landing: Tensor | None = None
        """Where the sum of the step before arrives from an accelerator."""

    def leaves(self, optimizer: Any) -> str:
        """An optimizer's step has ended: how its gradient left its range, that of the last such step on an accelerator;
        empty where it did not."""
        try:
            if not private.dispatch_mode_count() + private.function_mode_count():  # guards take as long as the sum
                size = self._size(optimizer)
            else:
                with private.DisableTorchFunction(), private.DisableTorchDispatch():
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
        gradient = getattr(self._parameter(), "grad", None)
        if gradient is None and (gradient := self._choose(optimizer)) is None:
            return None
        if gradient.requires_grad:  # with create_graph, the sum would become a part of the program's graph
            gradient = gradient.detach()
        if gradient.is_cpu:
            return float(_sum(gradient))
        if not gradient.is_cuda or torch.cuda.is_current_stream_capturing():
            return None
        if self._landing is None:
            self._landing = torch.zeros((), pin_memory=True)
        before = float(self._landing)
        self._landing.copy_(_sum(gradient), non_blocking=True)
        return before

    def _choose(self, optimizer: Any) -> Tensor | None:
        """A small gradient of the first parameters, None where there is none to sum."""
        groups = getattr(optimizer, "param_groups", None) or [{"params": ()}]
        found = None
        for parameter in islice(groups[0]["params"], _FIRST):
            gradient = parameter.grad
            fits = gradient is not None and gradient.numel() <= _LARGEST and is_plain(gradient)
            if fits and (found is None or _fitness(gradient) < _fitness(found.grad)):
                found = parameter
        if found is None:
            return None
        self._parameter = weakref.ref(found)
        return found.grad


def _fitness(gradient: Tensor) -> tuple[bool, int]:
    """Less is better: a small one is read fast."""
    return gradient.numel() < _FEWEST, gradient.numel()


def _sum(gradient: Tensor) -> Tensor:
    return torch.linalg.vector_norm(gradient, 1, dtype=torch.float32 if gradient.dtype.itemsize < 4 else None)
