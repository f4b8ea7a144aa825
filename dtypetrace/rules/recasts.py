"""Weights that are cast again at each call, to the same numbers (DT205), by the program or by autocast."""

from __future__ import annotations

from dataclasses import dataclass

from .. import graph
from ..foresight import DtypeChange
from ..records import FORWARD, NO_CHANGE, Finding, Fix, Op, Place, Reach
from ..source import models
from ..tables.dtypes import REAL
from ..tables.english import listed, quoted
from ..tables.operators import NAMED_CASTS, flops, is_cast, is_move, result_bytes
from . import checks, titles
from .advice import advise
from .case import one, short
from .run_facts import Run, quantity, reach_of
from .silent_findings import found_at

_OFTEN = 3
"""A habit: at least this many casts of one weight for each time that it can have changed."""


def find(run: Run) -> list[Finding]:
    return [*_recast(run), *_uncached(run)]


_NAMES = 4
"""Names of modules that a sentence can list."""


@dataclass(frozen=True)
class _Casts:
    """Casts of several weights that are one finding: the ops, and the one that writes most."""

    run: Run
    ops: tuple[Op, ...]

    @property
    def largest(self) -> Op:
        return max(self.ops, key=result_bytes)

    @property
    def trained(self) -> bool:
        """Whether an optimizer steps one of these weights, which then has to stay as wide as it is."""
        return bool({u.event for u in self.run.recording.updates} & {o.inputs[0].event for o in self.ops})

    @property
    def reach(self) -> Reach:
        return reach_of(self.ops)

    @property
    def alone(self) -> tuple[Op, ...]:
        """The casts of weights that nothing else takes: a head's weight may be that of an embedding, too."""
        mine = set(map(id, self.ops))
        forward = (o for o in self.run.ops if o.phase in ("forward", "recompute") and id(o) not in mine)
        others = {(i.event, i.shape) for o in forward for i in o.inputs if i.holder == "parameter"}
        return tuple(o for o in self.ops if (o.inputs[0].event, o.inputs[0].shape) not in others)

    @property
    def kept(self) -> tuple[str, ...]:
        """Which of the weights something else takes, too, in words, where there are others that nothing else takes."""
        alone = self.alone
        mine = set(map(id, alone))
        names = [quoted(self.run.operand(o, 0, None).name) for o in self.ops if id(o) not in mine] if alone else []
        wide = self.ops[0].inputs[0].dtype
        one_or_more = "it, too" if len(names) == 1 else "them, too"
        return (f"leave {listed(names)} in {wide}: another module takes {one_or_more}",) if names else ()

    def finding(
        self,
        severity: str,
        how: str,
        said: str,
        change: tuple[str, str],
        notes: tuple[str, ...],
        *,
        once: str | None = None,
        kind: str = "dtype",
        named: Place = graph.NOWHERE,
    ) -> Finding:
        """``change``: what to do, and why; ``once``: what else to do where an edit casts the weights once, None for no
        edit; ``kind``, ``named``: those of the fix without an edit."""
        run, op = self.run, self.largest
        to, place = op.outputs[0], run.place(op)
        weight = run.operand(op, 0, to)
        source = weight.dtype if how == "autocast" else to
        where = weight.origin.place if weight.origin.place.stack else place
        weights = f"{titles.shared([weight.shown], len(self.ops))} {'are' if len(self.ops) > 1 else 'is'}"
        fix = _cast_once(self, once) if once is not None else None
        return found_at(
            run,
            op,
            "DT205",
            weight,
            fix or advise(where, *change, kind=kind, named=named),
            begins=graph.flow(run.recording, op.inputs[0].event, to),
            source=source,
            how=how,
            said=said,
            severity=severity,
            title=f"{weights} cast to {to} again at each call, to the same numbers",
            count=self.reach.ops,
            notes=(*notes, *self.kept),
            reach=self.reach,
        )


