"""Names of modules as patterns: ``layers.0.mlp`` to ``layers.31.mlp`` are ``layers.*.mlp``."""

from __future__ import annotations

from collections.abc import Iterable

from ..records import Recording

ROOT = "(model)"
"""Stands for the outermost module."""


def collapsed(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Patterns with the names that each stands for. A number becomes ``*`` only where the names differ in it.

    >>> list(collapsed(["layers.0.mlp", "layers.1.mlp", "blocks.3.norm"]))
    ['layers.*.mlp', 'blocks.3.norm']
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(starred(name), []).append(name)
    return {_common(group): tuple(group) for group in groups.values()}


def starred(name: str) -> str:
    """The name with every number as ``*``."""
    return ".".join("*" if part.isdecimal() else part for part in name.split("."))


def _common(names: list[str]) -> str:
    columns = zip(*(name.split(".") for name in names))
    return ".".join(column[0] if len(set(column)) == 1 else "*" for column in columns)


def root(recording: Recording) -> str:
    """The first part that the names of all modules and parameters share, with its dot; empty where there is none.

    It is the name of the program's own variable, which another program may call otherwise.
    """
    names = [*(m for m in recording.modules if m), *(p.name for p in recording.parameters)]
    firsts = {name.partition(".")[0] for name in names}
    return f"{firsts.pop()}." if len(firsts) == 1 else ""


def below(name: str, root: str) -> str:
    """A name without the root; the root itself is empty."""
    return "" if f"{name}." == root else name.removeprefix(root)


def shown(name: str, root: str) -> str:
    """The same as it is shown: the root is ``(model)``."""
    return below(name, root) or ROOT
