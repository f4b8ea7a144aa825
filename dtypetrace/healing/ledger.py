"""A healer that also writes down what the program computes, so that two runs of it can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..capture import private
from ..capture.calls import readable, tensors_returned
from ..capture.protocols import Context
from ..records.ledger import Ledger, Numbers, Pass
from .healer import Healer, Judge

if TYPE_CHECKING:
    from ..capture.running import Thread

MOST_VALUES = 10_000
"""Backward passes, and outputs, that are written down."""
MOST_NUMBERS = 4096
"""Numbers of a tensor that are read: every n-th of a larger one."""


class LedgerHealer(Healer):
    """Writes down the value that each backward pass begins from, with the norm of the gradients after it, and the
    outputs of outermost modules."""

    def __init__(self, context: Context, judge: Judge, ledger: Ledger) -> None:
        super().__init__(context, judge)
        self.ledger = ledger
        self._depth = 0

    @contextmanager
    def backward(self, thread: Thread, frame: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[None]:
        with super().backward(thread, frame, args, kwargs):
            self._depth += 1
            try:
                first = args[0] if args else kwargs.get("tensors", kwargs.get("outputs"))
                values = first if isinstance(first, (list, tuple)) else [first]
                begun = self._begun([v for v in values if isinstance(v, torch.Tensor)])
                yield
                if begun is not None:
                    self._ended(*begun)
            finally:
                self._depth -= 1

    def _begun(self, values: list[torch.Tensor]) -> tuple[Pass, list[torch.Tensor]] | None:
        """Writes down the value of an outermost backward pass; returns its entry, and the leaves that get gradients."""
        if self._depth > 1 or not all(map(readable, values)):
            return None  # inside a transform (torch.func.grad) or on the meta device numbers cannot be read
        with torch.no_grad():
            value = float(sum(v.detach().double().sum().item() for v in values))
        if len(self.ledger["passes"]) >= MOST_VALUES:
            return None
        self.ledger["passes"].append({"value": value, "norm": None})
        return self.ledger["passes"][-1], _leaves(values)

    @staticmethod
    def _ended(entry: Pass, leaves: list[torch.Tensor]) -> None:
        with torch.no_grad():
            grads = [p.grad for p in leaves if p.grad is not None]
            entry["norm"] = float(sum(g.detach().double().square().sum().item() for g in grads) ** 0.5)

    def module_output(self, module: nn.Module, result: Any) -> None:
        """See :meth:`capture.protocols.Healer.module_output`."""
        with private.DisableTorchFunction(), private.DisableTorchDispatch():
            for tensor in list(tensors_returned(result)):
                entries = self.ledger["graphed" if tensor.requires_grad else "outputs"]
                if len(entries) < MOST_VALUES and (numbers := numbers_of(tensor)) is not None:
                    entries.append(numbers)


def variables(namespace: Mapping[str, Any]) -> dict[str, Numbers]:
    """The floating tensors among a program's variables, also in plain dictionaries, lists and tuples."""
    found: dict[str, Numbers] = {}
    for name, value in list(namespace.items()):
        for number, tensor in enumerate(_held(value)):
            if len(found) < MOST_VALUES and (numbers := numbers_of(tensor)) is not None:
                found[f"{name} {number}"] = numbers
    return found


def _held(value: Any) -> Iterator[torch.Tensor]:
    """The tensors among the first ``MOST_VALUES`` parts of a variable. Only plain containers are opened: asking another
    object may run the program's code."""
    parts = [value]
    for part in parts:  # grows as containers are opened
        if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
            yield part
        elif type(part) in (dict, list, tuple):
            inner = part.values() if type(part) is dict else part
            parts.extend(islice(inner, MOST_VALUES - len(parts)))


def numbers_of(tensor: torch.Tensor) -> Numbers | None:
    """A sample of a tensor's numbers; None where it has none that can be read, or no floating ones."""
    floating = tensor.is_floating_point() or tensor.is_complex()
    if not floating or not tensor.numel() or not readable(tensor) or tensor.is_quantized:
        return None
    with torch.no_grad():
        plain = torch.view_as_real(tensor.detach().resolve_conj()) if tensor.is_complex() else tensor.detach()
        flat = plain.reshape(-1)
        values = flat[:: max(1, len(flat) // MOST_NUMBERS)].double().cpu()
        waves = torch.arange(len(values), dtype=torch.float64).mul(1.7).cos()
        norm, along = float(values.norm()), float((values * waves).sum())
    return {"norm": norm, "along": along}


def _leaves(values: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors to whose ``.grad`` a backward pass from these values will add."""
    found: dict[int, torch.Tensor] = {}
    seen: set[Any] = set()
    waiting: list[Any] = [v.grad_fn for v in values if v.grad_fn is not None]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            found[id(variable)] = variable
        waiting += (above for above, _ in node.next_functions if above is not None)
    return list(found.values())
