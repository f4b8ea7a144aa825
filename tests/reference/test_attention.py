"""The definition of attention computes what torch's kernels do; that a device's are compared with it: tests/test_gpu.py."""

from __future__ import annotations

import pytest
import torch

from dtypetrace.reference.attention import computed, is_fused


@pytest.mark.parametrize(
    "heads, causal, bias, scale", [(4, False, False, None), (4, True, False, 0.3), (2, False, True, None)]
)
def test_forward_and_backward_are_those_of_torch(heads, causal, bias, scale):
    make = lambda heads, length: torch.randn(2, heads, length, 8, dtype=torch.float64, requires_grad=True)
    query, key, value = make(4, 5), make(heads, 5 if causal else 7), make(heads, 5 if causal else 7)
    added = torch.randn(5, 7, dtype=torch.float64) if bias else None
    made = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, added, is_causal=causal, scale=scale, enable_gqa=heads != 4
    )
    gradient = torch.randn_like(made)
    expected = torch.autograd.grad(made, (query, key, value), gradient)

    given = {"query": query, "key": key, "value": value, "is_causal": causal, "scale": scale, "attn_bias": added}
    with torch.no_grad():
        (forward,), backward = computed(given), computed(given | {"grad_out": gradient})
    for found, own in zip((forward, *backward), (made, *expected), strict=True):
        torch.testing.assert_close(found, own)


def test_a_row_without_keys_is_zero_and_too_many_scores_are_refused():
    one = torch.ones(1, 1, 2, 4)
    bias = torch.tensor([[0.0, 0.0], [float("-inf")] * 2])
    (made,) = computed({"query": one, "key": one, "value": one, "attn_bias": bias})
    assert made[0, 0].tolist() == [[1.0] * 4, [0.0] * 4]
    long = torch.ones(1).expand(1, 1, 1 << 14, 4)
    with pytest.raises(RuntimeError, match="too much memory"):
        computed({"query": long, "key": long, "value": long})


def test_all_of_torchs_fused_ones_are_known():
    named = {
        n for n in dir(torch.ops.aten) if n.startswith("_scaled_dot_product_") and "math" not in n and "cpu" not in n
    }
    assert {n for n in named if not is_fused(n)} == set()
