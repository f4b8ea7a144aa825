"""The change that a fix says in words (``train.py:36: replace `a` with `b```), as the edit that it is."""

from __future__ import annotations

import os
import re

from ..records import Edit, Finding, Recording

NAMED_LINE = re.compile(r"([^\s:()]+\.\w+):(\d+)\)?(?:: |\b)")
_REPLACED = re.compile(r"replace `(.+)` with `(.+)`")


def named_line(f: Finding) -> tuple[str, int] | None:
    """The file and line that the words of a fix name, if they name one line and the finding knows its file."""
    named = NAMED_LINE.search(_words(f))
    if named is None:
        return None
    places = (f.site, f.fix.place) if f.fix is not None else (f.site,)
    files = {frame.file for place in places for frame in place.stack if os.path.basename(frame.file) == named[1]}
    return (files.pop(), int(named[2])) if len(files) == 1 else None


def edits_of(recording: Recording, f: Finding) -> tuple[Edit, ...]:
    """The edits of a fix, also where it says them in words."""
    worded = worded_edit(recording, f)
    return (worded,) if worded is not None else f.fix.edits if f.fix is not None else ()


def worded_edit(recording: Recording, f: Finding) -> Edit | None:
    """The edit; None where the words are of another form, or do not fit the line."""
    words, named = _words(f), named_line(f)
    replaced = _REPLACED.fullmatch(NAMED_LINE.sub("", words, count=1))
    if named is None or replaced is None:
        return None
    file, line = named
    begins = recording.line(file, line).find(replaced[1])
    if begins < 0:
        return None
    return Edit(file, (line, begins + 1), (line, begins + 1 + len(replaced[1])), replaced[1], replaced[2])


def _words(f: Finding) -> str:
    if f.fix is None or f.fix.edits or len(f.fix.lines) > 1:
        return ""
    return f.fix.lines[0] if f.fix.lines else f.fix.why
