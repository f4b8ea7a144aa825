"""The schemas that reports follow: dtypetrace's own for the JSON report, SARIF 2.1.0's for the SARIF log.

``schemas/sarif-2.1.0.json`` is that of the PyPI package sarif-om (``schemas/LICENSE.sarif``), without its descriptions.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

import jsonschema

import dtypetrace
from dtypetrace import report

HERE = Path(__file__).resolve().parent
PUBLISHED = Path(dtypetrace.__file__).parent / "tables" / "report.schema.json"


def faults(kind: str, data: object) -> list[str]:
    """What is wrong with a report of a kind, ``json`` or ``sarif``."""
    found = sorted(_validator(kind).iter_errors(data), key=lambda e: list(map(str, e.absolute_path)))
    return [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}" for e in found]


@functools.cache
def _validator(kind: str):
    if kind == "sarif":
        return jsonschema.Draft4Validator(json.loads((HERE / "schemas" / "sarif-2.1.0.json").read_text("utf-8")))
    return jsonschema.Draft202012Validator(_closed(json.loads(PUBLISHED.read_text("utf-8"))))


def _closed(schema: object) -> object:
    """The schema without the freedom to have other fields, so that a field which it does not have is noticed."""
    if isinstance(schema, dict):
        closed = {key: _closed(value) for key, value in schema.items()}
        return {**closed, "additionalProperties": False} if isinstance(schema.get("properties"), dict) else closed
    return [_closed(value) for value in schema] if isinstance(schema, list) else schema


def check(recording, findings) -> None:
    """Asserts that both reports of a recording follow their schemas."""
    assert faults("json", json.loads(json.dumps(report.to_json(recording, findings), allow_nan=False))) == []
    assert faults("sarif", json.loads(report.FORMATS["sarif"](recording, findings))) == []
