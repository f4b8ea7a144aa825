"""Takes parts of private torch by name. One that is missing switches off what it is for, no more."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

_off: dict[str, str] = {}
"""What is switched off: the name of the part that is missing."""


def look_up(home: str, name: str) -> Any:
    """The part ``name`` of the module ``home``. Raises ImportError or AttributeError where there is none."""
    found: Any = import_module(home)
    for step in name.split("."):
        found = getattr(found, step)
    return found


def offered(home: str, name: str, feature: str, instead: Any) -> Any:
    """A part of private torch, or ``instead`` where this version has none.

    feature: what is then off, in the words of a report; empty where ``instead`` does the same.
    """
    try:
        return look_up(home, name)
    except (ImportError, AttributeError):
        if feature:
            _off.setdefault(feature, f"{home}.{name}")
        return instead


def off(feature: str) -> bool:
    """Whether a feature is off, because a part of torch that it needs is missing."""
    return feature in _off


def missing() -> list[str]:
    """One line for each feature that is off, for the reports' "not seen"."""
    return [f"{feature}: torch {torch.__version__} has no {part}" for feature, part in _off.items()]
