"""Samples of long lists of tests: the suite runs some of them, ``make exhaustive`` the rest, too.

``DTYPETRACE_SEED`` (a number) chooses other ones; the weekly run of CI gives each time another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest

SEED = int(os.environ.get("DTYPETRACE_SEED", "0"))


def rest(every: int, values: Sequence[Any]) -> list[Any]:
    """All values but one in every few."""
    return [value for number, value in enumerate(values) if number % every != SEED % every]


def one_in(every: int, values: Sequence[Any], name: Callable[[Any], str] | None = None) -> list[Any]:
    """Parameters of a test; all but one of ``every`` are exhaustive."""
    return [
        pytest.param(v, id=name(v) if name else None, marks=pytest.mark.exhaustive if n % every != SEED % every else ())
        for n, v in enumerate(values)
    ]
