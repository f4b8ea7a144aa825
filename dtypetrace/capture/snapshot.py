"""What was recorded, as plain data: numbers become names, places become files and lines.

Asked for when a recording is read, not while it grows.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..records import Op, Parameter, Place, Read, Recording, Step
from ..source import expressions
from . import private
from .births import dtype_name
from .modules import clean_name

if TYPE_CHECKING:
    from .recorder import Recorder

_MADE = frozenset({"factory", "cast", "conversion", "parameter", "reinterpret", "load"})


def snapshot(recorder: Recorder, *, whole: bool = True, **meta: Any) -> Recording:
    """Everything recorded so far, as plain data; ``whole`` is False for a verdict on one refusal, which asks for less."""
    places = recorder.places.resolve(recorder.user)
    names = recorder.modules.names(places)

    def module(number: int) -> str:
        return names[number] if 0 <= number < len(names) else ""

    steps = tuple(
        _loaded(places, Step(
            s.how, s.op, s.place, module(s.module), tuple(map(dtype_name, s.source)), dtype_name(s.to), s.parents,
            tuple(Read(dtype_name(r.dtype), r.place, r.step, r.frames_up) for r in s.reads), s.name, s.default, s.explicit,
        ))
        for s in recorder.origins.steps
    )  # fmt: skip
    ops = tuple(
        Op(
            o.op, o.aten, o.phase, module(o.module), o.place, o.inputs, o.outputs, o.count, o.autocast, o.of, o.shape, o.device, _read(o), o.uncached,
            recorder.modules.model_of(o.module), o.effect, o.written,
        )
        for o in recorder.ops
    )  # fmt: skip
    refused = tuple(
        replace(r, module=module(r.module) if isinstance(r.module, int) else r.module) for r in recorder.refused
    )
    facts = {
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "ops": sum(o.count for o in recorder.ops),
        "steps": recorder.steps_done,
    }
    if not whole:
        return Recording(places, steps, ops, refused, names, meta=facts)
    values = recorder.values.read() if recorder.values is not None else ()
    precisions, compared = recorder.reference.read() if recorder.reference is not None else ((), ())
    parameters, not_seen, plans = _parameters(recorder, places), tuple(recorder.not_seen), tuple(recorder.plans)
    return Recording(
        places,
        steps,
        ops,
        refused,
        names,
        parameters,
        not_seen,
        {**facts, **meta},
        values,
        recorder.updates.read(),
        plans,
        precisions,
        compared,
    )


def _loaded(places: Sequence[Place], step: Step) -> Step:
    """However a library's ``from_pretrained`` makes a tensor, it loads it: the checkpoint and the user's call decided its dtype."""
    stack = places[step.place].stack if step.how in _MADE and not step.parents and 0 <= step.place < len(places) else ()
    if not any(f.function.endswith("from_pretrained") for f in takewhile(lambda f: not f.user, stack)):
        return step
    user = next((f for f in stack if f.user), None)
    named = user is not None and expressions.names_dtype(user)
    return replace(step, how="load", op="from_pretrained", reads=(), default=-1, explicit=named)


def _read(op: Any) -> float | None:
    """An op's peak, as a number from now on: a trace that is still open would see the reading, and wait for the device twice."""
    if isinstance(op.peak, torch.Tensor):
        with private.unseen():
            op.peak = float(op.peak.item())
    return op.peak


def _parameters(recorder: Recorder, places: Sequence[Place]) -> tuple[Parameter, ...]:
    """The floating parameters and buffers of every model that was called and is alive."""
    found: dict[int, Parameter] = {}
    prefixes = recorder.modules.prefixes(places)
    with private.DisableTorchFunction():
        for root, prefix in prefixes.items():
            module = root.ref()
            for name, tensor in (*module.named_parameters(), *module.named_buffers()) if module is not None else ():
                if (
                    tensor.dtype.is_floating_point
                    and id(tensor) not in found
                    and not isinstance(tensor, nn.parameter.UninitializedTensorMixin)
                ):
                    full = f"{prefix}.{clean_name(name, module)}"
                    found[id(tensor)] = Parameter(
                        full, dtype_name(tensor.dtype), tensor.numel(), recorder.step_of(tensor)
                    )
    return tuple(found.values())
