"""A unified diff for people: in colour on a terminal, unchanged elsewhere."""

from __future__ import annotations

from typing import IO

from rich.console import Console

from ..terminal import USUAL, seen

_STYLES = {"---": "1", "+++": "1", "@@": "36", "-": "31", "+": "32"}
"""By the beginning of a line: the terminal's code for bold, cyan, red or green. The longer beginnings come first."""


def shown(diff: str, file: IO[str]) -> str:
    """The diff as it is to be written to a file. Anything but a terminal gets it unchanged, so that ``git apply`` takes
    it; NO_COLOR and FORCE_COLOR are obeyed as rich obeys them."""
    console = Console(file=file, width=USUAL, height=1)
    if not console.is_terminal or console.no_color or console.color_system is None:
        return diff
    return "".join(f"{_coloured(line)}\n" for line in diff.split("\n")[:-1])


def _coloured(line: str) -> str:
    style = next((code for begins, code in _STYLES.items() if line.startswith(begins)), None)
    text = "\t".join(map(seen, line.split("\t")))
    return f"\x1b[{style}m{text}\x1b[0m" if style else text
