"""What eager would do with a captured graph: its operators, called with fake tensors, without the compiler's own
decompositions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from .. import private
from ..calls import dtype_name, tensors_in

Refuses = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], bool]
"""Whether the kernel of an operator refuses these arguments for their dtypes."""


class Refused(NamedTuple):
    """An operator that eager refuses: its name, and the dtypes of its tensors."""

    op: str
    dtypes: tuple[str, ...]


def refused(module: Any, inputs: list[Any], refuses: Refuses) -> dict[str, Refused]:
    """By the name of a captured node: the operator in it that eager refuses."""
    calls = _Calls()
    fakes = (getattr(i, "fake_mode", None) for i in inputs if isinstance(i, torch.Tensor))
    fake = next(filter(None, fakes), None)
    if fake is None:
        return {}
    with fake, calls:
        _Run(module, calls).run(*inputs)
    return {
        node: Refused(str(func), tuple(dtype_name(t.dtype) for t in tensors_in(args, dict(kwargs))))
        for node, func, args, kwargs in reversed(calls.mixed)
        if refuses(func, args, kwargs)
    }


class _Calls(private.TorchDispatchMode):
    """Notes the operators that are called with more than one floating dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.node = ""
        self.mixed: list[tuple[str, Any, tuple[Any, ...], Mapping[str, Any]]] = []

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if len({t.dtype for t in tensors_in(args, kwargs) if t.is_floating_point()}) > 1:
            self.mixed.append((self.node, func, args, kwargs))
        return func(*args, **kwargs)


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
