"""Messages that people paste but that are not refusals of torch's: where an infinity is noticed, what a loss scaler or
a library says, two devices. The wordings and their meanings are rows of ``tables/notices.json``: a regular expression,
the code of the page that helps (empty: none), and two or three sentences."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import NamedTuple


class Notice(NamedTuple):
    """A message by its wording, the code of its page (empty: none), its meaning and what to do."""

    pattern: re.Pattern[str]
    code: str
    meaning: str


@functools.cache
def _notices() -> tuple[Notice, ...]:
    file = Path(__file__).parents[1] / "tables" / "notices.json"
    sections = json.loads(file.read_text("utf-8"))
    flags = re.IGNORECASE | re.DOTALL
    return tuple(
        Notice(re.compile(wording, flags), code, meaning)
        for rows in sections.values()
        for wording, code, meaning in rows
    )


def notice_for(text: str) -> Notice | None:
    """The notice whose wording a text contains, if any."""
    return next((notice for notice in _notices() if notice.pattern.search(text)), None)
