"""Numbers and names of the modules that ran, without keeping any alive."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..records import Frame, Place
from ..records.text import ProgramText
from ..source import expressions

if TYPE_CHECKING:
    from .recorder import Recorder

_WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")


def clean_name(name: str, root: nn.Module | None = None) -> str:
    """A qualified name without the parts that DDP and torch.compile insert."""
    if "_orig_mod" in name:  # a cheap test first: a large model has a thousand names
        name = re.sub(r"(^|\.)_orig_mod(?=\.|$)", "", name).lstrip(".")
    if root is not None and type(root).__name__ in _WRAPPERS:
        name = re.sub(r"^module(\.|$)", "", name)
    return name


class Root:
    """An outermost module: one that the program called, and all modules below it."""

    def __init__(self, module: nn.Module, place: int, number: int) -> None:
        self.number = number
        self.ref = weakref.ref(module)
        self.class_name = type(module).__name__
        self.classes = frozenset(kind.__name__ for kind in type(module).__mro__)
        self.place = place
        self.numbers: dict[int, tuple[weakref.ref[nn.Module], int]] = {}
        self.paths: dict[str, int] = {}
        self.holders: dict[int, int] = {}


class Modules:
    """Gives each module that runs a number, and when the run is over, the numbers names."""

    def __init__(self) -> None:
        self.roots: list[Root] = []
        self._root_of: dict[int, Root] = {}
        self._last_at: dict[tuple[str, int], Root] = {}
        self._entries: list[tuple[Root, str]] = []
        self.calls: list[int] = []
        """For each number: how often the program called the module's forward; a checkpoint's recompute is no call."""
        self.results: list[dict[torch.dtype, None]] = []
        """For each number: the dtypes of what the module's forward returned."""

    def root(self, module: nn.Module, place: int) -> Root:
        known = self._root_of.get(id(module))
        if known is None or known.ref() is not module:
            known = self._last_at.get((type(module).__name__, place))
            if known is not None and known.ref() is None:  # a loss that is created again in every event
                known.ref = weakref.ref(module)
                known.numbers.clear()
                known.holders.clear()
            else:
                known = self._last_at[type(module).__name__, place] = Root(module, place, len(self.roots))
                self.roots.append(known)
            self._root_of[id(module)] = known
        elif known.place < 0:
            known.place = place
        return known

    def above(self, module: nn.Module) -> Root | None:
        """The root under which a module ran before: checkpoint runs it again by itself, inside backward."""
        for root in self.roots:
            entry = root.numbers.get(id(module))
            if entry is not None and entry[0]() is module and root.ref() is not module:
                return root
        return None

    def number(self, module: nn.Module, root: Root) -> int:
        entry = root.numbers.get(id(module))
        if entry is not None and entry[0]() is module:
            return entry[1]
        self._learn(root)
        entry = root.numbers.get(id(module))
        if entry is None or entry[0]() is not module:  # called by the root, but not one of its submodules
            entry = self._enter(root, module, type(module).__name__ if module is not root.ref() else "")
        return entry[1]

    def _learn(self, root: Root) -> None:
        top = root.ref()
        if top is not None:
            for name, module in top.named_modules():
                self._enter(root, module, clean_name(name, top))

    def _enter(self, root: Root, module: nn.Module, path: str) -> tuple[weakref.ref[nn.Module], int]:
        number = root.paths.get(path)
        if number is None:
            number = root.paths[path] = len(self._entries)
            self._entries.append((root, path))
            self.calls.append(0)
            self.results.append({})
        entry = root.numbers[id(module)] = (weakref.ref(module), number)
        return entry

    def model_of(self, number: int) -> int:
        """Number of the outermost module that a module's number belongs to, -1 for none."""
        return self._entries[number][0].number if number >= 0 else -1

    def names(self, prefixes: Mapping[Root, str]) -> tuple[str, ...]:
        """The name of each number: that of the outermost module (:meth:`prefixes`), then the path below it."""
        return tuple(".".join(p for p in (prefixes[root], path) if p) for root, path in self._entries)

    def prefixes(self, places: Sequence[Place], text: ProgramText) -> dict[Root, str]:
        """The name of each outermost module: its variable in the frame that called it, else its class."""
        prefixes = {}
        for root in self.roots:
            stack = places[root.place].stack if 0 <= root.place < len(places) else ()
            variable = expressions.callee(text, stack[0]) if stack else None
            if variable == "self":
                variable = self._called_upon(root, stack, text)
            variable = (variable or "").removeprefix("self.")
            prefixes[root] = variable if variable and not variable.endswith(".forward") else root.class_name
        return prefixes

    @staticmethod
    def _called_upon(root: Root, stack: tuple[Frame, ...], text: ProgramText) -> str | None:
        """The variable of a module that calls itself: the object whose method the first frame outside calls."""
        outside = next((f for f in stack if f.function.rpartition(".")[0].rpartition(".")[2] not in root.classes), None)
        called = (expressions.callee(text, outside) or "") if outside is not None else ""
        owner = called.rpartition(".")[0]
        return owner if owner != "self" else None

    def holder_of(self, parameter: torch.Tensor) -> int:
        """Number of the module that holds a parameter, -1 where no known model does."""
        for root in self.roots:
            top = root.ref()
            known = root.holders.get(id(parameter))
            if known is None and top is not None:
                self._learn(root)
                root.holders = {
                    id(p): root.paths.get(clean_name(name, top).rpartition(".")[0], -1)
                    for name, p in top.named_parameters()
                }
                known = root.holders.get(id(parameter))
            if known is not None:
                return known
        return -1

    def live_roots(self) -> Iterator[nn.Module]:
        for root in self.roots:
            module = root.ref()
            if module is not None:
                yield module


def tensor_names(root: nn.Module) -> dict[int, tuple[str, str]]:
    """For each parameter and buffer below a module: id -> (qualified name, holder)."""
    names = {id(b): (clean_name(n, root), "buffer") for n, b in root.named_buffers()}
    names.update({id(p): (clean_name(n, root), "parameter") for n, p in root.named_parameters()})
    return names


def gradients_of(recorder: Recorder) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Gradients with their owners: those that the program has read, and those that its optimizers use.

    No others: a gradient that another thread's backward is writing must not be read.
    """
    yield from recorder.origins.gradients()
    optimizer = recorder.stepping.optimizer()
    for group in optimizer.param_groups if optimizer is not None else ():
        yield from ((p.grad, p) for p in group["params"] if isinstance(p, torch.Tensor) and p.grad is not None)


def state_names(optimizer: object, parameters: Mapping[Any, tuple[str, Any]]) -> dict[int, tuple[str, str]]:
    """For each tensor in an optimizer's state: id -> (``exp_avg of layer.weight``, "state")."""
    names = {}
    for parameter, state in getattr(optimizer, "state", {}).items():
        owner = parameters.get(id(parameter), ("", ""))[0]
        for key, value in state.items() if isinstance(state, dict) else ():
            if isinstance(value, torch.Tensor):
                names[id(value)] = (f"{key} of {owner}" if owner else str(key), "state")
    return names
