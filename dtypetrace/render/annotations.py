"""Findings as annotations of GitHub's workflow log, which GitHub shows at the lines of a pull request."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import PurePath

from ..records import Finding, Frame, Recording
from ..terminal import seen
from . import wording
from .console import summary

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def github(recording: Recording, findings: Sequence[Finding]) -> str:
    """One workflow command for each finding, at the line that decided the dtype; then what was not seen, and a summary.

    https://docs.github.com/actions/reference/workflow-commands-for-github-actions
    """
    shown = [_annotation(f) for f in findings]
    shown += [f"not seen: {seen(reason)}" for reason in recording.not_seen]
    return "\n".join([*shown, summary(recording, findings)])


def _annotation(f: Finding) -> str:
    labels = wording.labels(f)
    marked = lead(labels)
    text = [f"{f.title}{wording.times(f)}"]
    for frame, label in labels:
        at = f"{wording.relative(frame.file)}:{frame.line}: " if marked is None or frame != marked[0] else ""
        text.append(at + label)
    if f.fix is not None:
        text += [f"help: {wording.help_for(f.fix)}", *f.fix.lines]
    properties = _place(marked[0]) if marked is not None else {}
    properties["title"] = f"dtypetrace {f.code}"
    written = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{_COMMANDS[f.severity]} {written}::" + "%0A".join(_data(line) for line in text)


def lead(labels: Sequence[tuple[Frame, str]]) -> tuple[Frame, str] | None:
    """The line to point at: the first of the user's own, which is the birth's where that is the user's; None where no
    line is known."""
    lines = [(frame, label) for frame, label in labels if frame.line > 0]
    return next((line for line in lines if line[0].user), lines[0] if lines else None)


def _place(frame: Frame) -> dict[str, str]:
    place = {"file": repository_path(frame.file), "line": str(frame.line)}
    if frame.end_line:
        place["endLine"] = str(frame.end_line)
    if frame.column and frame.end_column and frame.end_line == frame.line:  # GitHub takes columns on one line alone
        place |= {"col": str(frame.column), "endColumn": str(frame.end_column)}
    return place


def repository_path(file: str) -> str:
    """A file as a code host names it: relative to the checkout (``GITHUB_WORKSPACE``, else the working directory), with
    slashes; as it is where it lies elsewhere."""
    try:
        root = os.environ.get("GITHUB_WORKSPACE") or os.getcwd()
        inside = os.path.commonpath([root, file]) == os.path.normpath(root)
    except (OSError, ValueError):  # no working directory, another drive, a name such as <stdin>
        inside = False
    return PurePath(os.path.relpath(file, root) if inside else file).as_posix()


def _data(text: str) -> str:
    return seen(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
