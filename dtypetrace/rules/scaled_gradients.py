"""Gradients that are limited while they still carry the loss scale (DT504).

A loss scaler takes the scale from the gradients in its own ``step``, unless ``unscale_`` was called before. What limits
them in between compares numbers that are as many times too large as the scale says, and the step is then as many times
too small.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .. import graph
from ..records import Edit, Finding, FlowStep, Op, Operand, Origin, Place
from ..records.text import ProgramText
from ..source.expressions import call_at, function_around
from ..tables.operators import SCALER_CHECKS, tagged
from .advice import advise
from .run_facts import Run
from .silent_findings import At, silent_finding


def find(run: Run) -> Iterator[Finding]:
    """At most one finding: the first op that limits gradients before the scale is taken from them."""
    check = next((n for n, op in enumerate(run.ops) if op.aten.startswith(SCALER_CHECKS)), -1)
    if check < 0:
        return
    scaled = {i.producer for n, i in enumerate(run.ops[check].inputs) if n in run.ops[check].written} - {-1}
    for number in sorted(scaled, reverse=True):  # what changed them in place has made them since
        while number >= 0 and run.ops[number].phase == "other" and run.ops[number].written:
            number = run.ops[number].inputs[run.ops[number].written[0]].producer
            scaled.add(number)
    made = max((n for n in scaled if run.ops[n].phase == "backward"), default=-1)
    for number in range(made + 1, check if made >= 0 else 0):
        op = run.ops[number]
        changed = [i for n, i in enumerate(op.inputs) if n in op.written and i.producer in scaled]
        if changed and op.phase == "other" and _limits(run, op, scaled):
            yield _finding(run, op, changed[0].dtype, run.place(run.ops[check]))
            return


def _limits(run: Run, op: Op, scaled: set[int]) -> bool:
    """Whether an op makes gradients smaller by their own size: it clamps them, or multiplies them by a factor that was
    computed from them. To divide them by a number of batches does not see the scale."""
    if tagged(op, "upper_bound") or tagged(op, "lower_bound"):
        return True
    factors = [i.producer for n, i in enumerate(op.inputs) if n not in op.written and i.producer not in scaled]
    return any(i.producer in scaled for n in graph.ops_above(run.ops, factors) for i in run.ops[n].inputs)


def _finding(run: Run, op: Op, dtype: str, checked: Place) -> Finding:
    site = run.place(op)
    edit = _unscaled_before(run.recording.text, site, checked)
    change = "take the scale from the gradients before they are limited"
    how = f"call {edit.after.split()[0] if edit is not None else 'unscale_()'} first"
    said = "the gradients still carry the loss scale here"
    return silent_finding(
        "DT504",
        At.of(op, site),
        culprit=Operand(0, "the gradients", dtype, (), op.device, "gradient", Origin("factory", None, op.op, site)),
        flow=(FlowStep(site, op.op, op.module, dtype, dtype, "value", said=said),),
        fix=advise(site, change, how, edits=edit, kind="plan"),
        count=op.count,
        notes=("the scaler divides them by its scale afterwards, so each step is too small by that factor",),
    )


def _unscaled_before(text: ProgramText, limited: Place, checked: Place) -> Edit | None:
    """The edit that adds ``scaler.unscale_(optimizer)`` before the statement that limits the gradients; None unless the
    same function calls ``scaler.step(optimizer)``."""
    frame, later = limited.user_frame, checked.user_frame
    file = text.parsed(frame.file) if frame is not None else None
    if frame is None or later is None or file is None or frame.file != later.file:
        return None
    limit, step = call_at(text, frame), call_at(text, later)
    if limit is None or step is None or not isinstance(step.func, ast.Attribute) or step.func.attr != "step":
        return None
    statement = file.parents.get(limit)
    if not isinstance(statement, (ast.Expr, ast.Assign)) or not step.args:
        return None
    if function_around(file, limit) is not function_around(file, step):
        return None
    start = file.start(statement)
    unscaled = f"{file.segment(step.func.value)}.unscale_({file.segment(step.args[0])})"
    return Edit(frame.file, start, start, "", f"{unscaled}\n{' ' * (start[1] - 1)}")
