"""Attributes of torch that are replaced while a trace is open; all of them can be put aside for a while.

Code that Dynamo compiles must find torch as it is without a trace, or it would compile something else.
"""

from __future__ import annotations

from typing import Any

_INHERITED = object()
"""Stands for an attribute that its owner only inherits."""


class Replaced:
    """An attribute that has another value while this is in place. If somebody else replaces it since, theirs stays."""

    def __init__(self, owner: Any, name: str, new: Any) -> None:
        self._owner, self._name, self._new = owner, name, new
        self._old = vars(owner).get(name, _INHERITED)
        _all.append(self)
        if not _aside:
            setattr(owner, name, new)

    def restore(self) -> None:
        """Ends it. Where another one has replaced it since, that one restores what was there before both."""
        _all.remove(self)
        above = [o for o in _all if o._owner is self._owner and o._name == self._name and o._old is self._new]
        for other in above:
            other._old = self._old
        if not above:
            self.put_aside()

    def put_aside(self) -> None:
        """Restores the attribute for a while."""
        if vars(self._owner).get(self._name) is self._new:
            if self._old is _INHERITED:
                delattr(self._owner, self._name)
            else:
                setattr(self._owner, self._name, self._old)

    def put_back(self) -> None:
        """Ends that while."""
        if vars(self._owner).get(self._name, _INHERITED) is self._old:
            setattr(self._owner, self._name, self._new)


_all: list[Replaced] = []
_aside = False


def put_aside() -> None:
    """Restores everything that is replaced, for a while."""
    global _aside
    _aside = True
    for one in reversed(_all):
        one.put_aside()


def put_back() -> None:
    """Ends that while."""
    global _aside
    _aside = False
    for one in _all:
        one.put_back()
