"""What the report and the notebook share for HTML: templates, colours of dtypes, and the removal of harmful
characters."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..tables.english import capitalised
from . import listings, module_tree
from .action import amount, size
from .layout import middle_cut

_FOLDER = Path(__file__).with_name("templates")
_BREAKABLE = 24
"""Names and paths of at least this many characters may be broken at dots and slashes."""


@functools.cache
def _environment() -> Any:
    import jinja2
    from markupsafe import Markup

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters.update(dtype=_dtype, drawn=Markup, short=middle_cut, family=listings.family, inked=inked, coded=coded)
    made.filters.update(bar=module_tree.bar, amount=amount, size=size, heat=heat, capitalised=capitalised)
    return made


def template(name: str) -> Any:
    return _environment().get_template(name)


@functools.cache
def asset(name: str) -> Any:
    from markupsafe import Markup

    return Markup(_FOLDER.joinpath(name).read_text("utf-8"))


_SCRIPTS = ("page.js", "tree.js", "map.js", "tables.js", "search.js", "timeline.js", "start.js")
"""The parts of the page's script, in order: one function around them all, so they share what they define."""


@functools.cache
def script() -> Any:
    """The page's script."""
    from markupsafe import Markup

    return Markup('"use strict";\n(() => {\n') + Markup("\n").join(map(asset, _SCRIPTS)) + Markup("})();\n")


def script_hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def packed(tables: Sequence[dict[str, Any]]) -> str:
    """Tables for a script element: JSON, compressed, in base 64."""
    plain = json.dumps(tables, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(plain, mtime=0)).decode()


def heat(error: float) -> int:
    """How strongly an error is coloured, in percent: from 1e-6 on, strongest at 1."""
    return round(40 * min(1.0, max(0.0, 1 + math.log10(error) / 6))) if error > 0 else 0


def _dtype(name: str) -> Any:
    """A dtype's name in its colour."""
    from markupsafe import Markup

    return Markup("<b class={}>{}</b>").format(listings.family(name) or "none", name)


_WORD = re.compile(r"\b((?:b?float|complex|u?int)\d+\w*|bool)\b")


_POWER = re.compile(r"\de-\d")
"""A number that a browser would break at its minus."""
_JOINT = re.compile(r"(?<=[./])(?=\w)")


def inked(text: str) -> Any:
    """Text with the dtypes in it in their colours; long names and paths may be broken at dots and slashes."""
    from markupsafe import Markup, escape

    def plain(part: str) -> Any:
        words = (
            Markup('<span class="whole">{}</span>').format(word)
            if _POWER.search(word)
            else Markup("<wbr>").join(map(escape, _JOINT.split(word) if len(word) > _BREAKABLE else (word,)))
            for word in re.split(r"(\s+)", part)
        )
        return Markup("").join(words)

    return Markup("").join(_dtype(part) if n % 2 else plain(part) for n, part in enumerate(_WORD.split(text)))


def coded(text: str) -> Any:
    """Text in which code is in its own font: what stands between backticks."""
    from markupsafe import Markup

    parts = text.split("`")
    if len(parts) % 2 == 0:  # a backtick of the program's own
        return inked(text)
    made = (Markup("<code>{}</code>").format(part) if n % 2 else inked(part) for n, part in enumerate(parts))
    return Markup("").join(made)


_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def clean(html: str) -> str:
    """The text with invisible characters that change the display (controls, bidirectional overrides, halves of a
    surrogate pair) written as their numbers."""
    return _UNSEEN.sub(lambda m: f"\\u{ord(m[0]):04x}", html)
