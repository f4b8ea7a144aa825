"""Births in a DataLoader's forked worker, sent along to the process that uses the batch.

A forked worker inherits the modes and records into its own copy, which nobody reads. What it knows about a tensor is
sent with the tensor, as plain events, and unpacked where the batch arrives. Spawned workers are not watched: for their
tensors, only the line that fetched them is known.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

from ..records import Frame
from . import private
from .marks import RawEvent
from .session import Session

SentEvent = tuple[str, str, tuple[Frame, ...], tuple[torch.dtype, ...], torch.dtype, bool]
"""An event as it is sent: how, op, frames, source, to, explicit."""
_LONGEST = 8
"""Events that are sent with one tensor: its last ones."""
_receiver: list[Session] = []
"""The recorder that is open in this process, if there is one."""


def install(recorder: Session) -> Callable[[], None]:
    """Sends and receives births until the returned function is called."""
    owner = os.getpid()
    reducers: dict[type, Any] = getattr(ForkingPickler, "_extra_reducers")  # noqa: B009 - untyped
    original = reducers.get(torch.Tensor)
    if original is None:
        return lambda: None

    def reduce(tensor: torch.Tensor) -> Any:
        reduced = original(tensor)
        if os.getpid() == owner or recorder.broken:
            return reduced
        try:
            with private.DisableTorchFunction():
                events = _packed(recorder, tensor)
        except Exception:  # nobody reads a worker's recording: the batch is sent without its events
            return reduced
        return (_rebuild, (events, *reduced[:2])) if events and len(reduced) == 2 else reduced

    reducers[torch.Tensor] = reduce
    _receiver.append(recorder)

    def remove() -> None:
        if reducers.get(torch.Tensor) is reduce:
            reducers[torch.Tensor] = original
        _receiver.remove(recorder)

    return remove


def _packed(recorder: Session, tensor: torch.Tensor) -> list[SentEvent]:
    """The tensor's events as plain data, birth first; empty where nothing is known about it."""
    mark = recorder.origins.of(tensor)
    events: list[SentEvent] = []
    number = mark.event if mark is not None else -1
    while number >= 0 and len(events) < _LONGEST:
        event = recorder.origins.events[number]
        events.append(
            (
                event.how,
                event.op,
                recorder.places.frames(event.place, recorder.user),
                event.source,
                event.to,
                event.explicit,
            )
        )
        number = event.parents[0] if event.parents else -1
    return events[::-1]


def _rebuild(events: list[SentEvent], function: Callable[..., torch.Tensor], args: tuple[Any, ...]) -> torch.Tensor:
    """Runs in the process where the batch arrives."""
    tensor = function(*args)
    if _receiver and not _receiver[-1].broken:
        recorder = _receiver[-1]
        try:
            above = -1
            for how, op, frames, source, to, explicit in events:
                root = above < 0
                event = RawEvent(
                    "worker" if root else how, op, recorder.places.given(frames), -1, source, to,
                    () if root else (above,), explicit=explicit,
                )  # fmt: skip
                above = recorder.origins.event(event)
            recorder.origins.mark(tensor, above, -1)
        except Exception:
            recorder.fail("a batch from a worker")
    return tensor
