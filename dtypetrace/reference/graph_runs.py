"""A compiled graph, run node by node in three ways at once: as eager rounds, as its kernels round, and in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from ..capture import warning_places
from ..capture.compiled.inductor import copied_to
from ..capture.compiled.kernels import Kernels
from ..capture.compiled.ledger import Compiled
from ..capture.compiled.torch_private import map_aggregate, mapped
from ..capture.repeats import repeatable
from ..records.compiled import Measured
from ..tables.operators import JUMPS, tagged
from .calls import drops, tensors_of
from .operators import kind_of

Tensor = torch.Tensor
_aten = torch.ops.aten
_HALF = frozenset({torch.float16, torch.bfloat16})
_EXACT: dict[torch.dtype, torch.dtype] = {
    **dict.fromkeys((*_HALF, torch.float32), torch.float64),
    torch.complex64: torch.complex128,
}
_IN_KERNELS = dict.fromkeys(_HALF, torch.float32)
"""Kernels compute in float32 what the graph says is in 16 bits."""


class Ways(NamedTuple):
    """What a node makes, in each way. What is no tensor is the same in all."""

    eager: Any
    kernel: Any
    early: Any
    """As its own kernel has it before it is rounded."""
    exact: Any


class Rounds:
    """Where the kernels of a graph round."""

    def __init__(self, compiled: Compiled) -> None:
        kernels = Kernels(compiled)
        unrounded = kernels.unrounded()
        self.early = {n.name: {n.inputs[p] for p in unrounded.get(n.name, ())} for n in compiled.nodes}
        """By node: its inputs whose numbers it gets before they are rounded."""
        self.in_loop = kernels.in_loop


@dataclass
class Run:
    """What a graph made."""

    values: dict[str, Ways] = field(default_factory=dict)
    """Of the nodes that it returns, or writes into a tensor that it was given."""
    decided: dict[str, Ways] = field(default_factory=dict)
    """Of the nodes that jump where an operand crosses a bound."""


# ---------------------------------------------------------------- what may be repeated


def unrepeatable(node: Any) -> str:
    """Why a node may not be called a second time; empty if it may."""
    func = node.target
    if node.op not in ("call_function", "call_module", "call_method"):
        return ""
    if not isinstance(func, torch._ops.OpOverload):
        known = node.op == "call_function" and getattr(func, "__module__", "") in ("_operator", "math")
        return "" if known else f"it calls {getattr(func, '__name__', func)}"
    # torch's compiler itself computes its own operators again where that saves memory
    own = func.namespace in ("aten", "prims") and not func._schema.is_mutable
    return "" if own or repeatable(func) else f"it calls {func}, which may do more than compute"


def draws(node: Any) -> bool:
    """Whether a node draws random numbers."""
    func = node.target
    if not isinstance(func, torch._ops.OpOverload):
        return False
    kind = kind_of(func)
    if kind.dropout >= 0:
        return drops(func, kind, node.args, node.kwargs)
    return torch.Tag.nondeterministic_seeded in func.tags or tagged(str(func), "random")


def elements(node: Any) -> int:
    return sum(v.numel() for v in tensors_of(node.meta.get("val")) if type(v.numel()) is int)


def written(node: Any) -> Iterator[str]:
    """The names of the nodes whose memory a node writes to."""
    schema = getattr(node.target, "_schema", None)
    for number, argument in enumerate(schema.arguments if schema is not None and schema.is_mutable else ()):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = node.args[number] if number < len(node.args) else node.kwargs.get(argument.name)
            yield from (n.name for n in (given if isinstance(given, (list, tuple)) else [given]) if n is not None)


# ---------------------------------------------------------------- running


@dataclass
class Given:
    """What a graph is run with, by name."""

    inputs: Mapping[str, Any]
    """What the program called it with."""
    constants: Mapping[str, Any]
    saved: Mapping[str, Ways | None]
    """What the forward made of that, in each way; None where that is unknown."""
    masks: Mapping[str, Tensor]
    """What the compiled code chose, where it gave that: random numbers are not drawn again, and what is computed from
    them is unknown but for these."""


def run(nodes: Sequence[Any], given: Given, rounds: Rounds) -> Run:
    made = Run()
    values: dict[Any, Ways] = {}
    last = {i: n for n in nodes for i in n.all_input_nodes}
    ends = {i.name for n in nodes if n.op == "output" for i in n.all_input_nodes}
    for node in nodes:
        early = {i for i in node.all_input_nodes if i.name in rounds.early.get(node.name, ())}
        if (way := _made(node, values, given, early, rounds.in_loop(node.name))) is not None:
            values[node] = way
            if tagged(str(node.target), *JUMPS) and isinstance(way.kernel, Tensor):
                made.decided[node.name] = way
            if node.name in ends:
                made.values[node.name] = way
            if copied_to(node) is not None:
                made.values[node.args[1].name] = way
        for i in node.all_input_nodes:
            if last[i] is node:
                values.pop(i, None)
    return made


def _made(node: Any, values: Mapping[Any, Ways], given: Given, early: set[Any], in_loop: bool) -> Ways | None:
    """What a node makes; None where that is unknown."""
    if node.op == "placeholder":
        return given.saved[node.name] if node.name in given.saved else _begun(given.inputs[node.name])
    if node.op == "get_attr":
        return _begun(given.constants[node.target])
    if any(i not in values for i in node.all_input_nodes) or draws(node):
        return _begun(given.masks[node.name]) if node.name in given.masks else None
    if node.op == "output":
        return None
    return _Node(node, values, early, in_loop).ways() if copied_to(node) is None else values[node.args[1]]


def _begun(value: Any) -> Ways:
    value = value.detach() if isinstance(value, Tensor) else value
    return Ways(value, value, None, _widened(value, _EXACT))


def _widened(value: Any, wider: Mapping[torch.dtype, torch.dtype]) -> Any:
    """An argument with its floating tensors and dtypes made wider."""

    def one(v: Any) -> Any:
        if isinstance(v, Tensor):
            return v.to(wider.get(v.dtype, v.dtype))
        return wider.get(v, v) if isinstance(v, torch.dtype) else v

    return map_aggregate(value, one)


class _Node:
    """One call of a graph. early: the inputs that it gets before they are rounded."""

    def __init__(self, node: Any, values: Mapping[Any, Ways], early: set[Any], in_loop: bool) -> None:
        self.node, self.values, self.early, self.in_loop = node, values, early, in_loop
        self.func = node.target
        self.views = tagged(str(self.func), "view")
        self.copies = getattr(getattr(self.func, "_schema", None), "is_mutable", False)

    def ways(self) -> Ways:
        eager = self._call(lambda n: self.values[n].eager)
        if not tensors_of(eager):
            return Ways(eager, eager, None, eager)
        kernel, early = self._kernel(eager)
        return Ways(eager, kernel, early, self._exact(eager))

    def _call(self, value: Callable[[Any], Any], wider: Mapping[torch.dtype, torch.dtype] | None = None) -> Any:
        args, kwargs = mapped(self.node.args, value), mapped(self.node.kwargs, value)
        if wider is not None:
            args, kwargs = _widened(args, wider), _widened(kwargs, wider)
            if self.func in (_aten._softmax.default, _aten._log_softmax.default):
                args = (*args[:2], False)  # it is wide already
        if self.copies:
            args, kwargs = _copied(args), _copied(kwargs)
        return warning_places.unheard(lambda: self.func(*args, **kwargs))

    def _exact(self, eager: Any) -> Any:
        if self.func is not _aten.view.dtype:
            try:
                return self._call(lambda n: self.values[n].exact, _EXACT)
            except (RuntimeError, NotImplementedError, TypeError):
                pass  # a kernel that refuses float64
        return _widened(eager, _EXACT)

    def _kernel(self, eager: Any) -> tuple[Any, Any]:
        """What the kernel makes, and what that is before it is rounded."""
        inputs = self.node.all_input_nodes
        if self.views:
            early = any(self.values[i].early is not None for i in inputs)
            return self._call(lambda n: self.values[n].kernel), self._call(self._early) if early else None
        narrow = any(t.dtype in _HALF for t in tensors_of(eager))
        if not self.early and not (narrow and self.in_loop):
            same = all(self.values[i].kernel is self.values[i].eager for i in inputs)
            return eager if same else self._call(lambda n: self.values[n].kernel), None
        try:
            early = self._call(lambda n: self._early(n) if n in self.early else self.values[n].kernel, _IN_KERNELS)
        except (RuntimeError, NotImplementedError, TypeError):
            return self._call(lambda n: self.values[n].kernel), None
        return _rounded(early, eager), early if narrow else None

    def _early(self, node: Any) -> Any:
        way = self.values[node]
        return way.kernel if way.early is None else way.early


def _copied(value: Any) -> Any:
    return map_aggregate(value, lambda v: v.clone() if isinstance(v, Tensor) else v)


def _rounded(early: Any, eager: Any) -> Any:
    """The same numbers in the dtypes of others."""
    if isinstance(early, Tensor):
        return early.to(eager.dtype)
    return type(eager)(map(_rounded, early, eager)) if isinstance(early, (list, tuple)) else early


# ---------------------------------------------------------------- comparing


def compared(number: int, real: Any, way: Ways) -> Measured | None:
    """How far what compiled code gave for a node, and what eager gives, are from float64."""
    if not isinstance(real, Tensor) or not isinstance(way.exact, Tensor) or not real.numel():
        return None
    compiled, lost = _distance(real, way.exact)
    eager, eager_lost = _distance(way.eager, way.exact)
    apart, _ = _distance(real, way.eager)
    return Measured(number, compiled, eager, apart, lost, eager_lost)


def decided(number: int, way: Ways, before: Tensor | None) -> Measured | None:
    """The shares of decisions that are others: in the kernels and in eager than in float64, in the kernels than in
    eager, and (before) in the kernels than in the forward's. None where the kernels decide as eager does."""
    if not way.kernel.numel():
        return None
    share = lambda one, other: (one != other).double().mean().item()
    apart = share(way.kernel, way.eager)
    twice = share(way.kernel, before) if before is not None and before.shape == way.kernel.shape else 0.0
    if not apart and not twice:
        return None
    return Measured(number, share(way.kernel, way.exact), share(way.eager, way.exact), apart, decides=True, twice=twice)


def close(kernel: Any, real: Tensor) -> bool:
    """Whether a repeated result is the one that the compiled code gave, but for the last bits."""
    if not isinstance(kernel, Tensor) or kernel.shape != real.shape or kernel.dtype is not real.dtype:
        return False
    apart, lost = _distance(kernel, real.to(_EXACT.get(real.dtype, real.dtype)))
    unit = torch.finfo(real.dtype).eps if real.dtype.is_floating_point else 1e-3
    return lost == 0 and apart <= max(4 * unit, 1e-4)


def _distance(value: Tensor, exact: Tensor) -> tuple[float, float]:
    """The size of a difference over that of the numbers, and the share of numbers that are not finite while those of
    ``exact`` are; of decisions, the share that differs."""
    if not (exact.is_floating_point() or exact.is_complex()):
        return (value != exact).double().mean().item(), 0.0
    value = value.to(exact.dtype)
    known = exact.isfinite()
    both = known & value.isfinite()
    lost = (known & ~both).sum().item() / max(1, known.sum().item())
    one, other = torch.where(both, value, 0.0), torch.where(both, exact, 0.0)
    size = max(one.norm().item(), other.norm().item())
    return (one - other).norm().item() / size if size else 0.0, lost
