"""Numbers and names of the modules that ran, without keeping any alive."""

from __future__ import annotations

import ast
import re
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, count
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch import nn

from ..records import Declared, Frame, Parameter, Place
from ..records.text import ProgramText
from ..source import expressions
from .parents import Parents, replaced_by, runs_method_of

_WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")


def clean_name(name: str, root: nn.Module | None = None) -> str:
    """A qualified name without the parts that DDP, FSDP, checkpointing and torch.compile insert."""
    if "_mod" in name:  # a cheap test first: a large model has a thousand names
        name = re.sub(r"(^|\.)(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)(?=\.|$)", "", name).lstrip(
            "."
        )
    if root is not None and type(root).__name__ in _WRAPPERS:
        name = re.sub(r"^module(\.|$)", "", name)
    return name


Named = list[tuple[str, Any]]


def walk(module: nn.Module) -> tuple[Named, Named, Named]:
    """The submodules, parameters and buffers that a module's methods name. That for submodules runs once, since it
    takes longest."""
    parts = list(module.named_modules())
    usual = all(getattr(getattr(module, method.__name__), "__func__", None) is method for method in _NAMED)
    if not usual:  # as that of FSDP, which leaves out its own part of a name
        try:
            return parts, list(module.named_parameters()), list(module.named_buffers())
        except Exception:  # the program's, of a module whose constructor raised: its own tables are there
            pass
    return parts, _members(parts, "_parameters"), _members(parts, "_buffers")


_NAMED: tuple[Any, ...] = nn.Module.named_parameters, nn.Module.named_buffers


def _members(parts: Named, table: str) -> Named:
    found: dict[int, tuple[str, Any]] = {}
    for path, part in parts:
        for name, tensor in getattr(part, table).items():
            if tensor is not None and id(tensor) not in found:
                found[id(tensor)] = (f"{path}.{name}" if path else name), tensor
    return list(found.values())


class Held(NamedTuple):
    """A tensor of a module."""

    name: str
    """Qualified."""
    holder: str
    """``parameter`` or ``buffer``."""
    tensor: torch.Tensor
    beside: bool
    """Whether it belongs to none of the module's own submodules."""


class Root:
    """An outermost module: one that the program called, and all modules below it."""

    def __init__(self, module: nn.Module, place: int, number: int) -> None:
        self.number = number
        self.ref = weakref.ref(module)
        self.class_name = type(module).__name__
        self.classes = frozenset(kind.__name__ for kind in type(module).__mro__)
        self.place = place
        self.by_method = False
        """Whether only a part of it was called so far, by one of its own methods."""
        self.beside: dict[int, tuple[weakref.ref[nn.Module], str]] = {}
        """Modules that run inside it and are none of its submodules (adapters that replaced a forward), with their
        paths."""
        self.numbers: dict[int, tuple[weakref.ref[nn.Module], int]] = {}
        self.paths: dict[str, int] = {}
        self.holders: dict[int, int] = {}
        self.read: object = None
        """The reference whose module :mod:`declared` has read."""
        self.held: tuple[tuple[int, Parameter], ...] = ()
        """Its floating parameters and buffers as they were then, with the ids of the tensors."""
        self.declared: tuple[Declared, ...] = ()


