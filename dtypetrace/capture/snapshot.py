"""The recording as plain data: numbers become names, places become files and lines.

Made when a recording is read, not while it grows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import torch
from torch import nn

from ..records import (
    Compared,
    Declared,
    Event,
    Later,
    Parameter,
    Place,
    Plan,
    Precision,
    Read,
    Recording,
    StateTensors,
    Unchanged,
    Update,
    Value,
)
from ..records.text import LIVE, ProgramText
from ..source import expressions
from . import declared, private
from .calls import dtype_name
from .compiled.recording import Reading
from .holders import parameter_record
from .marks import RawEvent, RawRead
from .module_names import Root
from .run_line import run_line
from .session import Session
from .stacks import CodeFile

_UNINITIALISED = (nn.parameter.UninitializedParameter, nn.parameter.UninitializedBuffer)
_MADE = frozenset({"factory", "cast", "conversion", "parameter", "reinterpret", "load"})


def snapshot(recorder: Session, *, whole: bool = True, **meta: Any) -> Recording:
    """Everything recorded so far, as plain data. ``whole``: False for the judgement of one refusal, which needs
    less."""
    return ending(recorder, whole=whole, **meta)()


def ending(recorder: Session, *, whole: bool = True, **meta: Any) -> Callable[[], Recording]:
    """Makes the snapshot when it is called. What needs live tensors, modules, devices and files is read before; the
    rest costs more, and a program that closes a trace without a look at it need not wait for that."""
    ledger = Reading(recorder.ledger, recorder.places, recorder.user) if whole else None
    files = recorder.places.files(recorder.user)
    text = _text(recorder, files) if whole else LIVE
    if recorder.places.full:
        recorder.not_seen[
            f"the places of operators after {len(recorder.places):,} distinct ones: new code in every step?"
        ] = None
    facts = {
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "ops": sum(o.count for o in recorder.ops),
        "steps": recorder.steps_done,
        "trains": recorder.trains,
        "numerics": recorder.values is not None,
        **recorder.watched,
        **({"compiled": "eager"} if recorder.ran_eagerly else {}),
    }
    live = _live(recorder, {**facts, **run_line(recorder.started), **meta}) if whole else _Live(facts)

    def recording() -> Recording:
        regions = ledger.regions() if ledger is not None else ()
        places = recorder.places.resolve(files, text)
        prefixes = recorder.modules.prefixes(places, text)
        names = recorder.modules.names(prefixes)

        def module(number: int) -> str:
            return names[number] if 0 <= number < len(names) else ""

        return Recording(
            places,
            tuple([_loaded(places, text, _event(s, module(s.module))) for s in recorder.origins.events]),
            tuple([o.record(module(o.module), recorder.modules.model_of(o.module)) for o in recorder.ops]),
            tuple(
                replace(r, module=module(number)) if isinstance(number := r.module, int) else r
                for r in recorder.refusals.records
            ),
            names,
            tuple([replace(p, name=f"{prefixes[root]}.{p.name}") for root, p in live.parameters]),
            (*live.not_seen, *(recorder.ledger.lost if whole else ())),
            live.facts,
            live.values,
            live.updates,
            live.plans,
            live.precisions,
            live.compared,
            unchanged=tuple(_unchanged(recorder, module)),
            spot_checks=live.checked,
            text=text,
            module_calls=tuple(recorder.modules.calls),
            module_results=tuple(tuple(map(dtype_name, dtypes)) for dtypes in recorder.modules.results),
            step_ends=recorder.stepping.ended(),
            regions=regions,
            optimizers=tuple(recorder.stepping.made.values()),
            declared=tuple(
                replace(d, module=".".join(filter(None, (prefixes[root], d.module)))) if root is not None else d
                for root, d in live.declared
            ),
            state=live.state,
            transfers=tuple(recorder.transfers.values()),
            later=tuple([Later(*key, event) for key, event in recorder.later.items()]),
        )

    return recording


@dataclass(frozen=True)
class _Live:
    """What is read when a trace ends, from tensors, modules and devices."""

    facts: dict[str, Any]
    parameters: tuple[tuple[Root, Parameter], ...] = ()
    """Named within their outermost module."""
    not_seen: tuple[str, ...] = ()
    values: tuple[Value, ...] = ()
    updates: tuple[Update, ...] = ()
    plans: tuple[Plan, ...] = ()
    precisions: tuple[Precision, ...] = ()
    compared: tuple[Compared, ...] = ()
    checked: tuple[Precision, ...] = ()
    declared: tuple[tuple[Root | None, Declared], ...] = ()
    state: tuple[StateTensors, ...] = ()


def _live(recorder: Session, facts: dict[str, Any]) -> _Live:
    values = recorder.values.read() if recorder.values is not None else ()
    precisions, compared = recorder.followed.read() if recorder.followed is not None else ((), ())
    checked, compared_too = recorder.checks.read() if recorder.checks is not None else ((), ())
    parameters = _parameters(recorder)
    return _Live(
        facts,
        parameters,
        tuple(recorder.not_seen),
        values,
        recorder.updates.read(),
        tuple(recorder.plans),
        precisions,
        compared + compared_too,
        checked,
        tuple(_declared(recorder)),
        recorder.updates.state(),
    )


def _declared(recorder: Session) -> Iterator[tuple[Root | None, Declared]]:
    for root in recorder.modules.roots:
        yield from ((root, one) for one in root.declared)
    # what steps was told by those that called it; a run without steps has only what the process was told
    yield from ((None, one) for one in recorder.told or (() if recorder.steps_done else declared.launchers()))


def _unchanged(recorder: Session, module: Callable[[int], str]) -> Iterator[Unchanged]:
    for (place, number, event, op), (name, dtype, reads, whole) in recorder.births.unchanged.items():
        yield Unchanged(name, dtype_name(dtype), place, module(number), event, op, _reads(reads), whole)


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
        healed=raw.healed,
    )


def _text(recorder: Session, files: Mapping[int, CodeFile]) -> ProgramText:
    """The text of every file that a place is in, and the bytes of files that a patch could change."""
    healed = any(r.healed for r in recorder.refusals.records)
    own = {f.file for f in files.values() if f.user} if healed else ()
    return ProgramText.taken({f.file for f in files.values()} | recorder.places.given_files, own)


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


def _parameters(recorder: Session) -> tuple[tuple[Root, Parameter], ...]:
    """The floating parameters and buffers of every model that was called, as they were when the program last computed
    with them; of one that is gone, as they were when it first ran or an optimizer first stepped."""
    found: dict[int, tuple[Root, Parameter]] = {}
    last = _LastUse(recorder)
    with private.DisableTorchFunction():
        for root in recorder.modules.roots:
            module = root.ref()
            if module is None:  # a function made it and has ended
                found.update({number: (root, held) for number, held in root.held if number not in found})
                continue
            for held in recorder.modules.tensors(module):
                tensor = held.tensor
                if (
                    tensor.dtype.is_floating_point
                    and id(tensor) not in found
                    and not isinstance(tensor, _UNINITIALISED)
                ):
                    event = last.event(tensor)
                    dtype = recorder.origins.events[event].to if event >= 0 else None
                    found[id(tensor)] = root, parameter_record(held, event, dtype)
    return tuple(found.values())


class _LastUse:
    """What decided a weight's dtype when the program last computed with it: a cast for saving comes after that.

    In a run with optimizer steps, what counts is what ran until the last of them.
    """

    def __init__(self, recorder: Session) -> None:
        self._recorder = recorder
        ran = recorder.ops[: recorder.stepping.seen or None]
        # not what saving runs: state_dict() detaches
        computes = (op for op in ran if op.module >= 0 or op.phase in ("backward", "optimizer"))
        self._used = {operand[1] for op in computes for operand in op.operands}
        for refused in recorder.refusals.records:
            self._used.update(witness.event for witness in refused.witnesses)
            self._used.update(parameter.event for parameter in refused.model)

    def event(self, weight: torch.Tensor) -> int:
        """The event that had decided a weight's dtype by then; -1 where none is known."""
        origins = self._recorder.origins
        before = origins.changed_unseen(weight)
        now = before if before >= 0 else self._recorder.event_of(weight)
        waiting, seen = [now], set[int]()
        while waiting and now >= 0:
            event = waiting.pop(0)
            if event in self._used:
                return event
            seen.add(event)
            waiting += sorted(origins.replaced.get(event, set()) - seen, reverse=True)
        return now
