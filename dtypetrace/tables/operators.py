"""What each operator does: the tags of its name in ``operators.txt``, its recorded schema, and its cost.

An operator's name is the aten name without overload (``add`` for ``add_.Tensor``); a *call* is the name of the function
that the program called (``__iadd__`` is ``iadd``). What torch's schema says (views, writes) is recorded with the op
when it first runs. Names decide only where nothing was recorded, or where no schema could say. Standard library only.
"""

from __future__ import annotations

from math import prod
from pathlib import Path

from ..records import Op
from .dtypes import bytes_of

# ---------------------------------------------------------------- casts

CAST_METHODS = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "bfloat16": "bfloat16",
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "char": "int8",
    "byte": "uint8",
    "bool": "bool",
    "cfloat": "complex64",
    "cdouble": "complex128",
    "chalf": "complex32",
}
"""Methods of tensors and modules that cast to the dtype in their name."""


def _read() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for line in Path(__file__).with_name("operators.txt").read_text("utf-8").splitlines():
        name, *tags = line.split() if not line.startswith("#") else [""]
        for tag in tags:
            found.setdefault(tag, set()).add(name)
    return {tag: frozenset(names) for tag, names in found.items()}


_TAGS = _read()


def names(*tags: str) -> frozenset[str]:
    """The operators and calls that have one of some tags."""
    return frozenset[str]().union(*(_TAGS[tag] for tag in tags))


def tagged(op: Op | str, *tags: str) -> bool:
    """Whether an op's operator, or that or a call by its name, has one of some tags.

    ``operators.txt`` says what each tag means.

    >>> tagged("gather", "picks"), tagged("gather", "places", "pole")
    (True, False)
    """
    name = plain(base(op)) if isinstance(op, str) else name_of(op)
    return any(name in _TAGS[tag] for tag in tags)


NAMED_CASTS = names("named_cast") | CAST_METHODS.keys()
"""The calls by which a program casts; a cast inside any other call is autocast's or torch's own."""
JUMPS = "equal", "compare", "whole", "step", "order"
"""Tags of what jumps where an operand crosses a bound, or another of its numbers."""
SCALER_CHECKS = "_amp_foreach_non_finite_check_and_unscale_"
"""The operator with which a loss scaler checks gradients and divides them."""

# ---------------------------------------------------------------- writes

_DESTINATION_ARGUMENTS = frozenset(
    "out output output_tensor output_tensor_list output_tensor_lists tensor_list gather_list".split()
)


def is_destination(call: str, argument: str, index: int) -> bool:
    """Whether an argument of a call is written into: ``out=``, a collective's output, the first of ``index_add_``,
    ``x[i] = y`` and ``x += y``."""
    in_place = tagged(call, "writing_call") or call.endswith("_") and not call.endswith("__")
    return argument.split("[")[0] in _DESTINATION_ARGUMENTS or in_place and index == 0


# ---------------------------------------------------------------- composites

ABOVE_DISPATCHER = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), "convolution"),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), "convolution"),
    "scaled_dot_product_attention": "_scaled_dot_product",
    "prelu": "_prelu_kernel",
}
"""Functions that check dtypes before an operator runs, with the beginning of that operator's name. The operator takes
the same tensors in the same order."""
REFUSED_IN_PYTHON = {"unscale_": frozenset({"float16"})}
"""Methods of torch that are written in Python, and the dtypes that they refuse before any operator runs: a loss scaler
refuses float16 gradients."""


def base(op: str) -> str:
    """The name of an operator of a compiled graph without its library and overload.

    >>> base("aten.mul.Tensor"), base("prims.convert_element_type.default"), base("getitem")
    ('mul', 'convert_element_type', 'getitem')
    """
    parts = op.split(".")
    return parts[1] if len(parts) > 2 else parts[0]


# ---------------------------------------------------------------- of a recorded op

COMPILED = "torch.compile"
"""Stands where an op has its operator: the op is a call of a compiled function, whose operators are not recorded."""


def name_of(op: Op) -> str:
    """The operator without its overload and without the underscore of an in-place one: ``add_.Tensor`` is ``add``."""
    return plain(op.aten.partition(".")[0])


def plain(name: str) -> str:
    """A name without the underscore of an in-place operator: ``add_`` is ``add``, ``__and__`` stays."""
    return name.rstrip("_") if not name.endswith("__") else name


def is_cast(op: Op) -> bool:
    return tagged(op, "cast")


def is_move(op: Op) -> bool:
    """Whether an op passes its operand's numbers on unchanged, in the same dtype."""
    if op.effect == "view":
        return not op.inputs or not op.outputs or op.inputs[0].dtype == op.outputs[0]
    return tagged(op, "view", "copy")


def destination(op: Op) -> int:
    """Index of the first operand that the operator writes its result into, -1 for none: the first of ``add_``, the
    last of ``add.out``."""
    if op.effect:
        return op.written[0] if op.effect == "write" and op.written else -1
    name, _, overload = op.aten.partition(".")
    if name.endswith("_") and not name.endswith("__"):
        return 0 if op.inputs else -1
    return len(op.inputs) - 1 if overload == "out" or overload.endswith("_out") else -1


def writes(op: Op) -> bool:
    return destination(op) >= 0


# ---------------------------------------------------------------- cost


def result_bytes(op: Op) -> int:
    """Bytes of the first tensor that one call returns."""
    return prod(op.shape) * bytes_of(op.outputs[0]) if op.outputs else 0


def flops(op: Op) -> int:
    """Floating point operations of one call of a matmul, a convolution or an attention; 0 for every other op.

    From the shapes of its first call: where they vary between calls, its cost is that of the first.

    >>> from dtypetrace.records import Input
    >>> operands = Input("float32", shape=(2, 3)), Input("float32", shape=(3, 4))
    >>> flops(Op("matmul", "mm.default", "forward", "", -1, operands, ("float32",), 1, shape=(2, 4)))
    48
    """
    name, shapes = name_of(op), [i.shape for i in op.inputs]
    if tagged(name, "matmul") and len(shapes) > 1 and shapes[0]:
        return 2 * prod(op.shape) * shapes[0][-1]
    if tagged(name, "addmm") and len(shapes) > 2 and shapes[1]:
        return 2 * prod(op.shape) * shapes[1][-1]
    if "conv" in name:
        return _of_convolution(op, name, shapes)
    return _of_attention(name, shapes) if "attention" in name and len(shapes) > 2 else 0


def _of_convolution(op: Op, name: str, shapes: list[tuple[int, ...]]) -> int:
    backward = name == "convolution_backward"
    given, weight = (shapes[0], shapes[2:3]) if backward else (op.shape, shapes[1:2])
    if not weight or not weight[0]:
        return 0
    at = shapes[0] if "transpose" in op.op or "transpose" in name else given
    return (4 if backward else 2) * prod(at) * prod(weight[0]) // max(weight[0][0], 1)


def _of_attention(name: str, shapes: list[tuple[int, ...]]) -> int:
    backward = "backward" in name
    query, key, value = shapes[1:4] if backward else shapes[:3]
    if min(map(len, (query, key, value))) < 2:
        return 0
    once = 2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
    return once * 5 // 2 if backward else once
