"""The mode below all others: it runs each operator without large memory and raises what real kernels would.

Small tensors on the CPU keep their values, so tokenizers, samplers, schedules and masks work as in a real run. A
result of which any operand has no values has none either.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch

from ..capture import private
from . import devices
from .meta import MetaKernels, mapped, replaced
from .prediction import Oracle, tensors_in
from .values import ValueAnswers

Tensor = torch.Tensor
_aten = torch.ops.aten
MOST_REAL = 1 << 18
"""Tensors with more numbers than this have no values."""
_MOST_OPERAND = 1 << 22
"""Operators on more numbers than this are not computed, even if their values are known (a dataset on the CPU)."""
_UNINITIALISED = frozenset(
    {_aten.empty.memory_format, _aten.empty_strided.default, _aten.empty_like.default, _aten.new_empty.default,
     _aten.new_empty_strided.default, _aten.empty_permuted.default}
)  # fmt: skip
_INDEXED = frozenset({_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default})
"""Operators whose second argument is a list of indices, which may be masks."""


class DryMode(private.TorchDispatchMode):
    """Runs operators on the meta device where their operands have no values, else on the CPU."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Part of torch's protocol."""
        return True

    def __init__(self, oracle: Oracle, values: ValueAnswers) -> None:
        super().__init__()
        self.kernels = MetaKernels(oracle)
        self.values = values
        self.process = os.getpid()
        self._composite: dict[Any, bool] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if os.getpid() != self.process:  # a forked worker of a data loader: its batches have values
            return func(*args, **kwargs)
        with private.DisableTorchFunction():
            return self._run(func, args, kwargs)

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensors = list(tensors_in((*args, *kwargs.values())))
        if tensors and self._is_composite(func):  # arrives whole under inference_mode
            with self:
                return func.decompose(*args, **kwargs)
        asked = kwargs.get("device")
        internal = asked is None or tensors and devices.is_meta(asked)  # C++ asks for the device of the storage
        cuda = any(map(devices.on_cuda, tensors)) if internal else devices.is_cuda(asked)
        if not tensors and devices.is_meta(asked):
            return func(*args, **kwargs)  # the program itself asks for the meta device
        if self._has_values(func, args, kwargs, tensors):
            return self._really(func, args, kwargs, tensors, cuda=cuda)
        return self._without_values(func, args, kwargs, tensors, cuda=cuda)

    def _is_composite(self, func: Any) -> bool:
        known = self._composite.get(func)
        if known is None:
            known = self._composite[func] = devices.is_composite(func)
        return known

    def _has_values(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: list[Tensor]) -> bool:
        if any(map(devices.without_numbers, tensors)):
            return False
        if not tensors:
            size = next((a for a in args if isinstance(a, (list, tuple))), kwargs.get("size", ()))
            count = prod(size) if all(isinstance(n, int) for n in size) else 0
            if func in _UNINITIALISED and count:
                return False
            return count <= MOST_REAL and not (func is _aten.arange.default and args[0] > MOST_REAL)
        if func in _UNINITIALISED:
            return False
        moves = kwargs.get("device") is not None and devices.is_cuda(kwargs["device"])
        most = MOST_REAL if moves else _MOST_OPERAND
        return all(t.numel() <= most for t in tensors)

    # ------------------------------------------------------------ with values

    def _really(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor], *, cuda: bool
    ) -> Any:
        """Runs the CPU's kernel; results pretend to be where the operands are."""
        if not cuda and not any(map(devices.on_cuda, tensors)):
            return func(*args, **kwargs)
        inner = {id(t): devices.placed(t, cuda=False) for t in tensors if devices.on_cuda(t)}
        given = replaced(args, inner)
        named = {k: replaced(v, inner) for k, v in kwargs.items()}
        if "device" in named:
            named["device"] = torch.device("cpu")
        out = func(*given, **named)
        outer = {id(t): t for t in tensors} | {id(inner[id(t)]): t for t in tensors if id(t) in inner}

        def outwards(made: Any) -> Any:
            if not isinstance(made, Tensor):
                return made
            return outer[id(made)] if id(made) in outer else devices.placed(made, cuda=cuda)

        return mapped(out, outwards)

    # ------------------------------------------------------------ without values

    def _without_values(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor], *, cuda: bool
    ) -> Any:
        answered, answer = self.values.of_operator(func, args, kwargs)
        if answered:
            return mapped(answer, lambda t: devices.placed(t, cuda=cuda) if isinstance(t, Tensor) else t)
        if func in _INDEXED:
            args = (args[0], [_whole_index(i) for i in args[1]], *args[2:])
            tensors = list(tensors_in((*args, *kwargs.values())))
        result = self.kernels.run(func, args, kwargs, tensors, cuda=cuda)
        self.values.made(func, args, result)
        return result


def _whole_index(index: Any) -> Any:
    """An index; a mask whose values are known becomes the positions that it selects, as in the real call."""
    if not isinstance(index, Tensor) or index.dtype is not torch.bool or devices.without_numbers(index):
        return index
    return index if index.dim() != 1 else devices.placed(index, cuda=False).nonzero().squeeze(1)
