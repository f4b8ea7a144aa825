"""Samples of long lists of tests: the suite runs some of them, ``make exhaustive`` the rest, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest


def one_in(every: int, values: Sequence[Any], name: Callable[[Any], str] | None = None) -> list[Any]:
    """Parameters of a test; all but the first of ``every`` are exhaustive."""
    return [
        pytest.param(v, id=name(v) if name else None, marks=pytest.mark.exhaustive if n % every else ())
        for n, v in enumerate(values)
    ]
