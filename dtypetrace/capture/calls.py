"""Reads a torch function's call: its name, the tensors among its arguments, the dtype that it names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import is_dataclass
from itertools import islice
from typing import Any

import torch

from ..tables.dtypes import HALF, NARROW, REAL, parse
from ..tables.operators import names
from . import private

Tensor = torch.Tensor
LIFT_FRESH = torch.ops.aten.lift_fresh.default
LOCAL_SCALAR = torch.ops.aten._local_scalar_dense.default
TO_COPY = torch.ops.aten._to_copy.default
TO_DTYPE = torch.ops.aten.to.dtype
CAST_CALLS = frozenset(
    {Tensor.to, Tensor.type, Tensor.type_as, Tensor.float, Tensor.half, Tensor.bfloat16, Tensor.double}
    | {torch.as_tensor, torch.asarray}
)
"""Casts that may return the tensor they were called on. For the others, the output shows that a cast ran."""
FROM_NUMBERS = frozenset({torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor, torch.scalar_tensor})
"""Calls that make a tensor from numbers of Python's or NumPy's."""
_GIVEN = (bool, int, float, complex, list, tuple)
_RESULTS = (
    getattr(home, name, None) for name in names("indices", "like") for home in (torch, Tensor, torch.nn.functional)
)
SHOWN_BY_CALL = CAST_CALLS | {call for call in _RESULTS if call is not None}
"""Those, calls that always return one integer dtype, and calls that make a tensor like another: only the call shows
that."""
# an isinstance check that fails takes three times as long as looking the type up
_HOLDS_NONE = frozenset(
    {int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
)
_NUMBERS = frozenset({int, float, bool})
_MOST_RETURNED = 100
"""Values that are looked at in one container."""
HALVES: tuple[torch.dtype, ...] = tuple(getattr(torch, name) for name in sorted(HALF))
NARROW_FLOATS = frozenset(getattr(torch, name) for name in NARROW if hasattr(torch, name))
_NAMES: dict[torch.dtype, str] = {}


def packets(*tags: str) -> frozenset[Any]:
    """torch's operators that have one of some tags, in-place ones among them."""
    spelled = (f"{name}{end}" for name in names(*tags) for end in ("", "_"))
    return frozenset(getattr(torch.ops.aten, name) for name in spelled if hasattr(torch.ops.aten, name))


def dtype_name(dtype: torch.dtype) -> str:
    """A dtype's name without ``torch.``."""
    return _NAMES.get(dtype) or _NAMES.setdefault(dtype, str(dtype).removeprefix("torch."))


def asked_dtype(given: torch.dtype | str | None) -> torch.dtype | None:
    """The dtype that a user says autocast computes in: a torch.dtype or a name such as ``"bf16"``. Raises
    UnknownDtypeError for any other."""
    return None if given is None else getattr(torch, parse(given, REAL, "dtype that autocast computes in"))


def op_name(function: Any) -> str:
    """The name that users know a torch function by: ``linear``, ``matmul``, ``setitem``, ``dtype``.

    >>> op_name(torch.Tensor.__matmul__)
    'matmul'
    """
    if type(function) is private.OpOverload:
        name: str = function.overloadpacket.__name__
    else:
        name = getattr(function, "__name__", None) or str(function)
        if name in ("__get__", "__set__", "__delete__"):
            return getattr(getattr(function, "__self__", None), "__name__", name)
        packet = getattr(function, "overloadpacket", None)
        if packet is not None:
            name = packet.__name__
    return name[2:-2] if name.startswith("__") and name.endswith("__") else name


def version_of(tensor: Tensor) -> int:
    """How often a tensor was written to, as far as torch counts that."""
    return -1 if tensor.is_inference() else tensor._version


def readable(tensor: Tensor) -> bool:
    """Whether a tensor's numbers lie in memory of its own: not for sparse, nested and meta tensors, for the zeros that
    forward-mode differentiation makes without memory (reading them ends the process), nor for what vmap and grad
    wrap."""
    return (
        tensor.layout is torch.strided
        and not tensor.is_nested
        and not tensor.is_meta
        and not tensor._is_zerotensor()
        and not private.of_functorch(tensor)
    )


