"""Makes the findings of rules about what was not refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..records import Finding, Fix, FlowStep, Frame, Op, Operand, Origin, Place, Reach
from ..tables.codes import KINDS, TITLES
from .run_facts import Run


@dataclass(frozen=True, slots=True)
class At:
    """The call that a finding is about: an op of the recording, or an optimizer's step."""

    site: Place
    phase: str
    op: str
    aten: str | None = None
    module: str = ""

    @classmethod
    def of(cls, op: Op, site: Place, phase: str = "") -> At:
        return cls(site, phase or op.phase, op.op, op.aten, op.module)

    @classmethod
    def step(cls, site: Place, module: str) -> At:
        """An optimizer's step."""
        return cls(site, "optimizer", "step", None, module)


def found_at(
    run: Run,
    op: Op,
    code: str,
    culprit: Operand | None,
    fix: Fix | None,
    *,
    begins: Iterable[FlowStep] = (),
    source: str = "",
    made: str = "",
    how: str = "value",
    said: str = "",
    **facts: Any,
) -> Finding:
    """A finding about an op. Its flow ends there, after the steps that it ``begins`` with: the op takes ``source`` and
    makes ``made``, the dtype of its first result where nothing else is said. ``facts``: as :func:`silent_finding`."""
    site, made = run.place(op), made or (op.outputs[0] if op.outputs else "")
    ends = FlowStep(site, op.op, op.module, source or made, made, how, said=said)
    at, facts = At.of(op, site), {"count": op.count, **facts}
    return silent_finding(code, at, culprit=culprit, flow=(*begins, ends), fix=fix, **facts)


def silent_finding(
    code: str,
    at: At,
    *,
    flow: tuple[FlowStep, ...],
    fix: Fix | None,
    operands: tuple[Operand, ...] = (),
    culprit: Operand | None = None,
    kind: str = "",
    severity: str = "warning",
    count: int = 1,
    title: str = "",
    notes: Iterable[str] = (),
    reach: Reach | None = None,
    predicted: bool = False,
    weights: Iterable[str] = (),
) -> Finding:
    """A finding about something that was not refused. The culprit is the first operand where none is named, the only
    one where there are no others. ``kind``: for a code that has several. ``weights``: all parameters that it is about,
    where the operands are only some of them."""
    operands = operands or ((culprit,) if culprit is not None else ())
    return Finding(
        code=code,
        kind=kind or KINDS[code],
        severity=severity,
        title=title or TITLES[code],
        phase=at.phase,
        op=at.op,
        aten=at.aten,
        module=at.module,
        count=count,
        predicted=predicted,
        site=at.site,
        operands=operands,
        culprit=culprit if culprit is not None else next(iter(operands), None),
        flow=flow,
        fix=fix,
        exception=None,
        notes=tuple(notes),
        reach=reach,
        weights=tuple(weights),
    )


def result_of(run: Run, op: Op, how: str = "cast") -> Operand:
    """What an op made, as the operand to blame: a cast or a factory that the program wrote there."""
    origin = Origin(how, None, op.op, run.place(op), how == "cast")
    made = next(iter(op.outputs), "int64")  # a number of Python's is as good as one of these
    return Operand(0, f"result of {op.op}", made, op.shape, op.device, None, origin)


def tensor_of(finding: Finding) -> tuple[Frame, ...]:
    """The line at which the tensor to blame got its dtype."""
    return finding.culprit.origin.place.stack[:1] if finding.culprit is not None else ()
