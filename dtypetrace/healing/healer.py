"""Heal and continue: inserts, above autograd, the casts that let a refused call run.

The verdict is the report's: the rules judge each distinct refusal once, on what was recorded so far. The operands with
the judged cause are cast to the expected dtype and the call is repeated. If it is refused again, that has another
cause, which is recorded and healed by itself. Some refusals cannot be healed honestly and are left alone: a scalar that
does not fit, a loss scaler's refusal, a call that cannot be repeated, and exceptions that the program handles itself.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..capture import private, refused_calls
from ..capture.calls import dtype_name
from ..capture.protocols import Context, RefusedCall, Remade, Replacement
from ..capture.repeats import repeatable
from ..capture.signatures import arguments_of
from ..capture.snapshot import snapshot
from ..records import Cast, Place, Recording, Refused, Ruling
from ..records.text import LIVE
from ..source import expressions
from ..source.facts import Known, with_facts
from ..tables.dtypes import COUNTERPART, FLOATING, STORAGE_ONLY
from .casting import Casting
from .gradients import Gradients
from .optimizer_lists import Lists
from .saved_tensors import SavedTensors

if TYPE_CHECKING:
    from ..capture.running import Thread

Tensor = torch.Tensor
Judge = Callable[[Recording, Refused], Ruling]
"""Decides which operand of a refusal is the cause."""
_NEVER = frozenset({"DT116", "DT117", "DT118", "DT119"})
"""Codes that no cast of an operand repairs: a collective writes into its argument, and other ranks cast nothing."""
_WITHOUT_KERNEL = frozenset({torch.float16, torch.bfloat16})
_OF_KIND = {"integer": "int64", "bool": "bool"}


@dataclass(frozen=True)
class _Casts:
    """The casts that one distinct refusal needs: a dtype for some of the arguments, by their index.

    ``back``: the dtype that floating results are cast back to. ``out``: the call is made without its destination, and
    the result is copied there.
    """

    to: dict[int, torch.dtype]
    back: torch.dtype | None = None
    out: bool = False


_FALLBACK = torch.float32
"""The dtype in which an op runs that has no kernel for its own dtype."""


class Healer:
    """Implements ``capture.protocols.Healer``."""

    def __init__(self, context: Context, judge: Judge) -> None:
        self.recorder = context.recorder
        self._judge = judge
        self._casting = Casting(context)
        self._lists = Lists(self._casting)
        self._gradients = Gradients(self._casting)
        self._saved = SavedTensors()
        self._decided: dict[int, _Casts | None] = {}
        """By the number of a refusal; None where it is left alone."""
        self._known = Known()

    # ------------------------------------------------------------ called by the hooks

    def remake(self, call: RefusedCall) -> Remade | None:
        """Other arguments for a refused call, or None to let it raise."""
        arguments = list(arguments_of(call.function, call.args, call.kwargs))
        decided = self._casts_for(call, arguments)
        if decided is None:
            return None
        casts: list[Cast] = []
        made: dict[int, Any] = {}
        for index, dtype in decided.to.items():
            name, value = arguments[index]
            if isinstance(value, Tensor) and value.dtype is not dtype:
                casts.append(Cast(name, dtype_name(value.dtype), dtype_name(dtype), back=decided.back is not None))
                made[id(value)] = self._casting.cast(value, dtype, [v for _, v in arguments], call.refusal)
        kwargs = dict(call.kwargs)
        finish = self._back(decided.back, call.refusal) if decided.back is not None else None
        if decided.out:
            out = kwargs.pop("out")
            casts.append(Cast("result", "", dtype_name(out.dtype)))
            finish = out.copy_
        if not casts:
            return None
        self._casting.note(call.refusal, casts)
        self._saved.drop()
        return Remade(_replaced(call.args, made), _replaced(kwargs, made), finish)

    def module_input(self, module: nn.Module, args: tuple[Any, ...], thread: Thread) -> tuple[Any, ...] | None:
        """Other arguments for a recurrent layer that would refuse the dtype of its input, else None. Such a layer
        refuses in Python, outside any torch function."""
        if not isinstance(module, nn.RNNBase) or not args or private.any_autocast_enabled():
            return None
        packed = args[0] if hasattr(args[0], "batch_sizes") else None
        given = packed.data if packed is not None else args[0]
        weight = next(iter(module._flat_weights), None)
        if not isinstance(given, Tensor) or not isinstance(weight, Tensor) or given.dtype is weight.dtype:
            return None
        try:
            module.check_input(given, None if packed is None else packed.batch_sizes)
        except (ValueError, RuntimeError) as error:
            refusal = error
        else:
            return None
        refused_calls.from_module(self.recorder, thread, module, args, refusal, sys._getframe(0))
        number = self.recorder.refusals.number_of(refusal)
        if number is None or not self._casting.may_heal(refusal):
            return None
        with private.DisableTorchFunction():
            made = self._casting.cast(given, weight.dtype, [weight], number)
        self._casting.note_one(number, "input", given.dtype, weight.dtype)
        return (made if packed is None else packed._replace(data=made), *args[1:])

    def module_output(self, module: nn.Module, result: Any) -> None:
        """Nothing is to be healed there; see ``healing.ledger``."""

    @contextmanager
    def backward(
        self, thread: Thread, frame: FrameType | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[None]:
        """A block around each backward pass."""
        self._gradients.before_backward(thread, frame)
        yield

    def replacements(self) -> Iterable[Replacement]:
        """Torch functions to replace while the trace is open."""
        yield from self._lists.replacements()
        yield from self._gradients.replacements()

    def function_mode(self, base: type) -> type:
        """The function mode to use."""
        return self._saved.function_mode(base)

    # ------------------------------------------------------------ the verdict

    def _casts_for(self, call: RefusedCall, arguments: list[tuple[str, Any]]) -> _Casts | None:
        number = call.refusal
        if number not in self._decided:
            # the layers of a recurrent call draw numbers between them, and a later one may be refused
            drops = any(name == "dropout" and value for name, value in arguments)
            again = repeatable(call.function) and not drops and self._casting.may_heal(call.error)
            self._decided[number] = self._decide(call, arguments) if again else None
        return self._decided[number]

    def _decide(self, call: RefusedCall, arguments: list[tuple[str, Any]]) -> _Casts | None:
        recording = with_facts(snapshot(self.recorder, whole=False), self._known)
        refused = recording.refused[call.refusal]
        ruling = self._judge(recording, refused)
        culprit = ruling.culprit
        if culprit is None or refused.code in _NEVER:
            return None
        if refused.code == "DT111":
            place = recording.places[refused.place] if refused.place >= 0 else Place()
            return _into_destination(place, refused, call)
        if refused.wants == "kernel":
            return self._in_fallback(arguments, culprit.dtype)
        if refused.wants in ("integer", "bool", "float", "complex"):
            wanted = _OF_KIND.get(refused.wants) or (
                COUNTERPART.get(culprit.dtype, "complex64")
                if refused.wants == "complex"
                else ruling.expected
                if ruling.expected in FLOATING
                else "float32"
            )
            return _Casts({culprit.index: getattr(torch, wanted)})
        if refused.wants != "agree" or ruling.expected is None:
            return None
        return _agreeing(call, arguments, ruling, ruling.expected, culprit.argument)

    def _in_fallback(self, arguments: list[tuple[str, Any]], dtype: str) -> _Casts | None:
        found = getattr(torch, dtype, None)
        same = {i: _FALLBACK for i, (_, v) in enumerate(arguments) if isinstance(v, Tensor) and v.dtype is found}
        if found in _WITHOUT_KERNEL:
            return _Casts(same, back=found)
        # integers and storage formats have no result of their own dtype to cast back to
        return _Casts(same) if dtype not in FLOATING or dtype in STORAGE_ONLY else None

    def _back(self, dtype: torch.dtype, number: int) -> Callable[[Any], Any]:
        """Casts floating results back to the dtype that the operands had."""
        witnesses = self.recorder.refusals.records[number].witnesses
        step = next((w.event for w in witnesses if w.dtype == dtype_name(dtype)), -1)

        def finish(out: Any) -> Any:
            if isinstance(out, Tensor):
                if out.dtype is not _FALLBACK:
                    return out
                made = out.to(dtype)
                if step >= 0:
                    self.recorder.origins.mark(made, step, -1)
                return made
            if type(out) in (list, tuple):
                return type(out)(map(finish, out))
            return type(out)(list(map(finish, out))) if isinstance(out, tuple) else out  # one of torch's named tuples

        return finish


def _agreeing(
    call: RefusedCall, arguments: list[tuple[str, Any]], ruling: Ruling, wanted: str, culprit: str
) -> _Casts | None:
    """The casts that make the operands agree: for all operands that share the culprit's cause."""
    rivals = {
        i: v for i, (_, v) in enumerate(arguments) if isinstance(v, Tensor) and dtype_name(v.dtype) in ruling.sides
    }
    written = destination(call)
    if isinstance(written, list):
        return None  # what it has already written would be written twice
    if written is not None:  # the operands follow the destination, whichever is the cause
        return _kept({i: written.dtype for i, v in rivals.items() if v.dtype is not written.dtype}, rivals)
    listed = culprit.partition("[")
    casts = {}
    for i, v in rivals.items():
        # only some elements of a list are witnesses
        alike = listed[1] and arguments[i][0].partition("[")[0] == listed[0]
        if dtype_name(v.dtype) != wanted and (i in ruling.blamed or alike):
            casts[i] = getattr(torch, wanted)
    return _kept(casts, rivals)


