"""What each module's parameters and buffers hold, also those of a model that was gone when the trace ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from ..records import FORWARD, Recording
from ..tables.dtypes import FLOATING


@dataclass(frozen=True, slots=True)
class Weight:
    """One floating parameter or buffer."""

    module: str
    """The module that holds it, or the one whose op used it."""
    dtype: str
    size: int
    """Its numbers."""
    event: int
    """What decided its dtype, -1 where that is not known."""


def held_weights(recording: Recording) -> Iterator[Weight]:
    """Every parameter and buffer that the recording lists. A model that was gone at the end has no list of them: there,
    those that its forward ops used, each once."""
    listed = set()
    for p in recording.parameters:
        listed.add(p.name.partition(".")[0])
        yield Weight(p.name.rpartition(".")[0], p.dtype, p.size, p.event)
    used: set[tuple[Any, ...]] = set()
    for op in recording.ops:
        if not op.module or op.phase not in FORWARD or op.module.partition(".")[0] in listed:
            continue
        for operand in op.inputs:
            key = (op.module, operand.dtype, operand.shape, operand.name)
            if operand.holder in ("parameter", "buffer") and operand.dtype in FLOATING and key not in used:
                used.add(key)
                yield Weight(op.module, operand.dtype, prod(operand.shape), operand.event)
