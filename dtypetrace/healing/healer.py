"""Heal and go on: the casts that let a refused call run, inserted above autograd.

The verdict is the report's: a refusal is judged by the rules on what was recorded so far, once for each
distinct one. The operands of the judged cause are cast to the dtype in line and the call is made again;
what is refused then has another cause, is recorded and healed by itself. Left alone is what cannot be
healed honestly: a scalar that does not fit, a loss scaler's refusal, a call that cannot be repeated, and
whatever the program handles itself.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

import torch

from .. import graph
from ..capture import private, refused_calls
from ..capture.marks import RawStep
from ..capture.seam import Call, Remade
from ..capture.snapshot import snapshot
from ..records import Cast, Place, Recording, Refused
from ..rules import judgement
from ..rules.findings import cause
from ..source import expressions
from ..tables.dtypes import COUNTERPART, FLOATING, STORAGE_ONLY
from .ahead import Ahead

Tensor = torch.Tensor
_NEVER = frozenset({"DT116", "DT117", "DT118", "DT119"})
"""Codes of what no cast of an operand can repair: a collective writes into what it is given, and the other ranks cast nothing."""
_UNREPEATABLE = frozenset(
    {Tensor.backward, torch.autograd.backward, torch.autograd.grad, torch.nn.functional.multi_head_attention_forward}
)
_WITHOUT_KERNEL = frozenset({torch.float16, torch.bfloat16})


@dataclass(frozen=True)
class _Plan:
    """What one distinct refusal needs: a dtype for some of the arguments, by their number.

    ``back`` is the dtype that floating results become again. ``out``: the call is made without its destination, into
    which the result is copied.
    """

    casts: dict[int, torch.dtype]
    back: torch.dtype | None = None
    out: bool = False


class Healer(Ahead):
    """What ``hooks`` asks (``capture.seam.Healer``). ``fallback`` is the dtype in which an op without a kernel for its own runs."""

    def __init__(self, fallback: torch.dtype = torch.float32) -> None:
        self.recorder: Any = None
        self.dispatch_mode: Any = None
        self.opened: tuple[int, CodeType, int] | None = None
        self.fallback = fallback
        self.saved: list[list] | None = None
        self.begun: list[int] = []
        self._plans: dict[int, _Plan | None] = {}

    def __call__(self, call: Call) -> Remade | None:
        """Other arguments for a refused call, or None to let it raise."""
        arguments = list(refused_calls.arguments_of(call.function, call.args, call.kwargs))
        plan = self._plan(call, arguments)
        if plan is None:
            return None
        recorder = self.recorder
        casts, made = [], {}
        for index, dtype in plan.casts.items():
            name, value = arguments[index]
            if isinstance(value, Tensor) and value.dtype is not dtype:
                casts.append(
                    Cast(name, recorder.dtype_name(value.dtype), recorder.dtype_name(dtype), back=plan.back is not None)
                )
                made[id(value)] = self.cast(value, dtype, [v for _, v in arguments])
        kwargs = dict(call.kwargs)
        finish = self._back(plan.back, call.refusal) if plan.back is not None else None
        if plan.out:
            out = kwargs.pop("out")
            casts.append(Cast("result", "", recorder.dtype_name(out.dtype)))
            finish = out.copy_
        if not casts:
            return None
        self.note(call.refusal, casts)
        if self.saved is not None:
            del self.saved[self.begun[-1] :]
        return Remade(_replaced(call.args, made), _replaced(kwargs, made), finish)

    def note(self, number: int, casts: list[Cast]) -> None:
        """Keeps what was inserted for a refusal: each distinct cast with its count."""
        refused = self.recorder.refused[number]
        kept = {(c.argument, c.source, c.to): c for c in refused.casts}
        for c in casts:
            known = kept.get((c.argument, c.source, c.to))
            kept[c.argument, c.source, c.to] = replace(known, count=known.count + 1) if known else c
        self.recorder.refused[number] = replace(refused, healed=True, casts=tuple(kept.values()))

    def cast(self, value: Tensor, dtype: torch.dtype, others: list) -> Tensor:
        """The tensor in another dtype. Autograd sees the cast; the recording does not, for it is none of the program's:
        the dtype is owed to the operand that it was brought in line with."""
        with private.top_dispatch_mode_off(type(self.dispatch_mode)):
            made = value.to(dtype)
        if type(made) is not type(value) and type(value) not in (torch.nn.Parameter, torch.nn.Buffer):
            made = made.as_subclass(type(value))  # torch functions are off for subclasses here
        origins = self.recorder.origins
        mark = next(
            (m for m in (origins.of(t) for t in others if isinstance(t, Tensor) and t.dtype is dtype) if m is not None),
            None,
        )
        own = self.recorder.mark_of(value)
        before = getattr(own, "was", None)
        if before is not None and origins.steps[before].to is dtype:  # what it was before the program changed it
            origins.mark(made, before, own.op)
        elif mark is not None:
            origins.mark(made, mark.step, mark.op)
        else:
            step = RawStep("cast", "to", origins.steps[own.step].place, -1, (value.dtype,), dtype)
            origins.mark(made, origins.step(step), own.op)
        return made

    def _back(self, dtype: torch.dtype, number: int) -> Callable[[Any], Any]:
        """Gives floating results the dtype again that the operands had."""
        witnesses = self.recorder.refused[number].witnesses
        step = next((w.step for w in witnesses if w.dtype == self.recorder.dtype_name(dtype)), -1)

        def finish(out: Any) -> Any:
            if isinstance(out, Tensor):
                if out.dtype is not self.fallback:
                    return out
                made = out.to(dtype)
                if step >= 0:
                    self.recorder.origins.mark(made, step, -1)
                return made
            if type(out) in (list, tuple):
                return type(out)(map(finish, out))
            return type(out)(list(map(finish, out))) if isinstance(out, tuple) else out  # one of torch's named tuples

        return finish

    # ------------------------------------------------------------ the verdict

    def _plan(self, call: Call, arguments: list) -> _Plan | None:
        number = call.refusal
        if number not in self._plans:
            plan = None
            if self.may_heal(call.error) and call.function not in _UNREPEATABLE:
                plan = self._decide(call, arguments)
            self._plans[number] = plan
        return self._plans[number]

    def may_heal(self, error: Exception) -> bool:
        """Whether nothing inside the trace handles the exception: what the program handles is its own affair."""
        return not handled(error, sys._getframe(1), self.recorder.places.hidden, self.opened)

    def _decide(self, call: Call, arguments: list) -> _Plan | None:
        recording: Recording = snapshot(self.recorder, whole=False)
        refused: Refused = recording.refused[call.refusal]
        in_line = judgement.verdict(recording, refused).expected
        culprit = judgement.culprit(refused, in_line)
        if culprit is None or refused.code in _NEVER:
            return None
        if refused.code == "DT111":
            return _into_destination(graph.place_of(recording, refused.place), refused, call)
        if refused.wants == "kernel":
            return self._in_fallback(arguments, culprit.dtype)
        if refused.wants in ("integer", "bool", "float", "complex"):
            wanted = {
                "integer": "int64",
                "bool": "bool",
                "float": in_line if in_line in FLOATING else "float32",
                "complex": COUNTERPART.get(culprit.dtype, "complex64"),
            }[refused.wants]
            return _Plan({culprit.index: getattr(torch, wanted)})
        if refused.wants != "agree" or in_line is None:
            return None
        sides = {w.dtype for w in judgement.contenders(refused)}
        rivals = {
            i: v
            for i, (_, v) in enumerate(arguments)
            if isinstance(v, Tensor) and self.recorder.dtype_name(v.dtype) in sides
        }
        written = destination(call)
        if isinstance(written, list):
            return None  # what was written already would be written twice
        if written is not None:  # what is written into it is brought in line with it, whichever is the cause
            return _Plan({i: written.dtype for i, v in rivals.items() if v.dtype is not written.dtype})
        origins = {
            w.index: cause(graph.origin(recording, w.step, in_line, w.name or None), w.name) for w in refused.witnesses
        }
        blamed, listed = origins.get(culprit.index), culprit.argument.partition("[")
        casts = {}
        for i, v in rivals.items():
            alike = listed[1] and arguments[i][0].partition("[")[0] == listed[0]  # of a list only some are witnesses
            if self.recorder.dtype_name(v.dtype) != in_line and (origins.get(i) == blamed or alike):
                casts[i] = getattr(torch, in_line)
        return _Plan(casts)

    def _in_fallback(self, arguments: list, dtype: str) -> _Plan | None:
        found = getattr(torch, dtype, None)
        same = {i: self.fallback for i, (_, v) in enumerate(arguments) if isinstance(v, Tensor) and v.dtype is found}
        if found in _WITHOUT_KERNEL:
            return _Plan(same, back=found)
        # integers and what only stores have no result of their own dtype to go back to
        return _Plan(same) if dtype not in FLOATING or dtype in STORAGE_ONLY else None


def destination(call: Call) -> Any:
    """What a call writes into: a tensor, a list of tensors, None for a call that makes its result."""
    name = getattr(call.function, "__name__", "")
    schema = getattr(call.function, "_schema", None)
    in_place = (
        schema.is_mutable
        if schema is not None
        else name == "__setitem__" or name.endswith("_") and not name.endswith("__")
    )
    if isinstance(call.kwargs.get("out"), Tensor):
        return call.kwargs["out"]
    return call.args[0] if in_place and call.args and isinstance(call.args[0], (Tensor, list)) else None


def _into_destination(place: Place, refused: Refused, call: Call) -> _Plan | None:
    """For a result that its destination cannot hold: it is copied there, or bound to the name by ``x += y``."""
    out = call.kwargs.get("out")
    if isinstance(out, Tensor) and out.is_floating_point():
        return _Plan({}, out=True)
    result = dict(refused.dtypes).get("result")
    rebinds = place.stack and isinstance(
        getattr(expressions.augmented(place.stack[0]), "target", None), (ast.Name, ast.Attribute)
    )
    return _Plan({0: getattr(torch, result)}) if rebinds and result in FLOATING else None


def _replaced(value: Any, made: dict[int, Any]) -> Any:
    """A call's arguments with some tensors replaced, by id."""
    if id(value) in made:
        return made[id(value)]
    if type(value) in (list, tuple):
        return type(value)(_replaced(v, made) for v in value)
    if isinstance(value, dict):
        return {k: _replaced(v, made) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "batch_sizes"):  # a PackedSequence
        return value._replace(data=_replaced(value.data, made))
    return value


