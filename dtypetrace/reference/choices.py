"""What a program chooses by its numbers, chosen again by their references: indices, ranks, integers.

A choice sees only differences: of scores near 8 that are a hundredth apart, rounding to 0.2% leaves nothing. So what an
operator chooses from is compared without its mean.
"""

from __future__ import annotations

from typing import Any

import torch

from .calls import argument

Tensor = torch.Tensor
_aten = torch.ops.aten
_LARGEST = 1 << 20
"""Elements of the largest tensor from which is chosen again."""


def compared(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, reference: Tensor, others: tuple[Any, ...]
) -> Tensor | None:
    """For one call: the squared error of what is chosen from, its squared size, both without the mean; the choices that
    would be others, and all choices. None for a call that only takes an extreme value.

    reference: that of the first argument, of the same shape. others: the other arguments, as references too.
    """
    source, places = args[0], _places(out)
    if places is None or not 0 < source.numel() <= _LARGEST or reference.is_complex():
        return None
    again = _places(func(reference, *others, **kwargs))
    if again is None or again.shape != places.shape:
        return None
    dim = _dimension(func, args, kwargs)
    wide = source.to(reference.dtype)
    known = torch.isfinite(wide) & torch.isfinite(reference)
    error, size = (_without_mean(torch.where(known, t, 0.0), known, dim) for t in (wide - reference, reference))
    wrong = places != again
    if func.overloadpacket is _aten.topk and dim is not None:  # the same numbers in another order are no other choice
        wrong = (places.movedim(dim, -1)[..., None] != again.movedim(dim, -1)[..., None, :]).all(-1)
    of = torch.maximum(rarer(again), wrong.sum()) if again.dtype is torch.bool else None
    return _sums(error.square().sum(), size.square().sum(), wrong, of)


def rarer(answers: Tensor) -> Tensor:
    """How many answers of a comparison are the rarer ones, at least one."""
    yes = answers.sum()
    return torch.minimum(yes, answers.numel() - yes).clamp(min=1)


def counted(made: Tensor, again: Tensor) -> Tensor:
    """The same for numbers that were cast to integers: how many would be others."""
    none = torch.zeros((), dtype=torch.float64, device=made.device)
    return _sums(none, none, made != again)


def _sums(error: Tensor, size: Tensor, others: Tensor, of: Tensor | None = None) -> Tensor:
    """``of``: how many choices there were, where they are not all that are compared."""
    every = torch.full_like(error, others.numel()) if of is None else of.to(error.dtype)
    return torch.stack([error, size, others.sum().to(error.dtype), every])


def _places(out: Any) -> Tensor | None:
    """The integers among an operator's results."""
    found = out if isinstance(out, Tensor) else out[1] if isinstance(out, (tuple, list)) and len(out) > 1 else None
    return None if found is None or found.dtype.is_floating_point else found


def _dimension(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """The dimension along which is chosen, None for all of them."""
    arguments = func._schema.arguments
    at = next((i for i, a in enumerate(arguments) if a.name == "dim"), -1)
    if at < 0:
        return None
    dim = argument(args, kwargs, at, "dim")
    return dim if dim is not None or arguments[at].default_value is None else arguments[at].default_value


def _without_mean(values: Tensor, known: Tensor, dim: int | None) -> Tensor:
    """Numbers minus the mean of those that are known, along a dimension."""
    if not values.dim():
        return values * 0
    dims = list(range(values.dim())) if dim is None else [dim]
    count = known.sum(dims, keepdim=True).clamp(min=1)
    return torch.where(known, values - values.sum(dims, keepdim=True) / count, 0.0)
