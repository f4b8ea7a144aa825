"""The published schema, which JSON reports follow."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import jsonschema

import dtypetrace
from dtypetrace import report

PUBLISHED = Path(dtypetrace.__file__).parent / "tables" / "report.schema.json"


def faults(data: object) -> list[str]:
    """What is wrong with a report."""
    found = sorted(_validator().iter_errors(data), key=lambda e: list(map(str, e.absolute_path)))
    return [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}" for e in found]


@functools.cache
def _validator():
    return jsonschema.Draft202012Validator(_closed(json.loads(PUBLISHED.read_text("utf-8"))))


def _closed(schema: object) -> object:
    """The schema without the freedom to have other fields, so that a field which it does not have is noticed."""
    if isinstance(schema, dict):
        closed = {key: _closed(value) for key, value in schema.items()}
        return {**closed, "additionalProperties": False} if isinstance(schema.get("properties"), dict) else closed
    return [_closed(value) for value in schema] if isinstance(schema, list) else schema


def check(recording, findings) -> None:
    """Asserts that the report of a recording follows the schema."""
    assert faults(json.loads(json.dumps(report.to_json(recording, findings), allow_nan=False))) == []
