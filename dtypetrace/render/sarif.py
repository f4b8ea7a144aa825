"""Findings as a SARIF 2.1.0 log, which code scanning services and editors read."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from ..records import Edit, Finding, Frame, Recording
from ..tables.codes import TITLES
from . import wording
from .annotations import lead, repository_path

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_Plain = dict[str, Any]


def sarif(recording: Recording, findings: Sequence[Finding]) -> str:
    """The log as JSON text: one result for each finding, with its flow and its checked edits."""
    return json.dumps(log(recording, findings), indent=1)


def log(recording: Recording, findings: Sequence[Finding]) -> _Plain:
    """The log as plain data: one run, one rule for each code that occurs, one result for each finding."""
    codes = list(dict.fromkeys(f.code for f in findings))
    rules = [
        {"id": code, "shortDescription": {"text": TITLES[code]}, "help": {"text": f"dtypetrace explain {code}"}}
        for code in codes
    ]
    version = importlib.import_module("dtypetrace").__version__  # importing it by name would reach torch
    unseen = [{"level": "note", "message": {"text": f"not seen: {reason}"}} for reason in recording.not_seen]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "dtypetrace", "version": version, "rules": rules}},
                "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": unseen}],
                "columnKind": "unicodeCodePoints",
                "results": [_result(recording, f, codes.index(f.code)) for f in findings],
            }
        ],
    }


def _result(recording: Recording, f: Finding, rule: int) -> _Plain:
    labels = wording.labels(f)
    marked = lead(labels)
    text = f"{f.title}{wording.times(f)}"
    help_text = f.fix.words if f.fix is not None else ""
    found: _Plain = {
        "ruleId": f.code,
        "ruleIndex": rule,
        "level": f.severity,
        "message": {"text": f"{text}. {marked[1]}" if marked else text},
        "locations": [_location(*marked)] if marked else [],
        "partialFingerprints": {"dtypetrace/v1": _fingerprint(recording, f, marked)},
        "properties": {"kind": f.kind, "module": f.module, "phase": f.phase, "op": f.op, "help": help_text},
    }
    if f.count > 0:
        found["occurrenceCount"] = f.count
    flow = [{"location": _location(frame, label)} for frame, label in labels if frame.line > 0]
    if flow:
        found["codeFlows"] = [{"threadFlows": [{"locations": flow}]}]
    if f.fix is not None and f.fix.edits:
        found["fixes"] = [{"description": {"text": help_text}, "artifactChanges": _changes(f.fix.edits)}]
    return found


def _location(frame: Frame, label: str) -> _Plain:
    region: _Plain = {"startLine": frame.line}
    if frame.column:
        region["startColumn"] = frame.column
    if frame.end_line and frame.end_line >= frame.line:
        region["endLine"] = frame.end_line
        if frame.end_column:
            region["endColumn"] = frame.end_column
    return {
        "physicalLocation": {"artifactLocation": _artifact(frame.file), "region": region},
        "message": {"text": label},
    }


def _artifact(file: str) -> _Plain:
    """A file of the checkout is given relative to its root, as code hosts need it; another one by its whole path."""
    path = repository_path(file)
    uri = quote(path, errors="replace")
    if not os.path.isabs(file):
        return {"uri": uri}
    return {"uri": uri, "uriBaseId": "%SRCROOT%"} if path != file else {"uri": f"file://{uri}"}


def _changes(edits: Sequence[Edit]) -> list[_Plain]:
    by_file: dict[str, list[_Plain]] = {}
    for edit in edits:
        (line, column), (end_line, end_column) = edit.start, edit.end
        region = {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column}
        replacement = {"deletedRegion": region, "insertedContent": {"text": edit.after}}
        by_file.setdefault(edit.file, []).append(replacement)
    return [{"artifactLocation": _artifact(file), "replacements": made} for file, made in by_file.items()]


def _fingerprint(recording: Recording, f: Finding, marked: tuple[Frame, str] | None) -> str:
    """What identifies a finding while lines are added above it: its code, module, op and the text of its line."""
    at = (repository_path(marked[0].file), recording.line(marked[0].file, marked[0].line).strip()) if marked else ()
    return hashlib.sha256("\0".join((f.code, f.kind, f.module, f.op, *at)).encode("utf-8", "replace")).hexdigest()[:32]
