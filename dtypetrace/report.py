"""The entry point to all renderings. Console text, the JSON report and the HTML report are views of the same findings.

Never imports torch, so a saved recording can be shown without it.
"""

from __future__ import annotations

import json
import os
import stat
import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from .parts import attempt, collected
from .records import SCHEMA, Finding, Recording
from .records.plain import to_plain
from .render.console import console, lines, notes_for, summary, text, why_text

__all__ = [
    "SCHEMA_FILE", "console", "lines", "notes_for", "operators_text", "receipt_text", "summary", "text",
    "to_json", "why_text", "write_atomically", "write_html", "write_json",
]  # fmt: skip


# what the text of a report does not need is imported when it is first used


def operators_text(recording: Recording) -> str:
    """What ran in which dtype, and what autocast did to it, as text."""
    from .render import census

    return census.text(recording)


def receipt_text(recording: Recording) -> str:
    """What was asked for in dtypes beside what ran, as text."""
    from .render import receipts
    from .rules import receipt

    return receipts.text(receipt.rows(recording))


SCHEMA_FILE = Path(__file__).parent / "tables" / "report.schema.json"
"""The JSON Schema of what ``to_json`` gives. ``python -m tools.report_schema`` writes it."""


_IN_WATCHED = "watched_steps", "all_steps"
"""Entries of a recording's ``meta`` whose numbers the JSON report says in ``watched``."""


def to_json(recording: Recording, findings: Sequence[Finding]) -> dict[str, Any]:
    """The report as plain data, schema 1.

    Keys: ``schema``; ``meta`` (torch, python, ops, steps); ``not_seen``, sentences; ``findings``, each with the
    fields of ``records.Finding`` by the same names (a flow's step has ``from`` for ``source``; a place is spelled
    out, its columns counted from 1); ``operators``, each with the fields of ``render.census.OperatorRow``;
    ``receipt``, each with the fields of ``records.ReceiptRow``;
    ``compiled``, each with the fields of ``render.listings.CompiledRow``; ``modules``, each with ``name`` and
    ``calls``; ``work`` and ``not_judged``, see ``render.coverage``."""
    from .render import census, coverage, listings
    from .rules import receipt

    with collected() as failed:
        plain = [attempt(f"the JSON of {f.code}", partial(to_plain, f), None) for f in findings]
        operators = attempt("the operators", lambda: census.plain(recording), [])
        kept: Any = attempt("the receipt", lambda: to_plain(receipt.rows(recording)), [])
        nothing: dict[str, Any] = {"work": {}, "not_judged": []}
        compiled: Any = attempt("the compiled code", lambda: to_plain(listings.compiled(recording)), [])
        covered = attempt("what was judged", lambda: coverage.plain(recording), nothing)
    return {
        "schema": SCHEMA,
        "meta": to_plain({name: value for name, value in recording.meta.items() if name not in _IN_WATCHED}),
        "not_seen": [*recording.not_seen, *failed],
        "findings": [f for f in plain if f is not None],
        "operators": operators,
        "receipt": kept,
        "compiled": compiled,
        **covered,
        "modules": [{"name": name, "calls": calls} for name, calls in listings.module_calls(recording).items()],
    }


def json_text(recording: Recording, findings: Sequence[Finding]) -> str:
    return json.dumps(to_json(recording, findings), indent=1)


def write_json(path: str | os.PathLike[str], recording: Recording, findings: Sequence[Finding]) -> None:
    """Writes the JSON report, whole or not at all. Raises OSError where it cannot be written."""
    write_atomically(path, json_text(recording, findings))


def write_html(
    path: str | os.PathLike[str],
    recording: Recording,
    findings: Sequence[Finding],
    *,
    source: bool = True,
) -> None:
    """Writes the HTML report, one file that loads nothing.

    ``source=False`` leaves the program's text out. Raises OSError where it cannot be written."""
    from .render import html_report

    write_atomically(path, html_report.render(recording, findings, source=source))


def write_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Writes a whole file or none: a second Ctrl-C or a full disk leaves what was there.

    A link stays a link, and the file that it leads to is written, with the permissions that it has. What is no file (a
    device, a pipe) is written to, not replaced. Raises OSError where it cannot be written."""
    asked = os.fspath(path)  # an integer would be an open file's
    found = os.stat(path) if os.path.exists(path) else None
    if found is not None and not stat.S_ISREG(found.st_mode):
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
        return
    path = Path(os.path.realpath(asked))
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with open(part, "x", encoding="utf-8") as file:
            file.write(text)
        if found is not None:
            os.chmod(part, stat.S_IMODE(found.st_mode))
        os.replace(part, path)
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        if isinstance(error, OSError) and str(error.filename) == str(part):
            error.filename = asked
        raise
