"""The first steps of a training in higher precision: spot checks until the program has an optimizer and ops in 16 bits,
then a reference.

For a run whose findings are compared with those of another run: the errors of ops are read as those of spot checks, so
that both are judged by the same rules. What its optimizers' steps did is compared with the reference in addition. A
program without ops in 16 bits, or without an optimizer, pays for nothing more than spot checks.
Compiled regions are computed once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..capture.recorder import Recorder
from ..records import Compared, Precision
from .follow import Reference
from .regions import Regions
from .spot_checks import SpotChecks


class TrainingReference:
    """Compares the first steps of one run. recorder: its ops are followed. steps: how many are compared."""

    whole = False

    def __init__(self, recorder: Recorder, *, steps: int) -> None:
        self._recorder = recorder
        self._steps = steps
        self._checks = SpotChecks(recorder)
        self.regions = Regions(recorder)
        self._followed: Reference | None = None
        self.on = True

    def begins_with(self, op: Any, inputs: Sequence[torch.Tensor]) -> bool:
        """See :class:`~dtypetrace.capture.session.Reference`, also for what follows."""
        return self.on and self._checks.begins_with(op, inputs)

    def _now(self) -> SpotChecks | Reference:
        """What follows the program at present."""
        if self._followed is None and self._recorder.trains and self._checks.narrow:
            self._checks.stop()
            self._followed = Reference(self._recorder, steps=self._steps)
        return self._checks if self._followed is None else self._followed

    def __getattr__(self, name: str) -> Any:
        """What follows the program at present answers for all else, such as ``around``, ``after`` and ``tape``."""
        return getattr(self._now(), name)

    def step_ends(self, optimizer: Any) -> None:
        self._now().step_ends(optimizer)
        self.regions.forget()

    def close(self) -> None:
        self.on = False
        self.regions.stop()
        self._checks.close()
        if self._followed is not None:
            self._followed.close()

    def read(self) -> tuple[tuple[Precision, ...], tuple[Compared, ...]]:
        """The errors, by op, and what the steps did, by parameter. This waits for the device."""
        checked = self._checks.read()[0]
        if self._followed is None:
            return checked, ()
        followed, compared = self._followed.read()
        known = {p.op for p in checked}
        return (*checked, *(p for p in followed if p.op not in known)), compared
