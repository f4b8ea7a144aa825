"""The pages of the finding codes: what a code means, a program that fails, the repaired program, where it occurs.

The texts are in ``tables/code_pages/``, one Markdown file for each code; their titles are in ``tables.codes.TITLES``.
Standard library only."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import UnknownCodeError
from ..tables.codes import TITLES

PAGES = Path(__file__).parents[1] / "tables" / "code_pages"


@dataclass(frozen=True)
class CodePage:
    """The explanation of one code. ``fails`` and ``fixed`` are programs, the rest is Markdown."""

    code: str
    title: str
    meaning: str
    fails: str
    why_fixed: str
    fixed: str
    field: str

    @property
    def text(self) -> str:
        """The whole page as Markdown."""
        return (
            f"# {self.code}: {self.title}\n\n{self.meaning}\n\n## Fails\n\n```python\n{self.fails}```\n\n"
            f"## Fixed\n\n{self.why_fixed}\n\n```python\n{self.fixed}```\n\n## In the field\n\n{self.field}\n"
        )


_PARTS = re.compile(
    r"(?P<meaning>.+?)\n+## Fails\n+```python\n(?P<fails>.+?)```\n+"
    r"## Fixed\n+(?P<why_fixed>.+?)\n+```python\n(?P<fixed>.+?)```\n+## In the field\n+(?P<field>.+?)\n*",
    re.DOTALL,
)


@functools.cache
def page(code: str) -> CodePage:
    """The page of a code such as ``"DT101"``. Raises UnknownCodeError, ValueError for a file that lacks a part."""
    if code not in TITLES:
        number = code.removeprefix("DT")
        nearest = (
            min(TITLES, key=lambda known: abs(int(known.removeprefix("DT")) - int(number)))
            if number.isdecimal()
            else ""
        )
        hint = f"The nearest is {nearest}" if nearest else "Codes look like DT101"
        raise UnknownCodeError(f"no such code: {code}. {hint}; dtypetrace explain lists them all")
    text = PAGES.joinpath(f"{code}.md").read_text("utf-8")
    parts = _PARTS.fullmatch(text)
    if parts is None:
        raise ValueError(f"{code}.md: expected a paragraph, ## Fails, ## Fixed and ## In the field, in this order")
    return CodePage(code, TITLES[code], **parts.groupdict())


def listing() -> str:
    """All codes with their titles, one on each line."""
    return "\n".join(f"{code}  {title}" for code, title in sorted(TITLES.items()))
