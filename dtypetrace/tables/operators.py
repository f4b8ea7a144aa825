"""What each operator does, from its name or its recorded schema: moves, casts, factories, writes, and its cost.

An operator's name is the aten name without overload (``add`` for ``add_.Tensor``); a *call* is the name of the function
that the program called (``__iadd__`` is ``iadd``). What torch's schema says (views, writes) is recorded with the op
when it first runs. Names decide only where nothing was recorded, or where no schema could say. Standard library only.
"""

from __future__ import annotations

from math import prod

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
NAMED_CASTS = frozenset({*CAST_METHODS, "to", "type", "type_as", "_to_copy", "_cast_Float"})
"""The calls by which a program casts; a cast inside any other call is autocast's or torch's own."""
CASTS = frozenset({"_to_copy", "to", "type_as", "_autocast_to_reduced_precision", "_autocast_to_full_precision"})
"""Operators that cast. In inference mode, composites are not decomposed: ``to`` and not ``_to_copy``."""

# ---------------------------------------------------------------- moves

_VIEWS = (
    "T adjoint alias as_strided chunk detach diagonal expand expand_as flatten hsplit lift_fresh mH mT movedim "
    "moveaxis narrow "
    "numpy_T permute ravel reshape reshape_as select slice split split_with_sizes squeeze swapaxes swapdims t "
    "tensor_split "
    "transpose unbind unflatten unfold unsqueeze view view_as vsplit _reshape_alias _unsafe_view"
)
_COPIES = (
    "_pin_memory cat clone column_stack concat concatenate constant_pad_nd contiguous copy diag dstack flip gather "
    "getitem "
    "hstack index index_select pad pin_memory repeat repeat_interleave roll stack take_along_dim tril triu "
    "unsafe_chunk unsafe_split vstack"
)
MOVES = frozenset((*_VIEWS.split(), *_COPIES.split()))
"""Operators and calls that pass numbers on unchanged: views, and copies in another order or with zeros between."""

# ---------------------------------------------------------------- factories

LIKES = frozenset(
    "ones_like zeros_like full_like empty_like rand_like randn_like randint_like new_ones new_zeros new_full new_empty "
    "new_tensor new_empty_strided".split()
)
"""Factories that take their dtype from a tensor."""
SCALER_CHECKS = "_amp_foreach_non_finite_check_and_unscale_"
"""The operator with which a loss scaler checks gradients and divides them."""
SEQUENCES = frozenset({"arange", "linspace", "range"})
"""Factories whose neighbouring numbers differ by a constant."""
RANDOM = frozenset({"normal", "rand", "rand_like", "randn", "randn_like"})
"""Factories that draw floating numbers: another dtype draws other numbers."""
CONVERSIONS = frozenset({"tensor", "as_tensor", "from_numpy", "frombuffer", "asarray", "from_dlpack", "from_file"})
"""Calls that make a tensor from something else: lists, numbers, numpy's arrays."""
TAKES_DTYPE = (
    (LIKES - {"new_empty_strided"})
    | (SEQUENCES - {"range"})
    | {"tensor", "as_tensor", "asarray", "frombuffer", "rand", "randn"}
    | frozenset(
        "bartlett_window blackman_window empty empty_strided eye full hamming_window hann_window kaiser_window "
        "logspace "
        "ones randint randperm tril_indices triu_indices zeros".split()
    )
)
"""Calls that make a tensor and take ``dtype=``; the result of other calls has to be cast."""

FUSED_PATHS = frozenset({"_transformer_encoder_layer_fwd", "_native_multi_head_attention"})
"""torch's fused paths of attention modules in evaluation: each is one call."""
FIXED_RESULTS = frozenset(
    "argmax argmin argsort argwhere bincount bucketize count_nonzero isin multinomial nonzero one_hot "
    "searchsorted".split()
)
"""Calls whose result always has one integer or boolean dtype, for any operands: a birth of its own."""
FIXED_INDICES = frozenset("cummax cummin kthvalue max median min mode sort topk unique unique_consecutive".split())
"""Calls that give such numbers behind their values."""

# ---------------------------------------------------------------- writes

STORES = frozenset(
    "copy index_put _index_put_impl scatter index_copy masked_scatter slice_scatter fill masked_fill".split()
)
"""Writes that replace the old values; every other write adds to them or changes them."""

PICKS = frozenset({"index", "gather", "embedding", "index_select", "take"})
"""What reads numbers of a tensor by their indices."""
INDEXED = PICKS | frozenset(
    "index_put _index_put_impl index_copy index_add scatter scatter_add scatter_reduce segment_reduce".split()
)
"""The same, and what writes by them."""
_WRITING_CALLS = frozenset(
    "setitem iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift".split()
)
_DESTINATION_ARGUMENTS = frozenset(
    "out output output_tensor output_tensor_list output_tensor_lists tensor_list gather_list".split()
)


def is_destination(call: str, argument: str, index: int) -> bool:
    """Whether an argument of a call is written into: ``out=``, a collective's output, the first of ``index_add_``,
    ``x[i] = y`` and ``x += y``."""
    in_place = call in _WRITING_CALLS or call.endswith("_") and not call.endswith("__")
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


# ---------------------------------------------------------------- of a recorded op

COMPILED = "torch.compile"
"""Stands where an op has its operator: the op is a call of a compiled function, whose operators are not recorded."""


def name_of(op: Op) -> str:
    """The operator without its overload and without the underscore of an in-place one: ``add_.Tensor`` is ``add``."""
    name = op.aten.partition(".")[0]
    return name.rstrip("_") if not name.endswith("__") else name


def is_cast(op: Op) -> bool:
    return name_of(op) in CASTS


def is_move(op: Op) -> bool:
    """Whether an op passes its operand's numbers on unchanged, in the same dtype."""
    if op.effect == "view":
        return not op.inputs or not op.outputs or op.inputs[0].dtype == op.outputs[0]
    return name_of(op) in MOVES


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

_PRODUCTS = frozenset(["mm", "bmm", "matmul", "linear", "mv", "dot", "_scaled_mm", "_int_mm"])
_ADDED = frozenset(["addmm", "baddbmm", "addbmm", "addmv"])
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "convolution", "conv_transpose", "_conv", "thnn_conv", "mkldnn_conv")


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
    if name in _PRODUCTS and len(shapes) > 1 and shapes[0]:
        return 2 * prod(op.shape) * shapes[0][-1]
    if name in _ADDED and len(shapes) > 2 and shapes[1]:
        return 2 * prod(op.shape) * shapes[1][-1]
    if name.startswith(_CONVOLUTIONS):
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
