"""The text of a forecast: what a recorded run would have done in other dtypes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..foresight.forecast import Forecast, Predicted
from ..rules.run_facts import quantity
from ..tables.codes import TITLES
from ..terminal import seen
from .wording import relative

_MOST = 12
"""Calls shown of each kind; a forecast that refuses more is wrong at its start."""


def text(forecast: Forecast) -> str:
    """The forecast for the console: the calls that would end otherwise, memory and work, and what is not known."""
    lines = [f"what if {_changes(forecast)}"]
    lines += _calls("would be refused", forecast.refused)
    lines += _calls("was refused, and still would be", forecast.still)
    lines += _calls("was refused, and would run", forecast.mended)
    lines += _calls("would widen its result", forecast.widened)
    if not (forecast.refused or forecast.still):
        lines.append("nothing would be refused" + (", as far as is known" if forecast.unknown else ""))
    lines.append(f"{forecast.changed:,} calls would compute in another dtype")
    if not forecast.changed and forecast.names:
        lines.append(
            "what you named has this dtype already, or is cast later: name the module, or the line of that cast"
        )
    before, after = forecast.before, forecast.after
    lines += [
        _amounts("parameters", before.parameters, after.parameters, "B"),
        _amounts("results of forward", before.results, after.results, "B"),
        _amounts("matmuls and convolutions", before.flops, after.flops, "FLOP"),
    ]
    if forecast.unknown:
        named = ", ".join(f"{op} ({count:,})" for op, count in list(forecast.unknown.items())[:_MOST])
        lines.append(f"not known, because no rule covers these calls: {named}")
    lines.append(f"by the rules of operators measured from {forecast.table}")
    return "\n".join(seen(line) for line in lines if line)


def _changes(forecast: Forecast) -> str:
    parts = [f"{name} is {dtype}" for name, dtype in forecast.names.items()]
    if forecast.change.autocast is not None:
        parts.append(f"autocast is {forecast.change.autocast}")
    return ", ".join(parts) or "nothing changes"


def _calls(title: str, calls: Sequence[Predicted]) -> list[str]:
    if not calls:
        return []
    rows = [_call(call) for call in calls[:_MOST]]
    if len(calls) > _MOST:
        rows.append(f"  {len(calls) - _MOST} more calls")
    return [f"{title}:", *rows]


def _call(call: Predicted) -> str:
    module = f" in {call.module}" if call.module else ""
    times = f", {call.count:,} times" if call.count > 1 else ""
    ends = f": {call.code} {TITLES[call.code]}" if call.code else f" -> {call.gives}" if call.gives else ""
    at = f" at {relative(call.place.file)}:{call.place.line}" if call.place.stack else ""
    return f"  {call.op}({', '.join(call.after)}){ends}{module}{at}{times}"


def _amounts(title: str, before: Mapping[str, int], after: Mapping[str, int], unit: str) -> str:
    if before == after:
        return ""
    return f"{title}: {_sum(before, unit)}, would be {_sum(after, unit)}"


def _sum(amounts: Mapping[str, int], unit: str) -> str:
    return " + ".join(f"{quantity(amount, unit)} {dtype}" for dtype, amount in amounts.items()) or "none"
