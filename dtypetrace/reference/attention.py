"""Attention by its definition, in any dtype: what a device's fused kernels compute, which take 16 bits only.

Called in another dtype, some of them do not refuse: cuDNN's reads the memory of float32 as if it were float16.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

Tensor = torch.Tensor
_aten = torch.ops.aten
_MOST_SCORES = 1 << 27
"""Scores of one call: half a GiB in float32, of which some copies live at a time."""
_FUSED = tuple(f"_scaled_dot_product_{name}" for name in ("flash", "efficient", "cudnn", "fused"))


def is_fused(name: str) -> bool:
    """Whether an operator is a device's fused attention, forward or backward."""
    return name.startswith(_FUSED) and "_for_cpu" not in name


def computed(given: Mapping[str, Any]) -> tuple[Tensor, ...]:
    """The result, or where ``given`` has ``grad_out`` the gradients of query, key and value.

    given: the arguments of one of torch's operators by their names, all tensors of one dtype: ``query`` (..., heads,
    queries, width), ``key`` and ``value`` with as many heads or a divisor of it. Raises RuntimeError where the scores
    would need too much memory.
    """
    query, key, value = given["query"], given["key"], given["value"]
    groups = query.size(-3) // key.size(-3)
    keys, values = (t.repeat_interleave(groups, -3) if groups > 1 else t for t in (key, value))
    if query.numel() // query.size(-1) * key.size(-2) > _MOST_SCORES:
        raise RuntimeError("its scores would need too much memory")
    scale = given.get("scale")
    scale = query.size(-1) ** -0.5 if scale is None else scale

    scores = query @ keys.mT * scale
    bias = given.get("attn_bias")
    if bias is not None and bias.numel():  # backward gets an empty one for none
        scores = scores + bias
    if given.get("is_causal"):
        scores = scores.masked_fill(torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1), float("-inf"))
    shares = _aten._safe_softmax(scores, -1)

    gradient = given.get("grad_out", given.get("grad_out_"))
    if gradient is None:
        return (shares @ values,)
    inner = gradient @ values.mT
    inner = shares * (inner - (inner * shares).sum(-1, keepdim=True))
    found = inner @ keys * scale, inner.mT @ query * scale, shares.mT @ gradient
    return found[0], *(t.unflatten(-3, (-1, groups)).sum(-3) for t in found[1:])
