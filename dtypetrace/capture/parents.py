"""Which module holds which, as their registrations showed, and from which of them the program came.

A program that calls ``vae.encode(x)`` calls no forward of ``vae``: the outermost call that a hook sees is that of a
part. The part's parents and the methods on the stack say whose part it is.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType
from typing import Any

from torch import nn

from .stacks import variables

_ROOM = 1024
"""The table is swept when it has more than twice its live modules plus this many."""
_DEEPEST = 64
"""Modules above a module, and frames above a call, that are looked at."""
_LISTS = (nn.ModuleList, nn.ModuleDict)
"""Modules that only hold others: their entries are named with their own name."""


class Parents:
    """Weak references alone: no module is kept alive."""

    def __init__(self) -> None:
        self._of: dict[int, list[tuple[weakref.ref[nn.Module], weakref.ref[nn.Module], str]]] = {}
        """By the id of a module: the module, one that holds it, and its name there."""
        self._room = _ROOM

    def joined(self, parent: nn.Module, name: str, child: nn.Module) -> None:
        """A module was registered as a part of another one."""
        if name == "_orig_mod":  # torch.compile put a module around it
            return
        known = [entry for entry in self._of.get(id(child), ()) if entry[0]() is child]
        self._of[id(child)] = [*known, (weakref.ref(child), weakref.ref(parent), name)]
        if len(self._of) > self._room:
            self._of = {key: entries for key, entries in self._of.items() if entries[0][0]() is not None}
            self._room = 2 * len(self._of) + _ROOM

    def above(self, module: nn.Module) -> Iterator[tuple[nn.Module, str]]:
        """The modules that hold a module, the nearest first, each with the name of what it holds."""
        for _ in range(_DEEPEST):
            held = ((parent(), name) for child, parent, name in self._of.get(id(module), ()) if child() is module)
            found = next(((p, name) for p, name in held if p is not None and p._modules.get(name) is module), None)
            if found is None:
                return
            yield found
            module = found[0]

    def name_of(self, module: nn.Module) -> str:
        """The name of a module where it is held: its attribute, with that of the list that it is in. Its class's name
        where nothing holds it."""
        names: list[str] = []
        for parent, name in self.above(module):
            names.append(name)
            if not isinstance(parent, _LISTS):
                break
        return ".".join(reversed(names)) or type(module).__name__


def running(frame: FrameType | None) -> list[CodeType]:
    """The code of a frame and of those that called it."""
    codes: list[CodeType] = []
    while frame is not None and len(codes) < _DEEPEST:
        codes.append(frame.f_code)
        frame = frame.f_back
    return codes


def runs_method_of(module: nn.Module, codes: Iterable[CodeType]) -> bool:
    """Whether one of the codes is that of a method of the module's class, outside torch."""
    return any(_is_method(type(module), code) for code in codes)


def _is_method(kind: type, code: CodeType) -> bool:
    for base in kind.__mro__:
        found: Any = vars(base).get(code.co_name)
        if found is not None and base is not nn.Module:
            found = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
            return getattr(inspect.unwrap(found), "__code__", None) is code
    return False


def owner_of(frame: FrameType) -> nn.Module | None:
    """The module of which a frame runs a method, outside torch."""
    code = frame.f_code
    given = variables(frame).get(code.co_varnames[0]) if code.co_argcount else None
    return given if issubclass(type(given), nn.Module) and _is_method(type(given), frame.f_code) else None


def replaced_by(module: nn.Module) -> nn.Module | None:
    """The module whose method was put in the place of a module's forward, as adapters do; None where none was."""
    forward = vars(module).get("forward")
    owner = getattr(forward, "__self__", None)
    return owner if isinstance(owner, nn.Module) and owner is not module else None
