"""The title of a finding: what happened to which tensor or module, in one sentence. It states facts and gives no
advice.

Most titles are a sentence with facts of the culprit; the others have a small function that uses the finding alone. If a
title lacks facts, the code's general title from ``tables.codes`` is used.
"""

from __future__ import annotations

from collections.abc import Callable

from ..records import Finding, Operand, Update
from ..tables.codes import TITLES
from ..tables.english import called, quoted, rival

_NAME = 48
"""Characters of an operand's expression in a title: for a longer one the argument's name is used."""
_SPECIAL = {"grad": "an assignment to .grad", "data": "an assignment to .data", "setitem": "an indexed write"}
"""Ops that are not calls."""


def specific(f: Finding) -> str:
    """The title of a finding with its own names and dtypes."""
    if f.title != TITLES.get(f.code, f.title):
        return f.title  # the rule has set a better title itself
    made, of_culprit = _MADE.get(f.code), _OF_CULPRIT.get(f.code, "") if f.culprit is not None else ""
    if of_culprit and (f.op or "{op}" not in of_culprit):
        return of_culprit.format(**_facts(f))
    return (made(f) if made is not None else None) or TITLES.get(f.code, f.title)


_NOT_TAKEN = "{who} cannot take {name}, because it is {dtype}"
_OF_CULPRIT = {
    "DT108": _NOT_TAKEN,
    "DT109": "{op} is not implemented for {dtype}{on}",
    "DT111": "{op} cannot write its result into {dtype} {name}",
    "DT116": "the loss scaler refused the {dtype} gradients of {like}",
    "DT119": _NOT_TAKEN,
    "DT120": _NOT_TAKEN,
    "DT204": "{op} makes a table from numbers rounded to {dtype}, which is too coarse for it",
    "DT301": "values overflow {dtype} in {where}",
    "DT307": "{op} rounds small changes away in {dtype}",
    "DT308": "{op} loses most of the precision",
    "DT502": "a loss scaler cannot unscale the float16 gradients of {like}",
}
"""Titles of findings with a culprit, for which its facts are enough."""


def _facts(f: Finding) -> dict[str, str]:
    o = f.culprit
    if o is None:
        return {}
    on = f" on {o.device.partition(':')[0]}" if o.device else ""
    words = {"name": _named(o), "dtype": o.dtype, "on": on}
    return {"who": subject(f), "op": quoted(f.op), "like": _like_it(f), "where": _where(f), **words}


# ---------------------------------------------------------------- the parts


def subject(f: Finding) -> str:
    """The subject of the title: the module that torch calls by this op, else the op."""
    name = _module(f.module)
    function = f.site.stack[0].function if f.site.stack else ""
    if f.phase == "backward" and function.rpartition(".")[2] == "backward" and f.site.stack[0].user:
        return f"{quoted(f.op)} in {function}()"
    if f.phase == "backward" and f.op not in ("backward", "grad"):
        return f"the backward pass of {quoted(f.op.removesuffix('_backward'))}"
    by_module = name and any(o.holder == "parameter" for o in f.operands)
    return quoted(name if by_module else _SPECIAL.get(f.op, f.op))


def _module(name: str) -> str:
    """The part of a module's name by which readers know it: ``proj_in``, ``net.0``."""
    parts = name.split(".")
    first = next((n for n in reversed(range(len(parts))) if not parts[n].isdecimal()), 0)
    return ".".join(parts[first:])


def _named(o: Operand) -> str:
    return quoted(o.shown if len(o.shown) <= _NAME else o.name)


def _as_operand(f: Finding, o: Operand) -> str:
    """An operand with its dtype: ``float32 `x```, ``a float32 gradient``."""
    name, _ = called(o, f.op, f.phase, f.site)
    return f"{_a(o.dtype)} {name}" if name.isalpha() and not o.written else f"{o.dtype} {_named(o)}"


def _like_it(f: Finding) -> str:
    """The operand, and how many others have the same problem: ``weight and 3 more``."""
    names = list(dict.fromkeys(_named(o) for o in f.operands))
    return shared(names, max(f.count, len(names)) if f.kind == "plan" else len(names))


def shared(names: list[str], number: int) -> str:
    """Several names, shown by the first one: ``...attn1.to_q.lora_B and 31 more``."""
    if not names:
        return ""
    first = names[0] if len(names[0]) <= _NAME else "..." + names[0][3 - _NAME :].partition(".")[2]
    return quoted(first) if number <= 1 else f"{quoted(first)} and {number - 1} more"


# ---------------------------------------------------------------- refused


def _disagree(f: Finding) -> str | None:
    """``linear_1 got a float32 input for its float16 weights``, else both operands by their names."""
    culprit, other = f.culprit, rival(f)
    if culprit is not None and f.principle == "fused path":
        return f"torch's fused path of {subject(f)}, whose weights are {culprit.dtype}, does not take this autocast"
    if culprit is None or other is None:
        return None
    who = subject(f)
    of_a_module = bool(f.module) and who == quoted(_module(f.module))
    if of_a_module and other.holder == "parameter" and culprit.holder is None:
        return f"{who} got {_a(culprit.dtype)} input for its {other.dtype} weights"
    if of_a_module and culprit.holder == "parameter" and other.holder is None:
        what = f"{_a(culprit.dtype)} bias" if culprit.name.endswith("bias") else f"{culprit.dtype} weights"
        return f"{who} has {what} and got {_a(other.dtype)} input"
    if f.op == "setitem":
        into, value = sorted((culprit, other), key=lambda o: o.index)
        return f"an indexed write puts a {value.dtype} value into {into.dtype} {_named(into)}"
    if f.op in ("grad", "data") and other.holder == "parameter":
        return f"{who}: {_named(culprit)} is {culprit.dtype}, the parameter {_named(other)} is {other.dtype}"
    if f.op in _SPECIAL:
        return f"{who}: {_named(culprit)} is {culprit.dtype}, {_named(other)} is {other.dtype}"
    return f"{who} got {_as_operand(f, culprit)} and {_as_operand(f, other)}"


