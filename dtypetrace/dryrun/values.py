"""What is answered where the program asks for a value that a dry run does not have: ``.item()``, ``if loss > x``.

Every number is assumed to be finite. A condition is answered so that the program goes on: away from ``raise``,
``return``, ``continue`` and ``break``, into a loop once, and past an ``assert``.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from math import prod
from types import FrameType
from typing import Any

import torch

from ..capture.stacks import Places
from ..tables.operators import tagged
from .branches import Branches
from .prediction import tensors_in

Tensor = torch.Tensor
_aten = torch.ops.aten


class NeedsValueError(RuntimeError):
    """The program needs values that a dry run does not have."""


class ValueAnswers:
    """Answers in the way that lets the program go on, and counts at which lines it did."""

    def __init__(self) -> None:
        self.places = Places()
        self.branches = Branches()
        self.answered: Counter[tuple[str, int, str]] = Counter()
        """By file, line and what was asked: how often."""
        self._truths: dict[int, tuple[weakref.ref[Tensor], bool]] = {}
        """Boolean tensors without values of which it is known what they say about finite numbers."""

    def of_operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
        """Whether an operator's result depends on values, and then an answer: a number or a truth for a scalar, and as
        many elements as there could be."""
        answer = _ANSWERS.get(func)
        if answer is not None:
            self._count(func.overloadpacket.__name__.strip("_"))
            return True, answer(*args, **kwargs)
        if func is _aten._local_scalar_dense.default:
            return True, self._scalar(args[0])
        if func in (_aten.equal.default, _aten.is_nonzero.default):
            return True, self._truth(args[0])
        return False, None

    def _scalar(self, tensor: Tensor) -> Any:
        if tensor.dtype is torch.bool:
            return self._truth(tensor)
        self._count("item")
        return 1.0 if tensor.is_floating_point() else 1 if not tensor.is_complex() else 1j

    def _truth(self, tensor: Tensor) -> bool:
        known = self._known(tensor)
        if known is not None:
            return known
        self._count("bool")
        frame = self._caller()
        return self.branches.answer(frame) if frame is not None else True

    def _caller(self) -> FrameType | None:
        """The innermost frame outside torch and dtypetrace."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and self.places.hidden(frame.f_code.co_filename):
            frame = frame.f_back
        return frame

    def _count(self, what: str) -> None:
        frame = self._caller()
        if frame is not None:
            self.answered[frame.f_code.co_filename, frame.f_lineno, what] += 1

    # ------------------------------------------------------------ what is known of finite numbers

    def made(self, func: Any, args: tuple[Any, ...], out: Any) -> None:
        """Notes what a new boolean tensor says, as far as it follows from numbers being finite."""
        if isinstance(out, Tensor) and out.dtype is torch.bool:
            truth = self._follows(func, args)
            if truth is not None:
                key = id(out)
                self._truths[key] = weakref.ref(out), truth
                if len(self._truths) > _MOST_TRUTHS:
                    self._truths = {k: v for k, v in self._truths.items() if v[0]() is not None}

    def _follows(self, func: Any, args: tuple[Any, ...]) -> bool | None:
        name = func.overloadpacket.__name__
        if tagged(name, "check"):
            return bool(name == "isfinite")
        if tagged(name, "equal") and len(args) > 1:
            if args[0] is args[1]:  # how C++ asks for NaN
                return bool(name == "eq")
            return name == "ne" if isinstance(args[1], float) and math.isinf(args[1]) else None
        known = [self._known(t) for t in tensors_in(args)]
        if tagged(name, "not"):
            return None if known[0] is None else not known[0]
        if (name in ("any", "all") or tagged(name, "cast", "view", "copy")) and known:
            return known[0]
        if tagged(name, "and") and None not in known:
            return all(known)
        return any(known) if tagged(name, "or") and None not in known else None

    def _known(self, tensor: Tensor) -> bool | None:
        entry = self._truths.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def lines(self) -> Iterator[tuple[str, int, str, int]]:
        """File, line, what was asked and how often, in the order in which they were first asked."""
        for (file, line, what), count in self.answered.items():
            yield file, line, what, count


_MOST_TRUTHS = 4096


def _empty(*size: int, dtype: torch.dtype) -> Tensor:
    return torch.empty(size, dtype=dtype, device="meta")


def _nonzero(tensor: Tensor) -> Tensor:
    return _empty(tensor.numel(), tensor.dim(), dtype=torch.int64)


def _masked_select(tensor: Tensor, mask: Tensor) -> Tensor:
    return _empty(prod(torch.broadcast_shapes(tensor.shape, mask.shape)), dtype=tensor.dtype)


def _unique(tensor: Tensor, *_: Any, **__: Any) -> tuple[Tensor, ...]:
    count = tensor.numel()
    return (
        _empty(count, dtype=tensor.dtype),
        _empty(*tensor.shape, dtype=torch.int64),
        _empty(count, dtype=torch.int64),
    )


_ANSWERS: dict[Any, Callable[..., Any]] = {
    _aten.nonzero.default: _nonzero,
    _aten.masked_select.default: _masked_select,
    _aten._unique2.default: _unique,
    _aten.unique_consecutive.default: _unique,
    _aten.unique_dim.default: _unique,
    _aten.bincount.default: lambda tensor, weights=None, minlength=0: _empty(max(minlength, 1), dtype=torch.int64),
}