class Modules:
    """Gives each module that runs a number, and when the run is over, the numbers names."""

    def __init__(self) -> None:
        self.roots: list[Root] = []
        self.parents = Parents()
        self._root_of: dict[int, Root] = {}
        self._home_of: dict[int, tuple[weakref.ref[nn.Module], Root]] = {}
        """By the id of a module that is called from outside any other: the root that it is a part of."""
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
                known.beside.clear()
            else:
                known = self._last_at[type(module).__name__, place] = Root(module, place, len(self.roots))
                self.roots.append(known)
            self._root_of[id(module)] = known
        elif place >= 0 and (known.place < 0 or known.by_method):
            known.place, known.by_method = place, False
        return known

    def home(self, module: nn.Module, place: int, codes: Callable[[], Sequence[CodeType]]) -> Root:
        """The outermost module of a call from outside any module: the module itself, or the one that it is a part of,
        if one of that one's methods made the call (``vae.encode(x)``). ``codes``: those on the stack."""
        known = self._home_of.get(id(module))
        if known is not None and known[0]() is module and (place < 0 or known[1].ref() is not module):
            return known[1]
        root = None
        if id(module) not in self._root_of or self._root_of[id(module)].ref() is not module:
            root = self._by_method(module, place, codes())
        root = root or self.root(module, place)
        self._home_of[id(module)] = weakref.ref(module), root
        return root

    def _by_method(self, module: nn.Module, place: int, codes: Sequence[CodeType]) -> Root | None:
        around = [parent for parent, _ in self.parents.above(module)]
        around += [top for root in self.roots if self._holds(root, module) and (top := root.ref()) is not None]
        for top in reversed(around):
            if top is not module and runs_method_of(top, codes):
                root = self.root(top, -1)
                if root.place < 0:
                    root.place, root.by_method = place, True
                return root
        return None

    def _holds(self, root: Root, module: nn.Module) -> bool:
        if not root.numbers:
            self._learn(root)
        return _is_in(root, module)

    def above(self, module: nn.Module) -> Root | None:
        """The root under which a module ran before: checkpoint runs it again by itself, inside backward."""
        return next((r for r in self.roots if _is_in(r, module) and r.ref() is not module), None)

    def ran_in(self, module: nn.Module) -> nn.Module | None:
        """The outermost module that ran and is a module or holds it; None where neither did."""
        root = next((r for r in self.roots if r.ref() is module), None) or self.above(module)
        return root.ref() if root is not None else None

    def number(self, module: nn.Module, root: Root, around: int = -1) -> int:
        """The number of a module that runs. ``around``: that of the module that is running when it is called."""
        entry = root.numbers.get(id(module))
        if entry is not None and entry[0]() is module:
            return entry[1]
        self._learn(root)
        entry = root.numbers.get(id(module))
        if entry is None or entry[0]() is not module:  # called by the root, but not one of its submodules
            entry = self._enter_beside(root, module, around)
        return entry[1]

    def _learn(self, root: Root) -> None:
        top = root.ref()
        if top is None:
            return
        named = [(clean_name(name, top), module) for name, module in top.named_modules()]
        for path, module in named:
            self._enter(root, module, path)
        for path, module in named:
            adapter = replaced_by(module)
            for name, part in adapter.named_modules() if adapter is not None else ():
                if not _is_in(root, part):
                    self._enter(root, part, _joined(path, name), beside=True)

    def _enter_beside(self, root: Root, module: nn.Module, around: int) -> tuple[weakref.ref[nn.Module], int]:
        if module is root.ref():
            return self._enter(root, module, "")
        known, path = self._entries[around] if around >= 0 else (root, "")
        name = self.parents.name_of(module)
        return self._enter(root, module, _joined(path if known is root else "", name), beside=True)

    def _enter(
        self, root: Root, module: nn.Module, path: str, beside: bool = False
    ) -> tuple[weakref.ref[nn.Module], int]:
        if beside:
            path = _free(root, module, path)
            root.beside[id(module)] = weakref.ref(module), path
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
            variable = expressions.callee(text, stack[0]) if stack and not root.by_method else None
            if stack and (variable == "self" or root.by_method):
                variable = self._called_upon(root, stack, text)
            variable = (variable or "").removeprefix("self.")
            prefixes[root] = variable if variable and not variable.endswith(".forward") else root.class_name
        return prefixes

    @staticmethod
    def _called_upon(root: Root, stack: tuple[Frame, ...], text: ProgramText) -> str | None:
        """The variable of a module that calls itself: the object whose method the first frame outside calls."""
        inside = [f.function.rpartition(".")[0].rpartition(".")[2] in root.classes for f in stack]
        first = inside.index(True) if True in inside else 0
        for frame in (f for f, own in list(zip(stack, inside))[first:] if not own):
            node = expressions.expression_at(text, frame)
            used = expressions.dotted(node.func if isinstance(node, ast.Call) else node) if node is not None else None
            owner = (used or "").rpartition(".")[0]
            if owner or frame.user:  # a library's decorator calls the method by a name of its own
                return owner if owner != "self" else None
        return None

    def holder_of(self, parameter: torch.Tensor) -> int:
        """Number of the module that holds a parameter, -1 where no known model does."""
        for root in self.roots:
            top = root.ref()
            known = root.holders.get(id(parameter))
            if known is None and top is not None:
                self._learn(root)
                root.holders = {
                    id(p): root.paths.get(name.rpartition(".")[0], -1)
                    for name, holder, p, _ in self.tensors(top)
                    if holder == "parameter"
                }
                known = root.holders.get(id(parameter))
            if known is not None:
                return known
        return -1

    def tensors(self, top: nn.Module) -> Iterator[Held]:
        """Each parameter and buffer of a module, once; of the modules that ran inside it beside its own, too."""
        known: set[int] = set()
        root = self._root_of.get(id(top))
        beside = root.beside.values() if root is not None and root.ref() is top else ()
        parts = [("", top, True), *((path, module, False) for ref, path in beside if (module := ref()) is not None)]
        for path, module, deep in parts:
            own = module.named_parameters(recurse=False), module.named_buffers(recurse=False)
            for holder, found in zip(("parameter", "buffer"), walk(module)[1:] if deep else own):
                for name, tensor in found:
                    if id(tensor) not in known:
                        known.add(id(tensor))
                        yield Held(_joined(path, clean_name(name, top)), holder, tensor, not deep)

    def live_roots(self) -> Iterator[nn.Module]:
        for root in self.roots:
            module = root.ref()
            if module is not None:
                yield module


def _joined(*parts: str) -> str:
    return ".".join(filter(None, parts))


def _free(root: Root, module: nn.Module, path: str) -> str:
    """The path, with a number where another live module with weights has it: two adapters around one layer."""
    others = {p: m for key, (ref, p) in root.beside.items() if key != id(module) and (m := ref()) is not None}
    if not any(next(m.parameters(), None) is not None for m in (module, others.get(path, module))):
        return path  # a loss that is made anew in each call
    return next(p for p in chain([path], (f"{path}#{n}" for n in count(2))) if p not in others)


def _is_in(root: Root, module: nn.Module) -> bool:
    entry = root.numbers.get(id(module))
    return entry is not None and entry[0]() is module


def state_names(optimizer: object, parameters: Mapping[Any, tuple[str, Any]]) -> dict[int, tuple[str, str]]:
    """For each tensor in an optimizer's state: id -> (``exp_avg of layer.weight``, "state")."""
    names = {}
    for parameter, state in getattr(optimizer, "state", {}).items():
        owner = parameters.get(id(parameter), ("", ""))[0]
        for key, value in state.items() if isinstance(state, dict) else ():
            if isinstance(value, torch.Tensor):
                names[id(value)] = (f"{key} of {owner}" if owner else str(key), "state")
    return names
