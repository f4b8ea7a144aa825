"""One call of the program, repeated in higher precision."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import torch

from ..capture import warning_places
from ..capture.calls import readable
from . import attention
from .operators import Kind
from .shadows import COMPLEX, Shadow, Shadows, floating, real_of

Tensor = torch.Tensor
_aten = torch.ops.aten
_HEAVY = 1 << 22
"""Multiplications above which the program's own float32 result is used as the local one."""
_PLAIN = (Tensor, torch.nn.Parameter, torch.nn.Buffer)


class Done(NamedTuple):
    """A call that the program has made, with the number of its op."""

    number: int
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any


class ReferencedCall:
    """One call of the program and its results.

    written: the tensors that it wrote to. before: the program's values of those before the call, where they differ from
    the references. made: the floating tensors that it wrote to, then its new ones; these get references.
    """

    def __init__(
        self, shadows: Shadows, call: Done, kind: Kind, written: list[Tensor], before: list[Tensor | None]
    ) -> None:
        self.shadows, self.kind = shadows, kind
        _, self.func, args, kwargs, out = call
        self.args, self.kwargs, self.out = args, kwargs, out
        if kind.outs:
            outs = {a.name for a in kind.written}
            kept = {k: v for k, v in kwargs.items() if k not in outs}
        operands = tensors_of(args) + tensors_of(kept if kind.outs else kwargs)
        self.operands: list[Tensor] = []
        self.followable = True
        taken: set[int] = set()
        for t in operands:
            ordinary = plain(t)
            if ordinary:
                taken.add(t.untyped_storage()._cdata)
            if floating(t.dtype):
                self.operands.append(t)
                self.followable = self.followable and ordinary
        self.results = written if kind.outs else tensors_of(out)
        self.changed = {} if kind.outs else {id(t): i for i, t in enumerate(written)}
        self.before = before
        new = [t for t in self.results if floating(t.dtype)]
        if kind.outs:
            self.followable = self.followable and not self._reads_results(operands)
            self.made = new
        else:
            new = [t for t in new if plain(t) and t.untyped_storage()._cdata not in taken]
            self.made = [t for t in written if floating(t.dtype)] + new
        self.new = {id(t) for t in new}
        self.held: dict[int, Shadow | None] = {}
        """The shadows of the operands that are not written to, by the tensor's id."""
        if self.made and self.followable:
            self._look()

    def _look(self) -> None:
        shadows, changed = self.shadows, self.changed
        dtypes = {shadows.wide[real_of(t.dtype)] for t in self.operands} | {
            shadows.wide[real_of(t.dtype)] for t in self.made
        }
        self.real = torch.float64 if torch.float64 in dtypes else torch.float32
        self.held = {id(t): shadows.shadow(t) for t in self.operands if id(t) not in changed}
        self.inherits = any(b is not None for b in self.before) or any(s is not None for s in self.held.values())
        exact = all(real_of(t.dtype) is torch.float64 for t in self.made)
        # for a large float32 matmul, two more in float64 would cost more than everything else, and its own rounding
        # error is almost zero
        self.heavy = (
            self.real is torch.float64 and self.made[0].dtype is torch.float32 and _work(self.operands) > _HEAVY
        )
        self.needed = self.inherits or not exact or bool(changed)

    def _reads_results(self, operands: list[Tensor]) -> bool:
        """Whether the call reads the memory that it writes its results to: the old values are gone then."""
        into = {t.untyped_storage()._cdata for t in self.results if plain(t)}
        return any(plain(t) and t.untyped_storage()._cdata in into for t in operands)

    def run(self, *, local: bool) -> list[Tensor | None]:
        """The results from the references, or (local) from the program's own values, widened; in the order of
        ``made``."""
        self.local = local
        self.entered: dict[int, Tensor] = {}
        packet = getattr(self.func, "overloadpacket", None)
        special = _SPECIAL.get(id(packet))
        if special is not None:
            results = special(self)
        elif packet is not None and attention.is_fused(packet.__name__):
            results = self._attention()
        elif self.kind.picks or self.kind.pools:
            results = self.picked()
        else:
            args, kwargs = self.arguments()
            results = warning_places.unheard(lambda: self.func(*args, **kwargs))
        return self._matched(results)

    # ------------------------------------------------------------ arguments

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """The call's arguments, widened."""
        kind = self.kind
        args = [self._own(a) if i in kind.kept else self.wide(a) for i, a in enumerate(self.args)]
        kwargs = {k: self._own(v) if k in kind.kept_names else self.wide(v) for k, v in self.kwargs.items()}
        if kind.names_dtype and not self.operands and kwargs.get("dtype") is None:
            kwargs["dtype"] = self.dtype(self.made[0].dtype)
        return args, kwargs

    def _own(self, value: Any) -> Any:
        """The program's own argument, copied where the call may write to it."""
        if isinstance(value, (list, tuple)):
            return [self._own(v) for v in value]
        return value.clone() if isinstance(value, Tensor) and self.kind.written else value

    def dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype to compute in, for a dtype that the program named."""
        if not floating(dtype):
            return dtype
        return COMPLEX[self.real] if dtype.is_complex else self.real

    def wide(self, value: Any) -> Any:
        """An argument for the call in higher precision."""
        if isinstance(value, Tensor):
            return self.widened(value)
        if isinstance(value, (list, tuple)):
            return [self.wide(v) for v in value]
        if isinstance(value, torch.dtype) and self.kind.widens:
            return self.dtype(value)
        return value

    def widened(self, tensor: Tensor) -> Tensor:
        """A tensor's reference, or the program's own value, in the dtype that the call computes in."""
        if self.kind.outs and self._is_out(tensor):
            return tensor.new_empty(tensor.shape, dtype=self.dtype(tensor.dtype))
        number = self.changed.get(id(tensor))
        if number is not None:
            entered = self.entered.get(number)
            if entered is None:
                entered = self.entered[number] = self._enters(number, tensor)
            return entered
        if not floating(tensor.dtype):  # from integers only, a pointwise operator makes the default dtype
            counts = self.kind.pointwise and not self.operands and tensor.dtype is not torch.bool
            return tensor.to(self.real) if counts else tensor
        dtype = self.dtype(tensor.dtype)
        shadow = None if self.local else self.held.get(id(tensor))
        if shadow is None:
            return tensor.to(dtype)
        reference = self.shadows.view(shadow, tensor)
        return reference if reference.dtype is dtype else reference.to(dtype)

    def _is_out(self, tensor: Tensor) -> bool:
        return any(tensor is t for t in self.results)

    def _enters(self, number: int, tensor: Tensor) -> Tensor:
        """What the call writes to instead of the program's tensor: its shadow, or a copy of the old values."""
        if not floating(tensor.dtype):
            return tensor.clone()  # integers: the program's own are already changed
        dtype = self.dtype(tensor.dtype)
        before = self.before[number]
        if self.local and before is not None:
            return before.to(dtype)
        reference = self.shadows.of(tensor)
        if reference is None or self.local and self.kind.overwrites:
            return torch.empty(tensor.shape, dtype=dtype, device=tensor.device)
        return reference.to(dtype, copy=self.local)

    # ------------------------------------------------------------ results

    def _attention(self) -> list[Tensor]:
        """What a device's fused attention computes; its other results, which only its own kernels read, as they are."""
        args, kwargs = self.arguments()
        given = dict(zip((a.name for a in self.func._schema.arguments), args)) | kwargs
        found = attention.computed(given)
        return [*found, *self.results[len(found) :]]

    def picked(self) -> tuple[Tensor, Tensor]:
        """Elements of the reference, picked by the program's own indices."""
        values, indices = self.out[0], self.out[1]
        source = self.widened(self.args[0])
        if self.kind.pools:
            picked = source.flatten(-self.kind.pools).gather(-1, indices.flatten(-self.kind.pools))
            return picked.view(values.shape), indices
        arguments = self.func._schema.arguments
        at = next(i for i, a in enumerate(arguments) if a.name == "dim")
        dim = self.args[at] if at < len(self.args) else self.kwargs.get("dim", arguments[at].default_value)
        if not source.dim():
            return source.reshape(values.shape).clone(), indices
        chosen = indices.unsqueeze(dim) if indices.dim() < source.dim() else indices
        return source.gather(dim, chosen).view(indices.shape), indices

    def _matched(self, results: Any) -> list[Tensor | None]:
        """The results in the order of ``made``; None for each that is missing."""
        changed = [self.entered.get(i) for t, i in self.changed.items() if any(t == id(m) for m in self.made)]
        wide = tensors_of(results)
        if len(wide) != len(self.results):
            return changed + [None] * (len(self.made) - len(changed))
        shadows = [*self.held.values(), *(self.shadows.shadow(t) for t in self.operands if id(t) in self.changed)]
        taken = {s.flat.untyped_storage()._cdata for s in shadows if s is not None} if self.new else set()
        new = [
            w.clone() if w.untyped_storage()._cdata in taken else w
            for own, w in zip(self.results, wide)
            if id(own) in self.new
        ]
        return changed + new


