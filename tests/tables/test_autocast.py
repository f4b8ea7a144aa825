"""The lists of autocast are those of the torch that is installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dtypetrace.tables import autocast, operators

HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"

BANNED = {"cpu": frozenset(), "cuda": operators.names("cuda:banned")}


@pytest.mark.parametrize(("device", "key"), [("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA")])
def test_every_operator_that_autocast_registers_is_listed(device, key):
    registered = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    bases = {name.removeprefix("aten::").partition(".")[0] for name in registered}
    assert bases == autocast.names(device) | BANNED[device]


@pytest.mark.parametrize(
    ("macro", "policy"),
    [("LOWER_PRECISION_FP", "lower"), ("FP32", "float32"), ("FP32_SET_OPT_DTYPE", "float32"), ("PROMOTE", "promote")],
)
def test_cuda_policies_are_those_of_the_header(macro, policy):
    body = re.search(rf"define AT_FORALL_{macro}\(_\)(.*?)\n\n", HEADER.read_text(), re.S)[1]
    names = re.findall(r"_\((\w+)", body)
    assert names and {autocast.policy(name, name, "cuda") for name in names} == {policy}


class _Casts(TorchDispatchMode):
    """The dtypes that tensors are cast to."""

    def __init__(self):
        super().__init__()
        self.to = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default and out.is_floating_point():
            self.to.append(out.dtype)
        return out


def _under_autocast(function, *args):
    casts = _Casts()
    with torch.autocast("cpu", torch.bfloat16), casts:
        function(*args)
    return set(casts.to)


X = torch.rand(2, 3, 4, 4) + 0.1
M = torch.rand(4, 4) + 0.1
CALLS = {
    "matmul": (torch.matmul, X, M),
    "linear": (torch.nn.functional.linear, X, M, M[0]),
    "conv2d": (torch.conv2d, X, torch.rand(3, 3, 1, 1)),
    "conv_transpose2d": (torch.conv_transpose2d, X, torch.rand(3, 3, 1, 1)),
    "baddbmm": (torch.baddbmm, X[0], X[0], X[0]),
    "prelu": (torch.prelu, X, M[0, :1]),
    "scaled_dot_product_attention": (torch.nn.functional.scaled_dot_product_attention, X, X, X),
    "mse_loss": (torch.nn.functional.mse_loss, X, X),
    "cross_entropy": (torch.nn.functional.cross_entropy, M, torch.tensor([0, 1, 2, 3])),
    "cdist": (torch.cdist, M, M),
    "prod": (torch.prod, M),
    "quantile": (torch.quantile, M, 0.5),
    "grid_sampler": (torch.grid_sampler, X, torch.rand(2, 1, 1, 2), 0, 0, False),
    "cat": (torch.cat, [M, M.bfloat16()]),
    "stack": (torch.stack, [M, M.bfloat16()]),
    "softmax": (torch.softmax, M, -1),
    "layer_norm": (torch.layer_norm, M, (4,)),
    "exp": (torch.exp, M),
}


@pytest.mark.parametrize("name", CALLS)
def test_cpu_policies_are_what_autocast_does(name):
    function, *args = CALLS[name]
    narrow = [a.bfloat16() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    seen = _under_autocast(function, *args) | (
        _under_autocast(function, *narrow) if name not in ("cat", "stack") else set()
    )
    expected = {"lower": {torch.bfloat16}, "float32": {torch.float32}, "promote": {torch.float32}, "": set()}
    assert seen == expected[autocast.policy(name, name, "cpu")]


def test_casts_leave_float64_and_integers_alone():
    assert autocast.cast("lower", ["float64", "float32"], "float16") == ("float64", "float16")
    assert autocast.cast("float32", ["float16", "bool"], "float16") == ("float32", "bool")
    assert autocast.cast("promote", ["float16", "float32"], "float16") == ("float32", "float32")
    assert autocast.cast("promote", ["float16", "bfloat16"], "float16") == ("float32", "float32")
    assert autocast.cast("", ["float32"], "float16") == ("float32",)