def _kept(casts: dict[int, torch.dtype], operands: dict[int, Tensor]) -> _Casts | None:
    """The casts, but for those that would drop an imaginary part."""
    drops = any(operands[i].is_complex() and not dtype.is_complex for i, dtype in casts.items())
    return None if drops else _Casts(casts)


def destination(call: RefusedCall) -> Any:
    """What a call writes into: a tensor, a list of tensors, or None for a call that makes a new result."""
    name = getattr(call.function, "__name__", "")
    schema = getattr(call.function, "_schema", None)
    in_place = name == "__setitem__" or name.endswith("_") and not name.endswith("__")
    if schema is not None:
        in_place = schema.is_mutable
    if isinstance(call.kwargs.get("out"), Tensor):
        return call.kwargs["out"]
    return call.args[0] if in_place and call.args and isinstance(call.args[0], (Tensor, list)) else None


def _into_destination(place: Place, refused: Refused, call: RefusedCall) -> _Casts | None:
    """For a result that does not fit its destination: it is copied there, or, for ``x += y``, bound to the name."""
    out = call.kwargs.get("out")
    if isinstance(out, Tensor) and out.is_floating_point():
        return _Casts({}, out=True)
    result = dict(refused.dtypes).get("result")
    rebinds = place.stack and isinstance(
        getattr(expressions.augmented(LIVE, place.stack[0]), "target", None), (ast.Name, ast.Attribute)
    )
    return _Casts({0: getattr(torch, result)}) if rebinds and result in FLOATING and result is not None else None


def _replaced(value: Any, made: dict[int, Any]) -> Any:
    """A call's arguments with some tensors replaced, by id."""
    if id(value) in made:
        return made[id(value)]
    if type(value) in (list, tuple):
        return type(value)(_replaced(v, made) for v in value)
    if isinstance(value, dict):
        return {k: _replaced(v, made) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "batch_sizes"):  # a PackedSequence
        return value._replace(data=_replaced(value.data, made))  # type: ignore[attr-defined]  # a named tuple of torch's
    return value
