"""The advice where several operands of an op were rounded, and the op makes their errors large."""

from __future__ import annotations

from ..records import Fix
from ..tables.dtypes import wider
from ..tables.english import listed, quoted
from .advice import advise
from .case import short
from .losses import Losses
from .run_facts import Run


def begins(losses: Losses, rounded: list[int], made: str) -> list[str]:
    """In which ops an amplified error begins, in words. ``made``: the dtype that they round to."""
    if not rounded:
        return []
    several = len(rounded) > 1
    ops = listed([_named(losses.run, n) if several else quoted(losses.run.ops[n].op) for n in rounded])
    errors = listed([f"{losses.of[n].introduced:.1%}" for n in rounded])
    if several:
        to = f" to {made}" if all(made in losses.run.ops[n].outputs for n in rounded) else ""
        return [f"the error begins in {ops}, which round{to} (errors of {errors})"]
    return [f"the error begins in {ops}, which rounds to {made} (an error of {errors})"]


def _named(run: Run, number: int) -> str:
    op, at = run.ops[number], short(run.place(run.ops[number]))
    return f"{quoted(op.op)} ({at})" if at else quoted(op.op)


def wide(run: Run, number: int, rounded: list[int], made: str) -> Fix:
    """Several operands of an op were rounded: it does not help to compute one of them in a wider dtype."""
    wide = "float32" if wider("float32", made) else "float64"
    op, ops = run.ops[number], listed([_named(run, n) for n in rounded])
    why = f"{quoted(op.op)} takes what {'both' if len(rounded) == 2 else 'all of them'} make"
    return advise(run.place(op), f"compute {ops} in {wide}", why, named=run.place(run.ops[rounded[0]]))
