"""Losses that spot checks measured: small ops of the first steps that were also computed in higher precision.

They are judged as a whole reference is (:mod:`.measured`), with three differences. Only results of the forward pass
count: what the program reads, returns or decides by. A result has to be off by a quarter. And only the first of several
losses on one way is shown, because what is computed from it is lost as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .. import graph
from ..records import Finding
from ..tables.dtypes import NARROW
from . import measured, measured_tables
from .losses import Cause, Losses
from .run_facts import Run

LEAST = 0.25
"""Twice what a whole reference takes for damage: one batch of small tensors shows less than a run."""


def find(run: Run) -> Iterable[Finding]:
    """DT301, DT302 and DT308 for results that lost what they should hold, DT204 for tables whose entries are equal."""
    measured_before = {p.op for p in run.recording.precisions}
    recording = replace(
        run.recording, precisions=tuple(p for p in run.recording.spot_checks if p.op not in measured_before)
    )
    checked = Run(recording)
    losses = Losses(checked)
    causes = _first(run, measured.causes(recording, losses, least=LEAST))
    wide = {cause: number for cause, number in causes.items() if cause.op not in losses.in_16_bits}
    narrow = {cause: number for cause, number in causes.items() if cause not in wide}
    found = measured.of_causes(recording, losses, narrow)
    # float32 in between rounds no digit away
    found = [f for f in found if f.culprit is not None and f.culprit.dtype in NARROW]
    tables = list(measured_tables.find(checked, losses, measured_tables.is_spoilt, counted=True))
    yield from tables
    told = {(f.code, measured.born(f)) for f in found}
    found += [f for f in measured.of_causes(recording, losses, wide) if (f.code, measured.born(f)) not in told]
    yield from measured.beyond(found, measured.tensors(tables))


def _first(run: Run, causes: dict[Cause, int]) -> dict[Cause, int]:
    """The causes whose operands no other cause has spoilt."""
    ops = {cause.op for cause in causes}
    return {cause: number for cause, number in causes.items() if not _above(run, cause.op) & ops}


def _above(run: Run, number: int) -> set[int]:
    """The ops that an op's operands were made by, without itself."""
    return {*graph.ops_above(run.ops, [i.producer for i in run.ops[number].inputs])} - {number}