# ---------------------------------------------------------------- what the program handles


_HAND_ON = tuple(os.path.join(os.path.dirname(os.__file__), package) + os.sep for package in ("asyncio", "concurrent"))
"""Files that catch everything to raise it again where a task or a future is waited for."""


def handled(
    error: Exception,
    frame: FrameType | None,
    hidden: Callable[[str], bool],
    opened: tuple[int, CodeType, int] | None = None,
) -> bool:
    """Whether a ``try`` or ``suppress`` on the stack catches the exception and neither raises it again nor exits.

    ``opened`` is where the trace begins: what lies around it is not asked.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__}
    while frame is not None:
        code = frame.f_code
        last = opened is not None and (id(frame), code) == opened[:2]
        if not hidden(code.co_filename) and code.co_exceptiontable and not code.co_filename.startswith(_HAND_ON):
            if any(names & kinds for names in _caught(code, frame.f_lineno, opened[2] if last else 0)):
                return True
        frame = None if last else frame.f_back
    return False


@lru_cache(maxsize=4096)
def _caught(code: CodeType, line: int, after: int) -> tuple[frozenset[str], ...]:
    """The names of the exceptions that the statements around a line catch for good, of those that begin after another."""
    text = expressions.text_of(code.co_filename)
    found = []
    for node in ast.walk(text.tree) if text is not None else ():
        if not isinstance(node, (ast.Try, ast.With)) or not max(code.co_firstlineno, after + 1) <= node.lineno:
            continue
        if not node.body[0].lineno <= line <= node.body[-1].end_lineno:
            continue
        if isinstance(node, ast.Try):
            found += [_names(handler.type) for handler in node.handlers if not _goes_on(handler)]
        else:
            calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
            found += [
                _names(ast.Tuple(c.args))
                for c in calls
                if (expressions.dotted(c.func) or "").split(".")[-1] == "suppress"
            ]
    return tuple(found)


def _names(node: ast.expr | None) -> frozenset[str]:
    if node is None:
        return frozenset({"BaseException"})
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return frozenset((expressions.dotted(part) or "").split(".")[-1] for part in parts)


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether a handler lets the exception go on: it raises, or ends the program."""
    return any(
        isinstance(n, ast.Raise)
        or isinstance(n, ast.Call)
        and (expressions.dotted(n.func) or "").split(".")[-1] in ("exit", "_exit", "quit", "abort")
        for n in ast.walk(handler)
    )
