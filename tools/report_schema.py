"""Writes the JSON Schema of the JSON report from the types of the records, with their docstrings as descriptions.

python -m tools.report_schema
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from dtypetrace.records import SCHEMA, Finding, FlowStep, NotJudged, Origin, Place, ReceiptRow
from dtypetrace.records.plain import shown_fields
from dtypetrace.render.census import OperatorRow
from dtypetrace.render.listings import CompiledRow
from dtypetrace.tables.codes import TITLES

FILE = Path(__file__).resolve().parents[1] / "dtypetrace" / "tables" / "report.schema.json"
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_Schema = dict[str, Any]
_FRAME: _Schema = {
    "type": "object",
    "properties": {
        "file": {"type": "string"},
        "line": {"type": "integer"},
        "function": {"type": "string"},
        "user": {"type": "boolean", "description": "Whether it is the user's own code, not a library's."},
    },
    "required": ["file", "line", "function", "user"],
}
_KNOWN: dict[tuple[str, str], _Schema] = {
    ("Finding", "code"): {"enum": sorted(TITLES)},
    ("Finding", "severity"): {"enum": ["error", "warning", "note"]},
    ("FlowStep", "how"): {"enum": ["value", "cast", "attribute", "promotion", "autocast", "copy"]},
}
"""Fields that have a few values only."""


def schema() -> _Schema:
    """The JSON Schema of ``report.to_json``."""
    made = _Made()
    body = {
        "schema": {"const": SCHEMA},
        "meta": {
            "type": "object",
            "description": "The run: versions, how many ops and optimizer steps were watched.",
            "properties": {name: {"type": kind} for name, kind in (("torch", "string"), ("python", "string"))}
            | {name: {"type": "integer"} for name in ("ops", "steps")}
            | {"rank": {"type": "integer"}, "world": {"type": "integer"}, "ranks": {"type": "string"}}
            | {"stopped": {"type": "boolean", "description": "Whether this rank's script was stopped before its end."}}
            | {
                "script": {"type": "string", "description": "The absolute path of the program that ran."},
                "arguments": {"type": "string", "description": "Its arguments, without the values of secret ones."},
                "started": {"type": "string", "description": "When tracing began, in UTC: 2026-01-31T12:00:00Z."},
                "milliseconds": {"type": "integer", "description": "How long tracing lasted."},
            }
            | {"watched": {"type": "string", "description": "Which of the steps were watched, if not all."}}
            | {"numerics": {"type": "boolean", "description": "Whether values were measured."}}
            | {"trains": {"type": "boolean", "description": "Whether an optimizer was made or a gradient taken."}},
        },
        "not_seen": {"type": "array", "items": {"type": "string"}, "description": "What limits this report."},
        "findings": {"type": "array", "items": made.of(Finding), "description": "The most serious one comes first."},
        "operators": {"type": "array", "items": made.of(OperatorRow), "description": "What ran in which dtype."},
        "receipt": {
            "type": "array",
            "items": made.of(ReceiptRow),
            "description": "What was asked for in dtypes beside what ran, part by part.",
        },
        "work": {
            "type": "object",
            "description": "FLOP of matmuls and the like by dtype; numbers of weights by dtype; in words.",
        },
        "not_judged": {
            "type": "array",
            "items": made.of(NotJudged),
            "description": "What the findings cannot speak of, and why.",
        },
        "compiled": {"type": "array", "items": made.of(CompiledRow), "description": "What compiled code made of it."},
        "modules": {
            "type": "array",
            "description": "How often the program called each module's forward; a checkpoint's recompute is no call.",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "calls": {"type": "integer", "minimum": 0}},
                "required": ["name", "calls"],
            },
        },
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "dtypetrace's JSON report",
        "description": "Within one schema number, fields may be added; none is removed or changes its meaning.",
        "type": "object",
        "properties": body,
        "required": list(body),
        "$defs": dict(sorted(made.definitions.items())),
    }


class _Made:
    """The definitions that were needed so far, by the name of their type."""

    def __init__(self) -> None:
        self.definitions: dict[str, _Schema] = {}

    def of(self, kind: Any) -> _Schema:
        if kind in _PLAIN:
            return {"type": _PLAIN[kind]}
        if is_dataclass(kind):
            name = kind.__name__
            if name not in self.definitions:
                self.definitions[name] = {}  # a type may hold itself
                self.definitions[name] = self._record(kind)
            return {"$ref": f"#/$defs/{name}"}
        origin, args = typing.get_origin(kind), typing.get_args(kind)
        if origin in (typing.Union, types.UnionType):
            return {"anyOf": [self.of(arg) for arg in args]}
        if origin is tuple and args[-1] is Ellipsis:
            return {"type": "array", "items": self.of(args[0])}
        if origin is tuple:
            return {"type": "array", "prefixItems": [self.of(arg) for arg in args], "minItems": len(args)}
        assert origin is not None and issubclass(origin, Mapping), kind
        return {"type": "object", "additionalProperties": self.of(args[1])}

    def _record(self, kind: Any) -> _Schema:
        hints, said = typing.get_type_hints(kind), _descriptions(kind)
        place = self._place()
        if kind is Place:
            found = place
        elif kind is Origin:
            own = {name: self.of(hints[name]) for name in ("kind", "name", "op", "explicit")}
            found = own | place
        else:
            names = {f.name for f in shown_fields(kind)}
            if kind is FlowStep:
                names -= {"said", "called", "receiver", "read"}
            found = {
                ("from" if kind is FlowStep and f.name == "source" else f.name): self.of(hints[f.name])
                | _KNOWN.get((kind.__name__, f.name), {})
                | ({"description": said[f.name]} if f.name in said else {})
                for f in fields(kind)
                if f.name in names
            }
        for name in found:
            if "enum" in found[name]:
                found[name].pop("type", None)
        description = {"description": inspect.getdoc(kind) or ""}
        return {"type": "object", **description, "properties": found, "required": list(found)}

    def _place(self) -> _Schema:
        hints = typing.get_type_hints(Place)
        assert list(hints) == ["stack"]
        number = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
        return {
            "file": {"type": "string", "description": "Empty where no line is known."},
            "line": {"type": "integer", "description": "From 1; 0 where no line is known."},
            "column": {**number, "description": "Characters from 1."},
            "end_line": number,
            "end_column": {**number, "description": "Exclusive."},
            "function": {"type": "string"},
            "stack": {"type": "array", "items": _FRAME, "description": "Innermost first, without torch's frames."},
        }


def _descriptions(kind: Any) -> dict[str, str]:
    """The docstrings that stand below the fields of a dataclass."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    said = {}
    for node, following in zip(body.body, body.body[1:]):
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            said[node.target.id] = " ".join(str(following.value.value).split())
    return said


def main() -> None:
    FILE.write_text(json.dumps(schema(), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
