"""Which tensors hold codes: numbers that only mean something together with a scale, or several packed into one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

_SCALES = ("scale", "absmax", "scb", "zero_point", "qzeros")
"""Parts of the names that quantisers give to the scale beside the codes."""
_CODES = frozenset(
    d
    for d in vars(torch).values()
    if isinstance(d, torch.dtype) and not d.is_complex and d.itemsize == 1 and d is not torch.bool
)


def is_quantised(parameter: Any) -> bool:
    """Whether weights are kept as integers, openly or inside a wrapper that shows the dtype it computes in."""
    if not parameter.dtype.is_floating_point and not parameter.dtype.is_complex:
        return True
    if type(parameter) is nn.Parameter or not hasattr(parameter, "__tensor_flatten__"):
        return False
    try:
        inner = [getattr(parameter, name) for name in parameter.__tensor_flatten__()[0]]
    except Exception:  # a wrapper's own code may raise anything
        return False
    return any(
        isinstance(t, torch.Tensor) and not t.dtype.is_floating_point and t.numel() >= parameter.numel() // 2
        for t in inner
    )


def holds_codes(tensor: torch.Tensor, roots: Iterable[nn.Module]) -> bool:
    """Whether a tensor of a refused call holds codes: an integer weight, or 8-bit numbers with a scale beside them.

    ``roots``: the models in which its module is searched. An integer buffer without a scale counts something.
    """
    base = tensor if tensor._base is None else tensor._base
    if isinstance(base, nn.Parameter) and is_quantised(base):
        return True
    if base.dtype not in _CODES:
        return False
    holders = (m for root in roots for m in root.modules() if _holds(m, base))
    return any(any(part in name.lower() for part in _SCALES) for m in holders for name in _beside(m))


def _holds(module: nn.Module, tensor: torch.Tensor) -> bool:
    return any(t is tensor for t in (*module._parameters.values(), *module._buffers.values()))


def _beside(module: nn.Module) -> Iterable[str]:
    """The names of a module's own tensors."""
    named = (*module._parameters.items(), *module._buffers.items(), *vars(module).items())
    return (name for name, value in named if isinstance(value, torch.Tensor))
