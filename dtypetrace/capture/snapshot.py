"""The recording as plain data: numbers become names, places become files and lines.

Made when a recording is read, not while it grows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..records import Event, Op, Parameter, Place, Read, Recording, Unchanged
from ..records.text import LIVE, ProgramText
from ..source import expressions
from . import private
from .calls import dtype_name
from .marks import RawEvent, RawRead
from .module_names import clean_name
from .run_line import run_line

if TYPE_CHECKING:
    from .recorder import Recorder

_UNINITIALISED = (nn.parameter.UninitializedParameter, nn.parameter.UninitializedBuffer)
_MADE = frozenset({"factory", "cast", "conversion", "parameter", "reinterpret", "load"})


def snapshot(recorder: Recorder, *, whole: bool = True, **meta: Any) -> Recording:
    """Everything recorded so far, as plain data. ``whole``: False for the judgement of one refusal, which needs
    less."""
    return ending(recorder, whole=whole, **meta)()


def ending(recorder: Recorder, *, whole: bool = True, **meta: Any) -> Callable[[], Recording]:
    """Makes the snapshot when it is called. What needs live tensors, modules, devices and files is read before; the
    rest costs as much again, and a program that closes a trace without a look at it need not wait for that."""
    places = recorder.places.resolve(recorder.user)
    if recorder.places.full:
        recorder.not_seen[f"the places of operators after {len(places):,} distinct ones: new code in every step?"] = (
            None
        )
    text = _text(recorder, places) if whole else LIVE
    names = recorder.modules.names(places, text)

    def module(number: int) -> str:
        return names[number] if 0 <= number < len(names) else ""

    events = tuple([_loaded(places, text, _event(s, module(s.module))) for s in recorder.origins.events])

    def ops() -> tuple[Op, ...]:
        return tuple([o.record(module(o.module), recorder.modules.model_of(o.module)) for o in recorder.ops])

    refused = tuple(
        replace(r, module=module(number)) if isinstance(number := r.module, int) else r
        for r in recorder.refusals.records
    )
    facts = {
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "ops": sum(o.count for o in recorder.ops),
        "steps": recorder.steps_done,
        "trains": recorder.trains,
    }
    if not whole:
        return lambda: Recording(places, events, ops(), refused, names, meta=facts, text=text)
    values = recorder.values.read() if recorder.values is not None else ()
    whole_reference = recorder.reference if recorder.checks is None else None
    precisions, compared = whole_reference.read() if whole_reference is not None else ((), ())
    checked = recorder.checks.read()[0] if recorder.checks is not None else ()
    parameters, not_seen, plans = _parameters(recorder, places, text), tuple(recorder.not_seen), tuple(recorder.plans)
    updates, unchanged = recorder.updates.read(), tuple(_unchanged(recorder, module))
    ran = run_line(recorder.started)
    return lambda: Recording(
        places,
        events,
        ops(),
        refused,
        names,
        parameters,
        not_seen,
        {**facts, **ran, **meta},
        values,
        updates,
        plans,
        precisions,
        compared,
        unchanged=unchanged,
        spot_checks=checked,
        text=text,
    )


def _unchanged(recorder: Recorder, module: Callable[[int], str]) -> Iterator[Unchanged]:
    for (place, number, event, op), (name, dtype, reads) in recorder.births.unchanged.items():
        yield Unchanged(name, dtype_name(dtype), place, module(number), event, op, _reads(reads))


def _reads(raw: Iterable[RawRead]) -> tuple[Read, ...]:
    return tuple([Read(dtype_name(r.dtype), r.place, r.event, r.frames_up, r.op) for r in raw])


def _event(raw: RawEvent, module: str) -> Event:
    return Event(
        raw.how,
        raw.op,
        raw.place,
        module,
        tuple(map(dtype_name, raw.source)),
        dtype_name(raw.to),
        raw.parents,
        _reads(raw.reads),
        raw.name,
        raw.default,
        raw.explicit,
    )


def _text(recorder: Recorder, places: Sequence[Place]) -> ProgramText:
    """The text of every file that a place names, and the bytes of files that a patch could change."""
    healed = any(r.healed for r in recorder.refusals.records)
    own = {f.file for p in places for f in p.stack if f.user} if healed else ()
    return ProgramText.taken(recorder.places.files, own)


def _loaded(places: Sequence[Place], text: ProgramText, event: Event) -> Event:
    """A tensor that a library's ``from_pretrained`` makes counts as loaded, no matter how it was made.

    The checkpoint and the user's call decided its dtype.
    """
    stack = (
        places[event.place].stack if event.how in _MADE and not event.parents and 0 <= event.place < len(places) else ()
    )
    if not any(f.function.endswith("from_pretrained") for f in takewhile(lambda f: not f.user, stack)):
        return event
    user = next((f for f in stack if f.user), None)
    named = user is not None and expressions.dtype_keyword(text, user) is not None
    return replace(event, how="load", op="from_pretrained", reads=(), default=-1, explicit=named)


def _parameters(recorder: Recorder, places: Sequence[Place], text: ProgramText) -> tuple[Parameter, ...]:
    """The floating parameters and buffers of every model that was called and is still alive."""
    found: dict[int, Parameter] = {}
    prefixes = recorder.modules.prefixes(places, text)
    with private.DisableTorchFunction():
        for root, prefix in prefixes.items():
            module = root.ref()
            for name, tensor in (*module.named_parameters(), *module.named_buffers()) if module is not None else ():
                if (
                    tensor.dtype.is_floating_point
                    and id(tensor) not in found
                    and not isinstance(tensor, _UNINITIALISED)
                ):
                    full = f"{prefix}.{clean_name(name, module)}"
                    dtype, event = dtype_name(tensor.dtype), recorder.event_of(tensor)
                    found[id(tensor)] = Parameter(full, dtype, tensor.numel(), event, tensor.requires_grad)
    return tuple(found.values())
