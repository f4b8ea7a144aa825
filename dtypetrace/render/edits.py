"""Edits as diffs: what the console and the page show of them."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..records import Edit, Recording
from ..source.patch import PatchedFile
from . import wording

CONTEXT = 3
"""Unchanged lines above and below an edit in the diff that is copied."""
_LONGEST_PATH = 4096
_LONGEST_DIFF = 20_000
"""Characters of a diff that can be copied."""


@dataclass
class DiffBlock:
    """An edit as lines of a diff, each with its sign, and as text that ``git apply`` takes."""

    file: str
    lines: list[tuple[str, str]]
    numbers: list[int]
    """The number of each line: before the edit, of a new line after it."""
    text: str
    path: str = ""
    """The absolute path, empty for what is no file."""
    line: int = 0
    column: int = 0


def change(recording: Recording, edit: Edit) -> DiffBlock | None:
    """An edit as a diff, None where the program's text is not available."""
    before = [recording.line(edit.file, number) for number in range(edit.start[0], edit.end[0] + 1)]
    if not any(before):
        return None
    after = (before[0][: edit.start[1] - 1] + edit.after + before[-1][edit.end[1] - 1 :]).split("\n")
    file, line = wording.relative(edit.file), edit.start[0]
    lines = _compared(before, after)
    above, below = (
        _context(recording, edit.file, line - 1, -1)[::-1],
        _context(recording, edit.file, edit.end[0] + 1, 1),
    )
    around = len(above) + len(below)
    head = (
        f"--- a/{file}\n+++ b/{file}\n"
        f"@@ -{line - len(above)},{len(before) + around} +{line - len(above)},{len(after) + around} @@\n"
    )
    whole = [*((" ", a) for a in above), *lines, *((" ", b) for b in below)]
    text = head + "".join(f"{sign}{written}\n" for sign, written in whole)
    text = text if len(text) <= _LONGEST_DIFF else ""
    unchanged = next((n for n, (sign, _) in enumerate(lines) if sign != " "), 0)
    column = 1 if unchanged else edit.start[1]
    numbers = list(_numbers(lines, line))
    return DiffBlock(f"{file}:{line + unchanged}", lines, numbers, text, file_of(edit.file), line + unchanged, column)


def _numbers(lines: Sequence[tuple[str, str]], first: int) -> Iterator[int]:
    old = new = first
    for sign, _ in lines:
        yield new if sign == "+" else old
        old, new = old + (sign != "+"), new + (sign != "-")


def _compared(before: list[str], after: list[str]) -> list[tuple[str, str]]:
    """The lines of a diff with their signs: lines that stay beside others that change have a blank one."""
    if before == after:
        return [*(("-", text) for text in before), *(("+", text) for text in after)]
    whole = difflib.unified_diff(before, after, lineterm="", n=len(before))
    return [(line[:1], line[1:]) for line in whole][3:]


def _context(recording: Recording, file: str, line: int, step: int) -> list[str]:
    """Up to three known lines from one on, in one direction. Blank lines are not kept, so one between known lines is
    blank, and one at the end is left out."""
    known = [recording.line(file, line + step * n) if line + step * n > 0 else "" for n in range(CONTEXT)]
    while known and not known[-1]:
        known.pop()
    return known


def file_of(file: str) -> str:
    """A file that an editor can open; empty for a notebook's cell and code from a string."""
    return file if os.path.isabs(file) and len(file) <= _LONGEST_PATH else ""


def joined(recording: Recording, edits: Sequence[Edit], near: int = 0) -> Iterator[Edit]:
    """The edits in order; those that change the same lines, or with no more than ``near`` lines between, become one,
    which shows the final lines."""
    groups: list[list[Edit]] = []
    for edit in edits:
        if groups and _touch(groups[-1], edit, near):
            groups[-1].append(edit)
        else:
            groups.append([edit])
    for group in groups:
        together = _as_one(recording, group) if len(group) > 1 else None
        yield from [together] if together is not None else group


def _touch(group: Sequence[Edit], edit: Edit, near: int) -> bool:
    """Whether an edit changes lines that the edits of a group change, or lines near them."""
    first, end = min(e.start[0] for e in group), max(e.end[0] for e in group)
    return edit.file == group[0].file and edit.start[0] <= end + near and edit.end[0] >= first - near


def _as_one(recording: Recording, group: Sequence[Edit]) -> Edit | None:
    """Several edits of the same lines as one edit; None where they cannot be applied together."""
    file, first, end = group[0].file, min(e.start[0] for e in group), max(e.end[0] for e in group)
    before = "\n".join(recording.line(file, number) for number in range(first, end + 1))
    patched_file = PatchedFile(file, before, "", "")
    changes = [patched_file.locate(_moved(edit, first - 1)) for edit in group]  # positions are in the unchanged text
    for order, change in enumerate(changes):
        if change is None or not patched_file.add(change, order):
            return None
    return Edit(file, (first, 1), (end, len(before.rpartition("\n")[2]) + 1), before, patched_file.text)


def _moved(edit: Edit, up: int) -> Edit:
    """The same edit, this many lines further up."""
    return replace(edit, start=(edit.start[0] - up, edit.start[1]), end=(edit.end[0] - up, edit.end[1]))