def _does_not_fit(f: Finding) -> str | None:
    other = rival(f)
    if f.culprit is None or other is None:
        return None
    return f"{_named(f.culprit)} does not fit into {other.dtype} {_named(other)}"


def _bucket(f: Finding) -> str | None:
    if f.op not in ("backward", "grad"):
        return _disagree(f)  # a collective that the program calls
    dtypes = list(dict.fromkeys(o.dtype for o in f.operands))
    return f"DDP cannot put {' and '.join(dtypes)} gradients into one bucket" if len(dtypes) > 1 else None


# ---------------------------------------------------------------- silent


def _widened(f: Finding) -> str | None:
    if f.culprit is None:
        return None
    who = f"{f.culprit.dtype} {_named(f.culprit)}"
    wide = f.flow[-1].to if f.flow and f.flow[-1].how == "promotion" else f.culprit.dtype
    other = next((o for o in f.operands if o.dtype not in (wide, f.culprit.dtype)), None)
    if wide != f.culprit.dtype and other is not None:  # two half dtypes that met
        who += f" and {other.dtype} {_named(other)}"
    if f.reach is not None and f.reach.ops > 1:
        return f"{who} made {f.reach.ops:,} ops run in {wide}"
    return f"{who} made {quoted(f.op)} run in {wide}"


def _round_trip(f: Finding) -> str | None:
    end = f.flow[-1] if f.flow else None
    if end is None or end.source == end.to or not end.source or not end.to:
        return None
    return f"a {end.to} value was cast to {end.source} and back, and nothing in between needed {end.source}"


def _narrowed(f: Finding) -> str | None:
    end = f.flow[-1] if f.flow else None
    if end is None or end.how != "copy" or not f.operands:
        return None
    return f"{quoted(f.op)} stores {end.source} values as {end.to} in {_named(f.operands[0])}"


def _two_halves(f: Finding) -> str | None:
    """Only for weights that are half themselves: FSDP casts wide ones for its own use."""
    other = {"float16": "bfloat16", "bfloat16": "float16"}.get(f.culprit.dtype if f.culprit else "")
    return f"autocast computes in {other}, and the weights are {f.culprit.dtype}" if other and f.culprit else None


def _flushed(f: Finding) -> str | None:
    if f.culprit is None:
        return None
    what = "gradients" if f.culprit.holder == "gradient" or f.phase == "backward" else "values"
    if f.culprit.written and f.code == "DT302":
        what = f"values of {quoted(f.culprit.written)}"
    return f"{what} become zero in {f.culprit.dtype} in {_where(f)}"


def _where(f: Finding) -> str:
    if f.phase == "backward":
        return f"the backward pass{f' of {quoted(_module(f.module))}' if f.module else ''}"
    return f"{f.op}()" + (f" of {quoted(_module(f.module))}" if f.module else "")


def training(code: str, members: list[Update], still: bool, ran: int) -> str:
    """What an optimizer's steps did to some weights: ``32 LoRA weights did not move in 3 Prodigy steps``. ``still``:
    none of them moved at all. ``ran``: how many steps the run had, of which some were not measured."""
    first = members[0]
    weights = f"{first.dtype} {'LoRA ' if all('lora' in u.name.lower() for u in members) else ''}weight"
    many = f"{len(members)} {weights}s" if len(members) > 1 else f"{weights} {shared([first.name], 1)}"
    steps = max(u.steps or u.zero for u in members)
    took = f"{steps} {first.optimizer} step{'s' if steps != 1 else ''}"
    if 1 < steps < ran:
        took = f"{steps} measured {first.optimizer} steps (of {ran})"
    if code == "DT303":
        return f"{first.optimizer}'s state underflows for {many}"
    if code == "DT304" and still:
        return f"{many} did not move in {took}"
    if code == "DT304":
        return f"{many} hardly moved in {took}"
    if code == "DT305":
        return f"the gradient of {many} is zero in {took}"
    return f"{many} became infinite or NaN in {took}"


def _no_gradient(f: Finding) -> str | None:
    trained = [o for o in f.operands if o.holder == "parameter"]
    names = list(dict.fromkeys(_named(o) for o in trained))
    return f"no gradient reaches {shared(names, len(names))}" if names else None


def _needless_scaler(f: Finding) -> str | None:
    if f.culprit is None:
        return None
    found = "the gradients are bfloat16" if f.culprit.dtype == "bfloat16" else "nothing is float16"
    return f"a loss scaler is used, but {found}"


def _other_gradient(f: Finding) -> str | None:
    culprit, other = f.culprit, rival(f)
    if culprit is None or other is None:
        return None
    return f"the gradient {_named(culprit)} is {culprit.dtype}, but its parameter is {other.dtype}"


def _a(dtype: str) -> str:
    return f"{'an' if dtype.startswith('int') else 'a'} {dtype}"


_MADE: dict[str, Callable[[Finding], str | None]] = {
    **dict.fromkeys(
        ("DT101", "DT102", "DT103", "DT104", "DT105", "DT106", "DT107", "DT112", "DT113", "DT114", "DT115", "DT118",
         "DT121", "DT122"),
        _disagree,
    ),
    "DT110": _does_not_fit,
    "DT117": _bucket,
    "DT201": _widened,
    "DT202": _round_trip,
    "DT203": _narrowed,
    "DT302": _flushed,
    "DT305": _no_gradient,
    "DT306": _other_gradient,
    "DT401": _two_halves,
    "DT501": _needless_scaler,
}  # fmt: skip