def tensors_in(args: Iterable[Any], kwargs: dict[str, Any] | None = None) -> list[Tensor]:
    """The tensors among a call's arguments, and in the lists and tuples among them."""
    found: list[Tensor] = []
    for a in (*args, *kwargs.values()) if kwargs else args:
        kind = type(a)
        if kind is Tensor:
            found.append(a)
        elif kind in _HOLDS_NONE:
            continue
        elif isinstance(a, Tensor):
            found.append(a)
        elif isinstance(a, (list, tuple)) and not (a and kind is list and type(a[0]) in _NUMBERS):  # no shape, no mask
            for b in a:
                if isinstance(b, Tensor):
                    found.append(b)
    return found


def decider(tensors: Sequence[Tensor], agrees: bool = False) -> int:
    """Which of several tensors of one dtype decides the dtype of a result: the first that has dimensions, as a tensor
    without any widens no other of its kind; where none has, the first.

    ``agrees``: whether the operator refuses operands that differ. Then its weights decide: only what has their dtype
    can be computed with them.
    """
    if len(tensors) == 1:
        return 0
    if agrees:
        weights = (
            n for n, t in enumerate(tensors) if isinstance(t if t._base is None else t._base, torch.nn.Parameter)
        )
        if (weight := next(weights, None)) is not None:
            return weight
    return next((n for n, t in enumerate(tensors) if t.dim()), 0)


def tensors_returned(result: Any, depth: int = 3) -> Iterator[Tensor]:
    """The tensors that a module's forward returned: also those in dictionaries and dataclasses, and in what these
    hold. A container's own methods are not called: they are the program's."""
    if isinstance(result, Tensor):
        yield result
    elif depth and type(result) not in _HOLDS_NONE:
        if isinstance(result, dict):
            inside: Iterable[Any] = dict.values(result)
        elif isinstance(result, (list, tuple)):
            inside = result
        else:
            inside = vars(result).values() if is_dataclass(result) and hasattr(result, "__dict__") else ()
        for one in islice(inside, _MOST_RETURNED):
            yield from tensors_returned(one, depth - 1)


def given_numbers(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    """The numbers of Python's or NumPy's from which a call makes a tensor; None if it makes it from something else."""
    if func not in FROM_NUMBERS:
        return None
    named = kwargs.get("data") if kwargs else None
    data = args[1] if func is Tensor.new_tensor and len(args) > 1 else args[0] if args else named
    return data if are_numbers(data) else None


def are_numbers(data: Any) -> bool:
    """Whether a value is a number, nested lists of numbers, or NumPy's."""
    return isinstance(data, _GIVEN) and not _holds_tensors(data) or type(data).__module__ == "numpy"


def _holds_tensors(data: Any) -> bool:
    """Whether nested lists hold anything other than numbers."""
    if isinstance(data, (list, tuple)):
        return any(_holds_tensors(v) for v in data)
    return not isinstance(data, (bool, int, float, complex))


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """A tensor's shape; -1 for a symbolic size, nothing for a nested tensor."""
    try:
        return tuple([n if type(n) is int else -1 for n in tensor.shape])
    except RuntimeError:
        return ()


def named_dtype(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> torch.dtype | None:
    """The dtype that a call names among its arguments."""
    if kwargs:
        dtype = kwargs.get("dtype")
        if isinstance(dtype, torch.dtype):
            return dtype
    return next((a for a in args if isinstance(a, torch.dtype)), None)


def named_tensor(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Tensor | None:
    """The tensor whose dtype a cast takes: ``x.to(y)``, ``x.type_as(y)``."""
    if len(args) == 2 and isinstance(args[1], Tensor):
        return args[1]
    other = kwargs.get("other") if kwargs else None
    return other if isinstance(other, Tensor) else None


def autocast_dtype(tensor: Tensor) -> torch.dtype | None:
    """The dtype that autocast computes in on the tensor's device, None where it is off."""
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if device != "meta" and torch.is_autocast_enabled(device) else None


def autocast_of(tensors: Iterable[Tensor], on: bool = False) -> str:
    """``"cpu:bfloat16"`` where autocast is on for the tensors' device; ``on`` where the caller knows that it is."""
    for t in tensors:
        device = t.device.type
        dtype = torch.get_autocast_dtype(device) if on and device != "meta" else autocast_dtype(t)
        if dtype is not None:
            return f"{device}:{dtype_name(dtype)}"
    return ""