def _recast(run: Run) -> list[Finding]:
    """Weights that the program itself casts at each use, by the function that casts them."""
    chances = max(int(run.recording.meta.get("steps", 0)), 1)
    functions: dict[tuple[str, str] | None, list[int]] = {}
    for number, op in enumerate(run.ops):
        if _casts_weight(op) and op.count >= _OFTEN * chances:
            frame = next(iter(run.place(op).stack), None)
            functions.setdefault((frame.file, frame.function) if frame else None, []).append(number)
    return [
        _again(_Casts(run, tuple(run.ops[n] for n in numbers)), chances)
        for numbers in functions.values()
        if any(_multiplied(run, n) for n in numbers)
    ]


def _casts_weight(op: Op) -> bool:
    """Whether the program casts a parameter in a module's forward."""
    if not is_cast(op) or op.op not in NAMED_CASTS or not op.module or op.phase != "forward" or not op.inputs:
        return False
    return op.inputs[0].holder == "parameter" and op.inputs[0].dtype in REAL


def _multiplied(run: Run, number: int) -> bool:
    """Whether a weight's cast copy is a factor of a matmul or a convolution: elsewhere its cost does not matter."""
    users = ((user, run.ops[user]) for user in run.users[number])
    return any(flops(op) or is_move(op) and _multiplied(run, user) for user, op in users)


def _parameters(casts: _Casts) -> str:
    """What is cast, by the modules that hold it; where these are many, by the last parts of their names."""
    weights = [casts.run.operand(op, 0, None).name for op in casts.alone]
    full = list(dict.fromkeys(name.rpartition(".")[0] for name in weights))
    last = list(dict.fromkeys(name.rpartition(".")[2] for name in full))
    if "" in full or any(" " in name for name in weights):
        return ""
    if len(full) <= _NAMES:
        return f"the parameters of {listed(list(map(quoted, full)))}"
    if len(last) > _NAMES or any(name.isdecimal() for name in last):
        return ""
    return f"the parameters of the modules called {listed(list(map(quoted, last)))}"


def _again(casts: _Casts, chances: int) -> Finding:
    steps = f"in {chances} optimizer step{'s' if chances != 1 else ''}"
    changed = steps if casts.run.recording.meta.get("steps") else "with no optimizer step between"
    parameters = f"{len(casts.ops)} parameter{'s' if len(casts.ops) != 1 else ''}"
    reach, to = casts.reach, casts.largest.outputs[0]
    notes = (f"{reach.ops:,} casts of {parameters} {changed}: {quantity(reach.bytes, 'B')} written again",)
    weights = "these weights" if len(casts.ops) > 1 else "this weight"
    if casts.trained:
        wide = casts.largest.inputs[0].dtype
        made = casts.run.operand(casts.largest, 0, to).origin.place
        where = f" ({short(made)})" if made.stack else ""
        why = f"the optimizer trains {weights}{where}, so keep the dtype {wide}"
        return casts.finding("note", "cast", "", ("nothing to change", why), notes, kind=NO_CHANGE, named=made)
    made = casts.run.operand(casts.largest, 0, to).origin.place
    once = "after they are made" if len(casts.ops) > 1 else "after it is made"
    where = once if made.stack else "before these calls"
    # a small island in higher precision, such as a router, costs next to nothing
    severity = "warning" if reach.bytes > casts.run.given(casts.largest.module) else "note"
    return casts.finding(severity, "cast", "", (f"cast {weights} to {to} once, {where}", ""), notes, once="")


def _uncached(run: Run) -> list[Finding]:
    """Weights that autocast casts at each use, because it caches only casts that a gradient can flow through. One
    finding for each model.

    A frozen weight never changes; another one may at each optimizer step. It is a warning if the casts wrote more bytes
    than all results of the model's arithmetic, for weights that the run does not train: those are float32 on purpose.
    """
    steps = int(run.recording.meta.get("steps", 0))
    models: dict[str, list[int]] = {}
    for number, op in enumerate(run.ops):
        by_autocast = op.uncached and op.op not in NAMED_CASTS and op.outputs and op.phase in FORWARD
        if by_autocast and op.count >= _OFTEN * (max(steps, 1) if op.uncached == "inference" else 1):
            models.setdefault(run.root(op.module), []).append(number)
    return [
        _by_autocast(_Casts(run, tuple(run.ops[n] for n in numbers)), steps)
        for numbers in models.values()
        if any(_multiplied(run, n) for n in numbers)
    ]


