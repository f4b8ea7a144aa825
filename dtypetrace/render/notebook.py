"""Notebook output: the text of the console in a cell, and ``show()``. IPython is imported only where it is already
running."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ..parts import collected
from ..records import Finding, Recording
from ..terminal import seen
from . import console, html_text
from .excerpt import StyledLine
from .layout import Display

_WIDE = 110
"""Columns of the text: a wider cell scrolls."""
_COLOURS = {"red": "#d1453b", "yellow": "#a87000", "cyan": "#0a84c6", "green": "#27915a", "blue": "#5477c4"}
"""Readable on light and on dark pages."""


def trace_html(recording: Recording, findings: Sequence[Finding]) -> str:
    """What the console shows of a trace."""
    return _html(console.lines(recording, findings, Display(_WIDE)))


def finding_html(finding: Finding) -> str:
    """One finding by itself, with the program lines that it carries."""
    with collected() as failed:
        shown = console.block(Display(_WIDE), Recording(sources=finding.sources), finding)
    return _html([*shown, *((f"not seen: {sentence}", "dim") for sentence in failed)])


def text_html(words: str) -> str:
    """Text that has no colours."""
    return _html((line, "") for line in words.splitlines())


def _html(lines: Iterable[StyledLine]) -> str:
    shown = "\n".join(
        f'<span style="{css}">{escape(seen(line))}</span>' if (css := _css(style)) else escape(seen(line))
        for line, style in lines
    )
    return html_text.clean(f'<pre style="white-space:pre;overflow-x:auto">{shown}</pre>')


def _css(style: str) -> str:
    """A style of rich's for a page."""
    known = {"bold": "font-weight:600", "dim": "opacity:.7", **{name: f"color:{c}" for name, c in _COLOURS.items()}}
    return ";".join(known[word] for word in style.split() if word in known)


# ---------------------------------------------------------------- the whole report in a cell


def show(html: str) -> None:
    """Displays the whole report below the cell, in a frame that has no access to the notebook or the network.

    Raises RuntimeError outside a notebook.
    """
    try:
        from IPython import get_ipython
        from IPython.display import HTML, display
    except ImportError:
        get_ipython = lambda: None
    if get_ipython() is None:
        raise RuntimeError("show() needs a notebook; write the report to a file with report('out.html') instead")
    # the division keeps IPython from advising its own IFrame, which cannot show a text
    display(HTML(
        f'<div><iframe sandbox="allow-scripts" title="dtypetrace report" srcdoc="{escape(html)}" '
        'style="width:100%;height:80vh;border:1px solid #8888;border-radius:8px"></iframe></div>'
    ))  # fmt: skip
