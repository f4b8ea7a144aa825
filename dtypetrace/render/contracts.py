"""How a run differs from its contract: each fact as it was and as it is, with the line that changed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..compare.contract import Breach, Region
from ..records import Origin
from ..terminal import seen
from . import wording

_MOST_NAMED = 4


def text(breaches: Sequence[Breach], file: str, autocast_lines: Mapping[str, Sequence[str]] | None = None) -> str:
    """The differences by module; the first line of a contract that holds says so.

    autocast_lines: the lines that ran under each autocast when the contract was written.
    """
    if not breaches:
        return f"dtypetrace contract: the run matches {seen(file)}"
    lines: list[str] = []
    above: tuple[str, ...] = ()
    for breach in breaches:
        if breach.modules != above:
            more = len(breach.modules) - _MOST_NAMED
            lines += [", ".join(breach.modules[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")]
        above = breach.modules
        lines += [f"  - {breach.key}: {breach.wanted}"] if breach.wanted else []
        lines += [f"  + {breach.key}: {breach.found}"] if breach.found else []
        lines += (
            [f"      {_event(breach.cause)}{_without(breach)}"] if breach.cause and breach.cause.place.stack else []
        )
    for autocast in sorted({word for b in breaches for word in _gone(b)}):
        was = "; ".join((autocast_lines or {}).get(autocast, ())[:_MOST_NAMED])
        lines += [f"when the contract was written, autocast {autocast} was on at: {was}"] if was else []
    count = len(breaches)
    lines.append(f"dtypetrace contract: {count} fact{'s differ' if count > 1 else ' differs'} from {file}")
    return "\n".join(map(seen, lines))


def _gone(breach: Breach) -> set[str]:
    """The autocasts that a module ran under and does not any more."""
    return set(breach.wanted.split(", ")) - {*breach.found.split(", "), ""} if breach.key == "autocast" else set()


def _without(breach: Breach) -> str:
    return " ran without autocast" if breach.key == "autocast" and not breach.found else ""


def regions(found: Sequence[Region]) -> str:
    """The lines that ran under autocast, as comments at the end of a contract; empty where there are none."""
    return "".join(f"{line}\n" for line in ("", *map(_region, found))) if found else ""


def _region(region: Region) -> str:
    one = region.first == region.last
    lines = f"line {region.first}" if one else f"lines {region.first} to {region.last}"
    function = "" if region.function == "<module>" else f", in {region.function}"
    return seen(f"# autocast {region.autocast}: {lines} of {wording.relative(region.file)}{function}")


def _event(origin: Origin) -> str:
    if origin.kind == "op":
        return f"{origin.op} at {wording.at(origin.place)}"
    return f"comes from {wording.at(origin.place)}: {wording.decided_by(origin)}"
