"""Which program ran, with which arguments, when and how long: what a report says about the run itself."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Sequence
from typing import Any

_LONGEST = 500
_SECRET = re.compile(r"token|secret|passw|credential|api[-_]?key|auth", re.IGNORECASE)
"""Options whose values are left out: a report is passed on."""
_HIDDEN = "..."


def run_line(started: float) -> dict[str, Any]:
    """The run as a recording's ``meta``: script, arguments, start (UTC, to the second) and milliseconds.

    ``started``: seconds since the epoch. A notebook has no script: its kernel's arguments say nothing about the run.
    """
    found: dict[str, Any] = {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "milliseconds": max(0, int((time.time() - started) * 1000)),
    }
    words = [word for word in getattr(sys, "argv", None) or () if isinstance(word, str)]
    if words and os.path.isfile(words[0]) and not _in_notebook():
        found["script"] = os.path.abspath(words[0])
        found["arguments"] = arguments(words[1:])
    return found


def arguments(words: Sequence[str]) -> str:
    """The arguments as a shell takes them, without the values of options that hold secrets.

    >>> arguments(["--lr", "1e-4", "--hub-token", "hf_x", "--password=x y"])
    '--lr 1e-4 --hub-token ... --password=...'
    """
    shown, hide = [], False
    for word in words:
        name, equals, _ = word.partition("=")
        option = name.startswith("-")
        secret = option and bool(_SECRET.search(name))
        if hide and not option:
            shown.append(_HIDDEN)
        else:
            shown.append(f"{name}={_HIDDEN}" if secret and equals else shlex.quote(word))
        hide = secret and not equals
    text = " ".join(shown)
    return text if len(text) <= _LONGEST else text[: _LONGEST - len(_HIDDEN)] + _HIDDEN


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython, "get_ipython", lambda: None)() is not None