def _by_autocast(casts: _Casts, steps: int) -> Finding:
    run, op, reach = casts.run, casts.largest, casts.reach
    weight, to, given = op.inputs[0], op.outputs[0], run.given(op.module)
    trained = casts.trained and op.uncached == "inference"
    serious = not trained and reach.bytes > given and op.count >= _OFTEN * max(steps, 1)
    why = "these are frozen" if all(o.uncached == "frozen" for o in casts.ops) else "this is inference mode"
    parameters = f"these {len(casts.ops)} parameters" if len(casts.ops) > 1 else "this parameter"
    notes = (
        f"{reach.ops:,} casts of {parameters}: {quantity(reach.bytes, 'B')} written; "
        f"the results of all other operations of the model take {quantity(given, 'B')}",
        f"autocast keeps the cast of a weight only where a gradient can flow through it, and {why}",
    )
    made = run.operand(op, 0, to).origin.place
    once = f"after {short(made)}" if made.stack else "before these calls"
    what = f"cast {_parameters(casts) or parameters} to {to} once"
    change, why = f"{what}, {once}, and leave autocast on", ""
    if not casts.alone:
        change, why = "nothing to change", f"other modules take {parameters} in {weight.dtype}, too"
    if trained:
        change = f"for a long evaluation, cast a copy of the model to {to} once"
        why = f"it is trained, so it stays {weight.dtype}"
    name = run.operand(op, 0, to).name
    said = f"autocast casts {quoted(name)} to {to} here, {op.count:,} times"
    return casts.finding(
        "warning" if serious else "note",
        "autocast",
        said,
        (change, why),
        notes,
        once=None if trained else ", and leave autocast on",
        kind="dtype" if trained or casts.alone else NO_CHANGE,
        named=graph.NOWHERE if trained or not casts.alone else made,
    )


def _cast_once(casts: _Casts, besides: str) -> Fix | None:
    """The edit that casts the model, or those of its modules, after the statement that makes the model. None where the
    text does not show that statement, something would be refused then, or the run trains: what is trained stays wide,
    and it may be trained without an optimizer."""
    run, op = casts.run, casts.largest
    if run.recording.meta.get("trains") or any(o.phase == "backward" for o in run.ops):
        return None
    root, to, place = run.root(op.module), op.outputs[0], run.operand(op, 0, op.outputs[0]).origin.place
    found = _statement(run, place, root)
    weights = [run.operand(o, 0, None) for o in casts.alone]
    births = {o.inputs[0].event: to for o in casts.alone}
    if found is None or min(births, default=-1) < 0:
        return None
    held = {f"{root}.{w.name}".rpartition(".")[0] for w in weights}
    ends = () if _whole(casts, root) else tuple(sorted({m.rpartition(".")[2] for m in held}))
    if ends and {m for m in run.recording.modules if m.startswith(f"{root}.") and m.endswith(ends)} != held:
        return None
    here, made = found
    edit = models.cast_after(run.recording.text, made, ends, to)
    what = _parameters(casts) or "these weights" if ends else quoted(made.expression)
    why = f"cast {what} to {to} once{besides}"
    sound = checks.sound(run, one(edit), DtypeChange(births=births))
    return advise(here, why, edits=edit, tested=True) if sound else None


def _statement(run: Run, place: Place, model: str) -> tuple[Place, models.Made] | None:
    """The statement on a birth's stack that makes the model of this name."""
    for number, frame in enumerate(place.stack):
        made = models.made(run.recording.text, frame) if frame.user else None
        if made is not None and made.expression.rpartition(".")[2] == model:
            return Place(place.stack[number:]), made
    return None


def _whole(casts: _Casts, model: str) -> bool:
    """Whether these are all weights that the model's forward takes."""
    cast = set(map(id, casts.ops))
    inside = (o for o in casts.run.ops if casts.run.root(o.module) == model and o.phase in ("forward", "recompute"))
    return all(id(o) in cast for o in inside if any(i.holder == "parameter" and i.dtype in REAL for i in o.inputs))
