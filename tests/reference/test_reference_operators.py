"""Every operator's reference equals the same program in higher precision from the start, forward and backward, in place and out=.

Beside it, the program's own values are those that it has under an empty dispatch mode.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
from databases import operators
from test_follow import Follow, same
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from dtypetrace.reference.shadows import WIDE, floating

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SAMPLES = 4
PARTS = 16
RANDOM = "draws random numbers: the reference takes the program's"
UNWRITTEN = "its memory is not written yet"
EXCEPTIONS = {
    **dict.fromkeys(
        ("bernoulli", "normal", "normal_in_place", "normal_number_mean", "rand_like", "randn", "randn_like", "uniform", "exponential", "log_normal",
         "geometric", "cauchy", "multinomial", "nn_functional_dropout", "nn_functional_dropout2d", "nn_functional_dropout3d",
         "nn_functional_alpha_dropout", "nn_functional_feature_alpha_dropout_with_train", "nn_functional_rrelu",
         "nn_functional_fractional_max_pool2d", "nn_functional_fractional_max_pool3d", "svd_lowrank", "pca_lowrank"), RANDOM),
    **dict.fromkeys(("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"), UNWRITTEN),
    **dict.fromkeys(("linalg_lstsq", "linalg_lstsq_grad_oriented"),
                    "LAPACK rounds by where its memory lies: two plain runs differ"),
    "native_batch_norm": "its out= variant also changes the running statistics: the reference takes the program's values",
    "_native_batch_norm_legit": "likewise",
    "nn_functional_linear_cross_entropy_chunked": "an operator outside aten, which is not called a second time",
    "nn_functional_linear_cross_entropy_chunked_none": "likewise",
}  # fmt: skip

OF_VECTORS = frozenset({
    "linalg_cond", "linalg_eig", "linalg_eigh", "linalg_eigvals", "linalg_eigvalsh", "linalg_svdvals", "norm_nuc"
})  # fmt: skip
"""Eigenvectors and singular vectors are as right with the other sign, so the program's are the reference: their
gradients, and what is computed from them, are no more exact than those."""


class Empty(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def fresh(sample, wide: torch.dtype | None) -> tuple:
    def copy(value):
        if isinstance(value, torch.dtype):
            return WIDE.get(value, value) if wide else value
        if not isinstance(value, torch.Tensor):
            return value
        new = value.detach().clone()
        if wide and new.dtype.is_floating_point:
            new = new.to(wide)
        elif wide and new.dtype.is_complex:
            new = new.to(torch.complex128 if wide is torch.float64 else torch.complex64)
        return new.requires_grad_(value.requires_grad)

    return tree_map(copy, ((sample.input, *sample.args), sample.kwargs))


def run(op, form: str, sample, mode, wide: torch.dtype | None = None) -> list[torch.Tensor]:
    """The results of one call and the gradients of its operands."""
    args, kwargs = fresh(sample, wide)
    leaves = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.requires_grad]
    torch.manual_seed(0)
    with mode:
        if form == "out":
            with torch.no_grad():
                made = op.op(*args, **kwargs)
                into = tree_map(lambda t: torch.zeros_like(t) if isinstance(t, torch.Tensor) else t, made)
                out = op.op(*args, **kwargs, out=into)
        elif form == "in place":
            out = op.get_inplace()(args[0].clone(), *args[1:], **kwargs)
        else:
            out = op.op(*args, **kwargs)
        results = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        ends = [t for t in results if t.requires_grad and floating(t.dtype)]
        if form != "out" and op.supports_autograd and ends and leaves:
            results += torch.autograd.grad(ends, leaves, [torch.ones_like(t) for t in ends], allow_unused=True)
    return [t for t in results if t is not None]


def calls(op, dtype: torch.dtype) -> Iterator[tuple[str, object]]:
    for number, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=op.supports_autograd)):
        if number == SAMPLES:
            return
        yield "", sample
        if number == 0:
            if op.get_inplace() is not None and not sample.broadcasts_input:
                yield "in place", sample
            if op.supports_out:
                yield "out", sample


def fault(op, form: str, sample, dtype: torch.dtype) -> str:
    """What is wrong with one call, empty for nothing or where torch refuses it anyhow."""
    try:
        plain, true = run(op, form, sample, Empty()), run(op, form, sample, Empty(), WIDE[dtype])
    except Exception:
        return ""
    follow = Follow()
    followed = run(op, form, sample, follow)
    tolerance = 1e-4 if WIDE[dtype] is torch.float32 else 1e-9
    for one, other, wanted in zip(plain, followed, true, strict=True):
        if one.layout is not torch.strided:
            continue
        if not same(one.detach().resolve_conj().resolve_neg(), other.detach().resolve_conj().resolve_neg()):
            return "the program's value changed"
        if floating(one.dtype) and op.formatted_name not in OF_VECTORS:
            reference = follow.engine.shadows.of(other.detach())
            reference = (other.detach() if reference is None else reference).to(wanted.dtype)
            sizes = wanted.detach().abs()
            most = float(sizes[sizes.isfinite()].max()) if sizes.isfinite().any() else 0.0
            if not torch.allclose(
                reference, wanted.detach(), rtol=tolerance, atol=tolerance * max(most, 1.0), equal_nan=True
            ):
                return f"the reference is off by {(reference - wanted.detach()).abs().max().item():.3g}"
    return ""


def check(part: range) -> None:
    faults, checked = [], 0
    for number in part:
        op = operators()[number]
        if op.formatted_name in EXCEPTIONS:
            continue
        for dtype in DTYPES:
            if not op.supports_dtype(dtype, "cpu"):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for form, sample in calls(op, dtype):
                    checked += 1
                    if what := fault(op, form, sample, dtype):
                        faults.append(f"{op.formatted_name} {dtype} {form}: {what}")
    assert checked > 10 and not faults, "\n".join(faults)


def test_a_sample_of_all_operators():
    check(range(7, len(operators()), 80))


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(PARTS))
def test_every_operator(part):
    check(range(part, len(operators()), PARTS))


def test_every_exception_is_an_operator_of_torch():
    assert set(EXCEPTIONS) <= {op.formatted_name for op in operators()}
