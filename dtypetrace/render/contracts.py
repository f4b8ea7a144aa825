"""How a run differs from its contract: each fact as it was and as it is, with the line that changed it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..compare.contract import Breach
from ..records import Origin
from ..tables.english import some
from ..terminal import seen
from . import wording

_MOST_NAMED = 4


def text(breaches: Sequence[Breach], file: str) -> str:
    """The differences by module; the first line of a contract that holds says so."""
    if not breaches:
        return f"dtypetrace contract: the run matches {seen(file)}"
    count = len(breaches)
    end = f"dtypetrace contract: {count} fact{'s differ' if count > 1 else ' differs'} from {file}"
    return "\n".join(map(seen, [*lines(breaches), end]))


def lines(breaches: Sequence[Breach]) -> Iterator[str]:
    """Each fact as it was and as it is, below its modules."""
    above: tuple[str, ...] = ()
    for breach in breaches:
        if breach.modules != above:
            yield some(breach.modules, _MOST_NAMED)
        above = breach.modules
        yield from [f"  - {breach.key}: {breach.wanted}"] if breach.wanted else []
        yield from [f"  + {breach.key}: {breach.found}"] if breach.found else []
        if breach.cause and breach.cause.place.stack:
            yield f"      {_event(breach.cause)}{_without(breach)}"


def _without(breach: Breach) -> str:
    return " ran without autocast" if breach.key == "autocast" and not breach.found else ""


def _event(origin: Origin) -> str:
    if origin.kind == "op":
        return f"{origin.op} at {wording.at(origin.place)}"
    return f"comes from {wording.at(origin.place)}: {wording.decided_by(origin)}"
