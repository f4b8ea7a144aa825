"""Records as data for JSON, in the form of the JSON report (schema 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from typing import Any

from .findings import FlowStep, Origin
from .places import Place

_NOT_IN_JSON = frozenset({"written", "handed"})


def shown_fields(kind: Any) -> list[Field[Any]]:
    """The fields of a record that are in the JSON report."""
    shown = (f for f in fields(kind) if f.metadata.get("saved", True) and f.metadata.get("in_report", True))
    return [f for f in shown if f.name not in _NOT_IN_JSON]


def to_plain(value: Any) -> Any:
    """A value of ``records`` as data for JSON, in the form of schema 1.

    >>> from dtypetrace.records import Raised
    >>> to_plain(Raised("RuntimeError", "no"))
    {'type': 'RuntimeError', 'message': 'no'}
    """
    if isinstance(value, Place):
        return {
            "file": value.file,
            "line": value.line,
            "column": value.column,
            "end_line": value.end_line,
            "end_column": value.end_column,
            "function": value.function,
            "stack": [{"file": f.file, "line": f.line, "function": f.function, "user": f.user} for f in value.stack],
        }
    if isinstance(value, Origin):
        return {
            "kind": value.kind,
            "name": value.name,
            "op": value.op,
            "explicit": value.explicit,
            **to_plain(value.place),
        }
    if isinstance(value, FlowStep):
        return {
            "place": to_plain(value.place),
            "op": value.op,
            "module": value.module,
            "from": value.source,
            "to": value.to,
            "how": value.how,
            "via": value.via,
        }
    if is_dataclass(value):
        return {f.name: to_plain(getattr(value, f.name)) for f in shown_fields(type(value))}
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, (tuple, list, frozenset, set)):
        return [to_plain(v) for v in value]
    return value
