"""What eager would do with a captured graph: its operators, called with fake tensors, without the compiler's own
decompositions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from .. import private
from ..calls import dtype_name, tensors_in

Asks = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], str | None]
"""The dtype that the kernel of an operator gives for these arguments: empty where it refuses their dtypes, None where
that is not known, and for several results."""


class Otherwise(NamedTuple):
    """An operator that eager refuses, or that gives another dtype there than Dynamo believes: its name, the dtypes of
    its tensors, and the dtype of its result; empty where it is refused."""

    op: str
    dtypes: tuple[str, ...]
    gives: str


def otherwise(module: Any, inputs: list[Any], asks: Asks) -> dict[str, Otherwise]:
    """By the name of a captured node: the operator in it that eager refuses, or computes in another dtype."""
    calls = _Calls()
    fakes = (getattr(i, "fake_mode", None) for i in inputs if isinstance(i, torch.Tensor))
    fake = next(filter(None, fakes), None)
    if fake is None:
        return {}
    # the program's own hooks see nothing of this: checkpointing counts what is saved
    with fake, calls, torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda saved: saved):
        _Run(module, calls).run(*inputs)
    found: dict[str, Otherwise] = {}
    for node, func, args, kwargs, made in reversed(calls.mixed):
        gives = asks(func, args, kwargs)
        if gives == "" or gives is not None and gives != made:
            given = tuple(dtype_name(t.dtype) for t in tensors_in(args, dict(kwargs)))
            found[node] = Otherwise(str(func), given, gives)
    return found


class _Calls(private.TorchDispatchMode):
    """Notes the operators that are called with more than one floating dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.node = ""
        self.mixed: list[tuple[str, Any, tuple[Any, ...], Mapping[str, Any], str]] = []

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        if len({t.dtype for t in tensors_in(args, kwargs) if t.is_floating_point()}) > 1:
            dtype = dtype_name(made.dtype) if isinstance(made, torch.Tensor) else ""
            self.mixed.append((self.node, func, args, kwargs, dtype))
        return made


class _Run(torch.fx.Interpreter):
    """Runs a captured graph; a node that cannot be run gives what Dynamo noted for it."""

    def __init__(self, module: Any, calls: _Calls) -> None:
        super().__init__(module)
        self.calls = calls

    def run_node(self, n: Any) -> Any:
        self.calls.node = n.name
        try:
            return super().run_node(n)
        except Exception:
            if n.op == "output":
                return None
            return n.meta.get("example_value")
