"""What autocast does to each operator's operands, by device.

Facts of torch 2.13: ``ATen/autocast_mode.h`` for CUDA, ``ATen/autocast_mode.cpp`` for the CPU.
``tests/tables/test_autocast.py`` compares them with torch's registrations and with what autocast really does. Standard
library only.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Literal

from .dtypes import DTYPES, HALF, REAL

Policy = Literal["lower", "float32", "promote", ""]
"""``lower``: operands are cast to the region's dtype; ``float32``: half operands are cast to float32; ``promote``:
operands are cast to the widest of their dtypes."""

_LOWER = {
    "cpu": "_addmm_activation _convolution _native_multi_head_attention addbmm addmm baddbmm bmm conv1d conv2d "
    "conv3d conv_tbc "
    "conv_transpose1d conv_transpose2d conv_transpose3d linalg_vecdot linear matmul mkldnn_rnn_layer mm prelu "
    "scaled_dot_product_attention",
    "cuda": "_convolution _scaled_dot_product_flash_attention _thnn_fused_gru_cell _thnn_fused_lstm_cell addbmm "
    "addmm addmv addr "
    "baddbmm bmm chain_matmul conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d "
    "convolution "
    "cudnn_convolution cudnn_convolution_transpose einsum gru_cell linalg_multi_dot linalg_vecdot linear lstm_cell "
    "matmul mm mv "
    "prelu rnn_relu_cell rnn_tanh_cell scaled_dot_product_attention",
}
_FLOAT32 = {
    "cpu": "_grid_sampler_2d_cpu_fallback _lu_with_info adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d "
    "binary_cross_entropy "
    "binary_cross_entropy_with_logits cdist cholesky cholesky_inverse cholesky_solve cosine_embedding_loss "
    "cross_entropy_loss "
    "ctc_loss fake_quantize_per_tensor_affine fft_fft fft_fft2 fft_fftn fft_hfft fft_ifft fft_ifft2 fft_ifftn "
    "fft_ihfft fft_irfft "
    "fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn fractional_max_pool2d fractional_max_pool3d geqrf grid_sampler "
    "grid_sampler_2d grid_sampler_3d hinge_embedding_loss huber_loss inverse kl_div l1_loss linalg_cholesky "
    "linalg_cholesky_ex linalg_cond linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh "
    "linalg_householder_product linalg_inv "
    "linalg_inv_ex linalg_lstsq linalg_matrix_rank linalg_qr linalg_solve linalg_svd linalg_svdvals linalg_tensorinv "
    "linalg_tensorsolve lu_solve margin_ranking_loss max_pool3d max_unpool2d max_unpool3d mse_loss multi_margin_loss "
    "multilabel_margin_loss multilabel_margin_loss_forward nanquantile nll_loss nll_loss2d orgqr ormqr pinverse "
    "poisson_nll_loss polar prod qr quantile reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d "
    "replication_pad3d smooth_l1_loss soft_margin_loss stft svd trace triangular_solve triplet_margin_loss "
    "view_as_complex",
    "cuda": "_upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d "
    "_upsample_nearest_exact3d acos asin binary_cross_entropy_with_logits cdist cosh cosine_embedding_loss "
    "cosine_similarity "
    "cumprod cumsum dist erfinv exp expm1 frobenius_norm group_norm hinge_embedding_loss huber_loss kl_div l1_loss "
    "layer_norm "
    "linalg_matrix_norm linalg_vector_norm log log10 log1p log2 log_softmax logsumexp margin_ranking_loss mse_loss "
    "multi_margin_loss multilabel_margin_loss native_layer_norm nll_loss nll_loss2d norm nuclear_norm pdist "
    "poisson_nll_loss pow "
    "prod reciprocal renorm rms_norm rsqrt sinh smooth_l1_loss soft_margin_loss softmax softplus sum tan "
    "triplet_margin_loss "
    "upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d "
    "upsample_trilinear3d",
}
_PROMOTE = {
    "cpu": "cat index_copy stack",
    "cuda": "addcdiv addcmul atan2 bilinear cross dot grid_sampler index_put scatter_add tensordot vdot",
}
BANNED = {"cpu": frozenset[str](), "cuda": frozenset({"binary_cross_entropy"})}
"""Operators that autocast refuses."""
_OTHER_NAMES = {"cross_entropy": "cross_entropy_loss"}
"""Functions of torch.nn.functional whose operator has a different name."""


@cache
def _policies(device: str) -> dict[str, Policy]:
    named: dict[str, Policy] = {}
    listed: tuple[tuple[Policy, dict[str, str]], ...] = (
        ("lower", _LOWER),
        ("float32", _FLOAT32),
        ("promote", _PROMOTE),
    )
    for policy, by_device in listed:
        named |= dict.fromkeys(by_device["cpu" if device.partition(":")[0] == "cpu" else "cuda"].split(), policy)
    return named


def names(device: str) -> frozenset[str]:
    """Every operator for which autocast has a rule."""
    return frozenset(_policies(device))


def policy(function: str, operator: str, device: str) -> Policy:
    """What autocast does to the operands of an operator that runs inside a call of a function; both are given by name,
    without overload.

    >>> policy("linear", "addmm", "cpu"), policy("softmax", "_softmax", "cuda"), policy("add", "add", "cpu")
    ('lower', 'float32', '')
    """
    known = _policies(device)
    inner = operator.lstrip("_").removesuffix("_forward")
    for name in (function, _OTHER_NAMES.get(function, ""), operator, inner):
        if name in known:
            return known[name]
    return ""


def cast(policy: Policy, dtypes: Iterable[str], region: str) -> tuple[str, ...]:
    """The dtypes of operands after autocast: float64 and dtypes that are not floating stay as they are.

    >>> cast("lower", ("float32", "int64", "float64"), "bfloat16")
    ('bfloat16', 'int64', 'float64')
    """
    given = tuple(dtypes)
    movable = [d for d in given if d in REAL and d != "float64"]
    if not policy or not movable:
        return given
    to = region
    if policy == "float32":
        to = "float32"
    elif policy == "promote":
        widest = max(movable, key=lambda d: DTYPES[d].bits)
        to = "float32" if len(set(movable) & HALF) > 1 else widest
    return tuple(to if d in movable else d for d in given)
