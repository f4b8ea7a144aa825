"""The pieces of HTML that the report and the notebook share: templates, colours of dtypes, characters that stay
harmless."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import listings
from .svg import shortened

_FOLDER = Path(__file__).with_name("templates")
_BREAKABLE = 24
"""Characters from which on a name or path may be broken at its dots and slashes."""


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
    made.filters.update(dtype=_dtype, drawn=Markup, short=shortened, family=listings.family, inked=inked)
    return made


def template(name: str) -> Any:
    return _environment().get_template(name)


@functools.cache
def asset(name: str) -> Any:
    from markupsafe import Markup

    return Markup(_FOLDER.joinpath(name).read_text("utf-8"))


def script_hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def json_data(tables: Sequence[dict[str, Any]]) -> Any:
    """JSON for a script element: nothing in it can end that element or begin a comment."""
    from markupsafe import Markup

    return Markup(json.dumps(tables, separators=(",", ":")).replace("<", "\\u003c"))


def _dtype(name: str) -> Any:
    """A dtype's name in its colour."""
    from markupsafe import Markup

    return Markup("<b class={}>{}</b>").format(listings.family(name) or "none", name)


_WORD = re.compile(r"\b((?:b?float|complex|u?int)\d+\w*|bool)\b")


_JOINT = re.compile(r"(?<=[./])(?=\w)")


def inked(text: str) -> Any:
    """Words with the dtypes in them in their colours; long names and paths may break at their joints."""
    from markupsafe import Markup, escape

    def plain(part: str) -> Any:
        words = (
            Markup("<wbr>").join(map(escape, _JOINT.split(word) if len(word) > _BREAKABLE else (word,)))
            for word in re.split(r"(\s+)", part)
        )
        return Markup("").join(words)

    return Markup("").join(_dtype(part) if n % 2 else plain(part) for n, part in enumerate(_WORD.split(text)))


_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def clean(html: str) -> str:
    """Characters that steer a page or a reader's eye without being seen (controls, bidirectional overrides, halves of
    a surrogate pair) are written as their numbers."""
    return _UNSEEN.sub(lambda m: f"\\u{ord(m[0]):04x}", html)
