"""What operators of compiled graphs do with the rounding of their operands.

Names are those of ``aten`` and ``prims`` without overload.
"""

from __future__ import annotations

HALF = frozenset({"float16", "bfloat16"})
"""Kernels compute these in float32 and round where they write to memory; eager rounds after each operator."""

_VIEWS = (
    "alias as_strided detach diagonal expand lift_fresh permute reshape select slice squeeze t transpose unfold "
    "unsqueeze view _unsafe_view _reshape_alias split split_with_sizes unbind getitem chunk broadcast_in_dim "
    "squeeze_copy view_of"
)
VIEWS = frozenset(_VIEWS.split())
"""No number is computed or moved. ``getitem`` takes one of several results."""

_SELECTIONS = (
    "amax amin max min maximum minimum fmax fmin topk sort kthvalue median mode cummax cummin gather index "
    "index_select take take_along_dim embedding where masked_fill clone copy copy_ cat stack constant_pad_nd relu "
    "clamp clamp_min clamp_max hardtanh neg abs flip roll repeat slice_scatter select_scatter scatter index_put "
    "max_pool2d_with_indices _low_memory_max_pool_with_offsets unfold_copy"
)
EXACT = VIEWS | frozenset(_SELECTIONS.split())
"""Each number of the result is a number of an operand, perhaps with another sign, or a bound that was given: nothing
is rounded."""

COMPARISONS = frozenset("eq ne lt le gt ge".split())
ROUNDINGS = frozenset("floor ceil round trunc fix frac sign sgn".split())
"""Steps: they jump where their operand crosses a bound."""
CHOICES = frozenset("argmax argmin topk sort kthvalue median mode bucketize searchsorted multinomial histc".split())
"""Their results depend on the order of the operand's numbers, and on which of them are equal."""
JUMPS = COMPARISONS | ROUNDINGS | CHOICES
CASTS = frozenset({"convert_element_type", "_to_copy", "to"})
SUMS = frozenset({"add", "sub", "rsub"})
FACTORIES = frozenset(
    "full full_like ones zeros ones_like zeros_like empty iota arange scalar_tensor rand randn rand_like randn_like "
    "inductor_random inductor_seeds inductor_lookup_seed empty_strided new_full new_zeros new_ones eye linspace".split()
)


def base(op: str) -> str:
    """An operator's name without its library and overload.

    >>> base("aten.mul.Tensor"), base("prims.convert_element_type.default"), base("getitem")
    ('mul', 'convert_element_type', 'getitem')
    """
    parts = op.split(".")
    return parts[1] if len(parts) > 2 else parts[0]
