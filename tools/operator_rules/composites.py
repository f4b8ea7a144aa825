"""Calls that torch's own samples leave out, or make in another form than programs do: layers as modules call them,
losses with their targets, writes by index, recurrent layers, lists of tensors, optimizers' fused steps."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .samples import Sample

_aten = torch.ops.aten


def _r(*shape: int) -> Tensor:
    return torch.rand(shape) + 0.1


def _i(high: int, *shape: int) -> Tensor:
    return torch.randint(high, shape)


def all_of_them() -> dict[str, list[Sample]]:
    """Samples by the name of what they are about."""
    torch.manual_seed(0)
    parts = (
        _convolutions(),
        _layers(),
        _recurrent(),
        _losses(),
        _writes(),
        _in_place(),
        _lists(),
        _optimizers(),
        _everyday(),
    )
    found: dict[str, list[Sample]] = {}
    for part in parts:
        for name, function, *args in part:
            kwargs = args.pop() if args and isinstance(args[-1], dict) else {}
            found.setdefault(name, []).append(Sample(function, tuple(args), kwargs))
    return found


_Calls = Iterator[tuple[Any, ...]]


def _convolutions() -> _Calls:
    for n in (1, 2, 3):
        convolve, transposed = getattr(F, f"conv{n}d"), getattr(F, f"conv_transpose{n}d")
        size = (5,) * n
        x, w, b = _r(2, 4, *size), _r(6, 4, *(3,) * n), _r(6)
        for bias in (b, None):
            for padding in (0, 1, "same", "valid"):
                yield f"conv{n}d", convolve, x, w, bias, 1, padding, 1, 1
            yield f"conv{n}d", convolve, x, _r(4, 2, *(3,) * n), _r(4) if bias is not None else None, 1, 1, 1, 2
            yield f"conv{n}d", convolve, x[0], w, bias
            yield f"conv_transpose{n}d", transposed, x, _r(4, 6, *(3,) * n), bias, 1, 0, 0, 1, 1
            yield (
                f"conv_transpose{n}d",
                transposed,
                x,
                _r(4, 3, *(3,) * n),
                _r(6) if bias is not None else None,
                1,
                0,
                0,
                2,
                1,
            )
    yield "conv2d", F.conv2d, _r(2, 4, 5, 5), _r(4, 1, 3, 3), _r(4), 1, 1, 1, 4  # depthwise


def _layers() -> _Calls:
    for x in (_r(4), _r(3, 4), _r(2, 3, 4)):
        yield "linear", F.linear, x, _r(5, 4), _r(5)
        yield "linear", F.linear, x, _r(5, 4)
        yield "linear", F.linear, x, _r(5, 4), None
        yield "layer_norm", F.layer_norm, x, (4,), _r(4), _r(4), 1e-5
        yield "layer_norm", F.layer_norm, x, (4,), _r(4), None, 1e-5
        yield "layer_norm", F.layer_norm, x, (4,), None, None, 1e-5
        yield "rms_norm", F.rms_norm, x, (4,), _r(4), 1e-5
        yield "rms_norm", F.rms_norm, x, (4,), None, None
        yield "matmul", torch.matmul, x, _r(4, 4)
        yield "matmul", operator.matmul, x, _r(4)
        yield "prelu", F.prelu, x, _r(1)
    yield "bilinear", F.bilinear, _r(3, 4), _r(3, 5), _r(2, 4, 5), _r(2)
    yield "bilinear", F.bilinear, _r(3, 4), _r(3, 5), _r(2, 4, 5), None
    x = _r(2, 4, 3, 3)
    yield "prelu", F.prelu, x, _r(4)
    for training in (True, False):
        yield "batch_norm", F.batch_norm, x, _r(4), _r(4), _r(4), _r(4), training, 0.1, 1e-5
        yield "batch_norm", F.batch_norm, x, _r(4), _r(4), None, None, training, 0.1, 1e-5
        yield "batch_norm", F.batch_norm, _r(3, 4), _r(4), _r(4), _r(4), _r(4), training, 0.1, 1e-5
    yield "batch_norm", F.batch_norm, x, None, None, _r(4), _r(4), True, 0.1, 1e-5
    yield "instance_norm", F.instance_norm, x, None, None, _r(4), _r(4), True, 0.1, 1e-5
    yield "instance_norm", F.instance_norm, x, _r(4), _r(4), _r(4), _r(4), True, 0.1, 1e-5
    yield "instance_norm", F.instance_norm, x, _r(4), _r(4), _r(4), _r(4), False, 0.1, 1e-5
    yield "group_norm", F.group_norm, x, 2, _r(4), _r(4), 1e-5
    yield "group_norm", F.group_norm, x, 2, None, None, 1e-5
    for shape in ((2, 2, 5, 8), (2, 5, 8)):
        q = _r(*shape)
        for mask in (None, _r(5, 5), _r(*shape[:-2], 5, 5), _i(2, 5, 5).bool()):
            yield (
                "scaled_dot_product_attention",
                F.scaled_dot_product_attention,
                q,
                _r(*shape),
                _r(*shape),
                mask,
                0.0,
                False,
            )
        yield (
            "scaled_dot_product_attention",
            F.scaled_dot_product_attention,
            q,
            _r(*shape),
            _r(*shape),
            {"is_causal": True, "scale": 0.5},
        )
        yield "scaled_dot_product_attention", F.scaled_dot_product_attention, q, _r(*shape), _r(*shape), _r(5, 5), 0.1
    for index in (_i(5, 3), _i(5, 2, 3), _i(5, 3).int()):
        yield "embedding", F.embedding, index, _r(5, 4)
        yield "embedding", F.embedding, index, _r(5, 4), 0, None, 2.0, False, False
    yield "embedding_bag", F.embedding_bag, _i(5, 6), _r(5, 4), torch.tensor([0, 3])
    yield "embedding_bag", F.embedding_bag, _i(5, 2, 3), _r(5, 4), {"per_sample_weights": _r(2, 3), "mode": "sum"}


def _recurrent() -> _Calls:
    x, h, c = _r(3, 2, 4), _r(1, 2, 5), _r(1, 2, 5)
    for name, gates, state in (("lstm", 4, (h, c)), ("gru", 3, h), ("rnn_tanh", 1, h), ("rnn_relu", 1, h)):
        weights = [_r(5 * gates, 4), _r(5 * gates, 5), _r(5 * gates), _r(5 * gates)]
        for w in (weights, weights[:2]):
            yield name, getattr(torch, name), x, state, w, len(w) == 4, 1, 0.0, False, False, False
        cell = getattr(torch, f"{name}_cell")
        one = (h[0], c[0]) if gates == 4 else h[0]
        yield f"{name}_cell", cell, x[0], one, *weights
        yield f"{name}_cell", cell, x[0], one, weights[0], weights[1], None, None


def _losses() -> _Calls:
    logits, labels, same = _r(4, 5), _i(5, 4), _r(4, 5)
    for reduction in ("mean", "none"):
        for weight in (None, _r(5)):
            for smoothing in (0.0, 0.1):
                more = {"reduction": reduction, "label_smoothing": smoothing}
                yield "cross_entropy", F.cross_entropy, logits, labels, weight, more
                yield "cross_entropy", F.cross_entropy, logits, same.softmax(1), weight, more
            yield "nll_loss", F.nll_loss, logits, labels, weight, {"reduction": reduction}
            yield "nll_loss", F.nll_loss, _r(2, 5, 3, 3), _i(5, 2, 3, 3), weight, {"reduction": reduction}
        for loss in (
            F.mse_loss,
            F.l1_loss,
            F.smooth_l1_loss,
            F.huber_loss,
            F.kl_div,
            F.soft_margin_loss,
            F.poisson_nll_loss,
        ):
            yield loss.__name__, loss, logits, same, {"reduction": reduction}
        for weight in (None, _r(5)):
            yield (
                "binary_cross_entropy",
                F.binary_cross_entropy,
                logits.clamp(0.1, 0.9),
                same.clamp(0, 1),
                weight,
                {"reduction": reduction},
            )
            yield (
                "binary_cross_entropy_with_logits",
                F.binary_cross_entropy_with_logits,
                logits,
                same,
                weight,
                {"reduction": reduction},
            )
            more = {"reduction": reduction, "pos_weight": _r(5)}
            yield "binary_cross_entropy_with_logits", F.binary_cross_entropy_with_logits, logits, same, weight, more
        sign = torch.ones(4)
        yield "margin_ranking_loss", F.margin_ranking_loss, _r(4), _r(4), sign, {"reduction": reduction}
        yield "cosine_embedding_loss", F.cosine_embedding_loss, logits, same, sign, {"reduction": reduction}
        yield "hinge_embedding_loss", F.hinge_embedding_loss, _r(4), sign, {"reduction": reduction}
        yield "triplet_margin_loss", F.triplet_margin_loss, logits, same, _r(4, 5), {"reduction": reduction}
        yield "gaussian_nll_loss", F.gaussian_nll_loss, logits, same, _r(4, 5), {"reduction": reduction}
        lengths = torch.tensor([3, 3])
        yield (
            "ctc_loss",
            F.ctc_loss,
            _r(6, 2, 5).log_softmax(2),
            _i(4, 2, 3) + 1,
            torch.tensor([6, 6]),
            lengths,
            {"reduction": reduction},
        )


def _writes() -> _Calls:
    x, rows, mask = _r(4, 3), torch.tensor([0, 2]), torch.tensor([True, False, True, False])
    for index in (0, slice(0, 2), rows, mask, (rows, slice(None))):
        count = 1 if isinstance(index, int) else 2
        yield "setitem", operator.setitem, x, index, _r(3) if count == 1 else _r(2, 3)
        yield "setitem", operator.setitem, x, index, 2.5
        yield "setitem", operator.setitem, x, index, torch.tensor(2.5)
    for name, function in (("index_put", torch.index_put), ("index_put_", Tensor.index_put_)):
        for accumulate in (False, True):
            yield name, function, x, (rows,), _r(2, 3), accumulate
            yield name, function, x, (rows,), torch.tensor(1.0), accumulate
    grid = _i(4, 2, 3)
    for suffix in ("", "_"):
        of = lambda name, suffix=suffix: (name + suffix, getattr(Tensor, name + suffix))
        yield *of("index_add"), x, 0, rows, _r(2, 3)
        yield *of("index_add"), x, 0, rows, _r(2, 3), {"alpha": 2.5}
        yield *of("index_copy"), x, 0, rows, _r(2, 3)
        yield *of("index_fill"), x, 0, rows, 2.5
        yield *of("index_fill"), x, 0, rows, torch.tensor(2.5)
        yield *of("index_reduce"), x, 0, rows, _r(2, 3), "mean"
        yield *of("scatter"), x, 0, grid, _r(2, 3)
        yield *of("scatter"), x, 0, grid, 2.5
        yield *of("scatter_add"), x, 0, grid, _r(2, 3)
        yield *of("scatter_reduce"), x, 0, grid, _r(2, 3), "sum"
        yield *of("scatter_reduce"), x, 0, grid, _r(2, 3), "amax"
        yield *of("masked_fill"), x, mask[:, None], -1e4
        yield *of("masked_fill"), x, mask[:, None], -1e9
        yield *of("masked_fill"), x, mask[:, None], float("-inf")
        yield *of("masked_fill"), x, mask[:, None], torch.tensor(2.5)
        yield *of("masked_scatter"), x, mask[:, None], _r(12)
        yield *of("put"), x, rows, _r(2)
    yield "copy_", Tensor.copy_, x, _r(4, 3)
    yield "copy_", Tensor.copy_, x, torch.tensor(1.0)
    yield "fill_", Tensor.fill_, x, 2.5
    yield "fill_", Tensor.fill_, x, torch.tensor(2.5)
    yield "fill_", Tensor.fill_, x, -1e9
    yield "clamp", torch.clamp, x, -1e9, 1e9
    yield "full_like", torch.full_like, x, -1e9
    yield "where", torch.where, mask[:, None], x, -1e9
    yield "where", torch.where, mask[:, None], 0.5, x
    yield "add", torch.add, x, 1e9
    yield "lerp_", Tensor.lerp_, x, _r(4, 3), 0.1
    yield "addcmul_", Tensor.addcmul_, x, _r(4, 3), _r(4, 3), {"value": 0.5}
    yield "addcdiv_", Tensor.addcdiv_, x, _r(4, 3), _r(4, 3), {"value": -0.5}
    yield "gather", torch.gather, x, 0, grid
    yield "index_select", torch.index_select, x, 0, rows
    yield "take_along_dim", torch.take_along_dim, x, grid, 0
    yield "getitem", operator.getitem, x, rows
    yield "getitem", operator.getitem, x, mask
    yield "getitem", operator.getitem, x, (rows, rows)
    yield "getitem", operator.getitem, x, 0
    yield "clip_grad", torch._foreach_norm, [x]


def _in_place() -> _Calls:
    for name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow"):
        function = getattr(operator, name)
        for other in (_r(4, 3), _r(3), torch.tensor(2.0), 2.5, 2):
            yield name, function, _r(4, 3), other
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
        function = getattr(operator, name)
        for other in (torch.tensor(2.0), 2.5, 2, True, 2j):
            yield name, function, _r(4, 3), other
            yield name, function, torch.tensor(1.5), other
        yield f"r{name}", function, 2.5, _r(4, 3)
        yield f"r{name}", function, 2, _r(4, 3)
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        yield name, getattr(operator, name), _r(4, 3), _r(4, 3)
        yield name, getattr(operator, name), _r(4, 3), 0.5


_UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg "
    "reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
)
_BINARY = "add sub mul div clamp_max clamp_min maximum minimum pow"


def _lists() -> _Calls:
    """Lists of one tensor: longer ones are known to go element by element."""
    x = lambda: [_r(4, 3)]
    for suffix in ("", "_"):
        for name in _UNARY.split():
            yield name, getattr(torch, f"_foreach_{name}{suffix}"), x()
        for name in _BINARY.split():
            function = getattr(torch, f"_foreach_{name}{suffix}")
            yield name, function, x(), x()
            yield name, function, x(), 2.5
            yield name, function, x(), [2.5]
            if name in ("add", "mul", "div"):
                yield name, function, x(), torch.tensor(2.5)
        for name in ("addcmul", "addcdiv"):
            function = getattr(torch, f"_foreach_{name}{suffix}")
            yield name, function, x(), x(), x(), 0.5
            yield name, function, x(), x(), x(), [0.5]
            yield name, function, x(), x(), x(), torch.tensor([0.5])
        lerp = getattr(torch, f"_foreach_lerp{suffix}")
        yield "lerp", lerp, x(), x(), 0.1
        yield "lerp", lerp, x(), x(), x()
    yield "norm", torch._foreach_norm, x()
    yield "norm", torch._foreach_norm, x(), 2, {"dtype": torch.float32}
    yield "max", torch._foreach_max, x()
    yield "copy", torch._foreach_copy_, x(), x()
    yield "zero", torch._foreach_zero_, x()


def _optimizers() -> _Calls:
    x = lambda: [_r(4, 3)]
    step = lambda: [torch.tensor(1.0)]
    adam: dict[str, Any] = {
        "lr": 0.1,
        "beta1": 0.9,
        "beta2": 0.99,
        "weight_decay": 0.0,
        "eps": 1e-8,
        "amsgrad": False,
        "maximize": False,
    }
    for name in ("_fused_adam_", "_fused_adamw_"):
        yield name, getattr(torch, name), x(), x(), x(), x(), [], step(), adam
        yield name, getattr(torch, name), x(), x(), x(), x(), x(), step(), {**adam, "amsgrad": True}
    sgd: dict[str, Any] = {
        "weight_decay": 0.0,
        "momentum": 0.9,
        "lr": 0.1,
        "dampening": 0.0,
        "nesterov": False,
        "maximize": False,
        "is_first_step": False,
    }
    yield "_fused_sgd_", torch._fused_sgd_, x(), x(), x(), sgd
    yield "_fused_sgd_", torch._fused_sgd_, x(), x(), [], {**sgd, "momentum": 0.0}
    adagrad: dict[str, Any] = {"lr": 0.1, "lr_decay": 0.0, "weight_decay": 0.0, "eps": 1e-8, "maximize": False}
    yield "_fused_adagrad_", torch._fused_adagrad_, x(), x(), x(), step(), adagrad
    unscale: Callable[..., Any] = torch._amp_foreach_non_finite_check_and_unscale_
    yield "_amp_foreach_non_finite_check_and_unscale_", unscale, x(), torch.zeros(1), torch.ones(1)


def _everyday() -> _Calls:
    """What models do between their layers."""
    x = _r(2, 3, 4)
    yield "type_as", Tensor.type_as, x, _r(2)
    yield "to", Tensor.to, x, _r(2)
    for name in ("float", "half", "bfloat16", "double", "long", "int", "bool"):
        yield name, getattr(Tensor, name), x
    for dtype in (torch.float16, torch.float32, torch.bfloat16, torch.float64, torch.int64):
        yield "to", Tensor.to, x, dtype
        yield "softmax", F.softmax, x, -1, {"dtype": dtype}
        yield "sum", torch.sum, x, {"dtype": dtype}
        yield "mean", torch.mean, x, 1, {"dtype": dtype}
        yield "cumsum", torch.cumsum, x, 1, {"dtype": dtype}
    yield "einsum", torch.einsum, "bij,bkj->bik", x, _r(2, 5, 4)
    yield "einsum", torch.einsum, "bij,j->bi", x, _r(4)
    yield "outer", torch.outer, _r(3), _r(4)
    yield "stack", torch.stack, [x, _r(2, 3, 4)]
    yield "cat", torch.cat, [x, _r(2, 3, 4), _r(2, 1, 4)], 1
    yield "dropout", F.dropout, x, 0.5, True
    yield "normalize", F.normalize, x
    yield "cosine_similarity", F.cosine_similarity, x, _r(2, 3, 4)
    yield "interpolate", F.interpolate, _r(1, 2, 4, 4), {"scale_factor": 2.0, "mode": "nearest"}
    yield "interpolate", F.interpolate, _r(1, 2, 4, 4), {"scale_factor": 2.0, "mode": "bilinear"}
    yield "grid_sample", F.grid_sample, _r(1, 2, 4, 4), _r(1, 3, 3, 2), {"align_corners": False}
    yield "view_as_complex", torch.view_as_complex, _r(3, 2)
    yield "polar", torch.polar, _r(3), _r(3)
    yield "view_as_real", torch.view_as_real, torch.polar(_r(3), _r(3))
    yield "mul", torch.mul, torch.polar(_r(3), _r(3)), torch.polar(_r(3), _r(3))
    yield "repeat_interleave", torch.repeat_interleave, x, torch.tensor([1, 2]), 0
    for maker in ("zeros_like", "ones_like", "rand_like", "randn_like", "empty_like"):
        yield maker, getattr(torch, maker), x
        yield maker, getattr(torch, maker), x, {"dtype": torch.float32}
    yield "new_zeros", Tensor.new_zeros, x, (2,)
    yield "new_full", Tensor.new_full, x, (2,), 1.0
    yield "histc", torch.histc, x
    yield "silu", F.silu, x
    yield "gelu", F.gelu, x
    yield "glu", F.glu, x
    yield "norm", torch.norm, x
    yield "vector_norm", torch.linalg.vector_norm, x
    yield "vector_norm", torch.linalg.vector_norm, x, {"dtype": torch.float32}
    yield "norm", Tensor.norm, x, 2, -1, True
    yield "bernoulli", torch.bernoulli, x.clamp(0, 1)
    yield "multinomial", torch.multinomial, x[0], 2
    yield "isfinite", torch.isfinite, x
    yield "nan_to_num", torch.nan_to_num, x, 0.0
