"""Checks the diffs for what was not refused, before they are shown.

Each must fit the program's text, as every diff must (``rules.checks``). Where it is known which births it changes, the
dtype rules replay the run with that change, and no call may be refused after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .. import graph
from ..foresight import DtypeChange, Replay
from ..records import Finding, Fix, Recording
from ..tables.english import quoted
from . import checks
from .advice import without_diff
from .case import short

CHECKED = ("text", "dtype rules: nothing else is refused")


@dataclass(frozen=True)
class Text:
    """A remedy with edits, and the program that they change."""

    recording: Recording
    fix: Fix


def objection_of_text(recording: Recording, fix: Fix) -> str:
    """Why edits do not fit the program's text; empty where they do."""
    change = Text(recording, fix)
    of_text = (checks.it_parses, checks.its_names_exist, checks.it_spares_variables)
    return next((why for check in of_text if (why := check(change))), "")


def shown_if_it_fits(recording: Recording, found: Finding) -> Finding:
    """A finding, without the edits of its fix if they do not fit the text."""
    fix = found.fix
    if fix is None or not fix.edits or fix.checked:
        return found
    why = objection_of_text(recording, fix)
    return replace(found, fix=without_diff(fix, why) if why else replace(fix, checked=("text",)))


def born_otherwise(recording: Recording, fix: Fix, births: Mapping[int, str]) -> Fix:
    """A fix whose edits change births, each event to a dtype; without its edits where something objects."""
    if not fix.edits or min(births, default=-1) < 0 or len(recording.ops) > checks.MOST_OPS:
        return fix
    if why := objection_of_text(recording, fix):
        return without_diff(fix, why)
    refused = checks.refusing(Replay(recording, DtypeChange(births=births)))
    if refused is None:
        return replace(fix, checked=CHECKED)
    place = graph.place_of(recording, refused.place)
    too = f"{short(place)} then needs a change, too, because {quoted(refused.op)} there would refuse two dtypes"
    change = f"{fix.instruction} ({short(fix.place)})"
    return replace(fix, edits=(), safe=False, why=f"{change}{fix.reason}; {too}", change=change, named=fix.place)