# ---------------------------------------------------------------- operators that need more than the same call


def _dropout(call: ReferencedCall) -> Any:
    """Dropout with the program's mask."""
    probability = call.args[1]
    scale = 0.0 if probability == 1 else 1.0 / (1.0 - probability)
    return call.widened(call.args[0]) * call.out[1] * scale, call.out[1]


def _softmax(call: ReferencedCall) -> Any:
    """A softmax that was called with a wider dtype: the reference is already wide."""
    args, _ = call.arguments()
    return call.func(*args[:2], False)


_SPECIAL: dict[int, Callable[[ReferencedCall], Any]] = {
    id(_aten.native_dropout): _dropout,
    id(_aten._softmax): _softmax,
    id(_aten._log_softmax): _softmax,
}
"""By id: hashing an operator runs Python code."""


# ---------------------------------------------------------------- arguments


def _work(operands: list[Tensor]) -> int:
    """About the number of multiplications of a matmul or convolution; 0 for other ops, which are cheap in
    comparison."""
    sizes = [t.shape for t in operands if t.dim() > 1]
    return prod(sizes[-2]) * sizes[-1][-1] if len(sizes) > 1 else 0


def argument(args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str) -> Any:
    """An argument by its position (-1: keyword-only) or name, None where it was not given."""
    if 0 <= position < len(args):
        return args[position]
    return kwargs.get(name)


def drops(func: Any, kind: Kind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call draws random numbers for a dropout inside it."""
    return bool(argument(args, kwargs, kind.dropout, func._schema.arguments[kind.dropout].name))


def tensors_of(value: Any) -> list[Tensor]:
    """The tensors of an argument or a result, lists taken apart."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    found = []
    for v in value:
        if isinstance(v, Tensor):
            found.append(v)
        elif isinstance(v, (list, tuple, dict)):
            found += tensors_of(v)
    return found


def plain(tensor: Tensor) -> bool:
    """Whether a tensor is an ordinary one, with memory of its own."""
    return type(tensor) in _PLAIN and readable(tensor)
