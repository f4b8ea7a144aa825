"""What an op costs, from the shapes of its first call: bytes of its results, and floating point operations where it
multiplies matrices. Standard library only.

A distinct op is recorded with its first call's shapes; where shapes vary between its calls, its cost is that of the first.
"""

from __future__ import annotations

from math import prod

from ..records import Op

BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "complex128": 16, "complex64": 8, "complex32": 4,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
_PRODUCTS = frozenset(["mm", "bmm", "matmul", "linear", "mv", "dot", "_scaled_mm", "_int_mm"])
_ADDED = frozenset(["addmm", "baddbmm", "addbmm", "addmv"])


def name_of(op: Op) -> str:
    """The operator without its overload and without the mark of an in-place one: ``add_.Tensor`` is ``add``."""
    name = op.aten.partition(".")[0]
    return name.rstrip("_") if not name.endswith("__") else name


def destination(op: Op) -> int:
    """Index of the operand that the operator writes into, -1 for none: the first of ``add_``, the last of ``add.out``."""
    name, _, overload = op.aten.partition(".")
    if name.endswith("_") and not name.endswith("__"):
        return 0 if op.inputs else -1
    return len(op.inputs) - 1 if overload == "out" or overload.endswith("_out") else -1


def writes(op: Op) -> bool:
    return destination(op) >= 0


def result_bytes(op: Op) -> int:
    """Bytes of the first tensor that one call gives."""
    return prod(op.shape) * BYTES.get(op.outputs[0], 1) if op.outputs else 0


def flops(op: Op) -> int:
    """Floating point operations of one call of a matmul, a convolution or an attention; 0 for every other op.

    >>> from dtypetrace.records import Input
    >>> operands = Input("float32", shape=(2, 3)), Input("float32", shape=(3, 4))
    >>> flops(Op("matmul", "mm.default", "forward", "", -1, operands, ("float32",), 1, shape=(2, 4)))
    48
    """
    name, shapes = name_of(op), [i.shape for i in op.inputs]
    if name in _PRODUCTS and len(shapes) > 1 and shapes[0]:
        return 2 * prod(op.shape) * shapes[0][-1]
    if name in _ADDED and len(shapes) > 2 and shapes[1]:
        return 2 * prod(op.shape) * shapes[1][-1]
    if name.startswith(
        ("conv1d", "conv2d", "conv3d", "convolution", "conv_transpose", "_conv", "thnn_conv", "mkldnn_conv")
    ):
        backward = name == "convolution_backward"
        given, weight = (shapes[0], shapes[2:3]) if backward else (op.shape, shapes[1:2])
        if not weight or not weight[0]:
            return 0
        at = shapes[0] if "transpose" in op.op or "transpose" in name else given
        return (4 if backward else 2) * prod(at) * prod(weight[0]) // max(weight[0][0], 1)
    if "attention" in name and len(shapes) > 2:
        backward = "backward" in name
        query, key, value = shapes[1:4] if backward else shapes[:3]
        if min(map(len, (query, key, value))) < 2:
            return 0
        once = 2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
        return once * 5 // 2 if backward else once
    return 0
