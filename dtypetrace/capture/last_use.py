"""What decided a weight's dtype when the program last computed with it: a cast for saving comes after that."""

from __future__ import annotations

import torch

from .session import Session


class LastUse:
    """Read when a trace ends. In a run with optimizer steps, what counts is what ran until the last of them."""

    def __init__(self, recorder: Session) -> None:
        self._recorder = recorder
        ends = recorder.stepping.ends_at
        ran = recorder.ops[: ends[-1][1]] if ends else recorder.ops
        # not what saving runs: state_dict() detaches
        computes = (op for op in ran if op.module >= 0 or op.phase in ("backward", "optimizer"))
        self._used = {operand[1] for op in computes for operand in op.operands}
        for refused in recorder.refusals.records:
            self._used.update(witness.event for witness in refused.witnesses)
            self._used.update(parameter.event for parameter in refused.model)

    def event(self, weight: torch.Tensor) -> int:
        """The event that had decided a weight's dtype by then; -1 where none is known."""
        origins = self._recorder.origins
        before = origins.changed_unseen(weight)
        now = before if before >= 0 else self._recorder.event_of(weight)
        waiting, seen = [now], set[int]()
        while waiting and now >= 0:
            event = waiting.pop(0)
            if event in self._used:
                return event
            seen.add(event)
            waiting += sorted(origins.replaced.get(event, set()) - seen, reverse=True)
        return now
