"""Graphs that torch makes of a program's functions are the same as without a trace, and so is what they may be used
for."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from harmless import mlp, whole
from torch import nn

import dtypetrace

ROWS = torch.export.Dim("rows")


class Chooses(nn.Module):
    """Its graph has branches, and sizes that depend on the numbers."""

    def forward(self, x):
        x = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
        return x.half().float(), x[x > 0].double().sum()


class Sums(nn.Module):
    """Writes in place, adds at indices, joins, and casts."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x):
        total = torch.zeros(x.shape[0], 8).index_add_(0, torch.arange(x.shape[0]), x)
        total += torch.cat([x, x.bfloat16().float()], 1)[:, :8]
        self.mean.mul_(0.9).add_(total.mean())
        return total @ x.T, (total * 10).long(), total.var(0), torch.full((x.shape[0],), 2.0).cumsum(0)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = mlp()
        self.layers.register_forward_hook(lambda module, args, result: result * 2)

    def forward(self, x):
        return self.layers(x.half().float())


def exported(module, rows: bool, strict: bool):
    """What an exported program computes, and may be called with."""
    x = torch.randn(4, 8)
    made = torch.export.export(module, (x,), dynamic_shapes=({0: ROWS},) if rows else None, strict=strict)
    limits = [str(limit) for limit in made.range_constraints.values()]
    return made.graph_module.code, limits, str(made.graph_signature), made.module()(x)


def traced_with_symbols(module):
    from torch.fx.experimental.proxy_tensor import make_fx

    made = make_fx(module, tracing_mode="symbolic", _allow_non_fake_inputs=True)(torch.randn(4, 8))
    return made.code, [str(guard.expr) for guard in made.shape_env.guards], made(torch.ones(4, 8))


def fake_with_symbols(module):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    shapes = ShapeEnv()
    with FakeTensorMode(shape_env=shapes, allow_non_fake_inputs=True) as mode:
        module(mode.from_tensor(torch.randn(4, 8), static_shapes=False))
    return [str(guard.expr) for guard in shapes.guards]


MODULES = {"layers": mlp, "branches": Chooses, "sums": Sums, "hooks": Layers}
WAYS = {
    "rows": lambda module: exported(module, True, False),
    "strict": lambda module: exported(module, False, True),
    "strict rows": lambda module: exported(module, True, True),
    "symbols": traced_with_symbols,
    "fake": fake_with_symbols,
}
VALUES, REFERENCE, EAGER = {}, {"precision": "reference"}, {"compile": "eager"}


@pytest.mark.parametrize(
    "module, way, every",
    [
        ("layers", "rows", (VALUES,)),
        ("branches", "rows", (VALUES,)),
        ("sums", "rows", (VALUES, REFERENCE)),
        ("branches", "strict", (VALUES,)),
        ("hooks", "strict", (VALUES, REFERENCE, EAGER)),
        ("sums", "strict rows", (VALUES,)),
        ("sums", "symbols", (VALUES,)),
        ("sums", "fake", (VALUES, REFERENCE)),
    ],
)
def test_what_is_exported(module, way, every):
    def program():
        torch.manual_seed(0)
        return WAYS[way](MODULES[module]())

    alone = program()
    for options in every:
        with dtypetrace.trace(**options) as trace:
            inside = program()
        assert str(inside) == str(alone)
        whole(trace)
        assert trace.findings == () and not trace.recording.not_seen


def test_a_first_export_inside_a_block():
    program = """
import sys, torch, dtypetrace
finders = list(sys.meta_path)
with dtypetrace.trace() as trace:
    made = torch.export.export(torch.nn.Linear(8, 8), (torch.ones(4, 8),), strict=True)
import torch._dynamo.functional_export as home
print(made.module()(torch.ones(4, 8)).shape[0], home.dynamo_graph_capture_for_export.__module__, finders == sys.meta_path)
print(hasattr(home.dynamo_graph_capture_for_export, "__wrapped__"), trace.findings, trace.recording.not_seen)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout.split("\n")[:2] == ["4 torch._dynamo.functional_export True", "False () ()"], ran.stderr


def test_a_call_after_fake_tensors_is_measured():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with dtypetrace.trace() as trace:
        with FakeTensorMode() as mode:
            mode.from_tensor(torch.ones(4)).half() * 40000.0
        torch.full((4,), 40000.0).half() * 2
    assert [f.code for f in trace.findings] == ["DT301"]


def test_a_frozen_script_is_called():
    model = torch.jit.freeze(torch.jit.script(mlp().eval()))
    with dtypetrace.trace() as trace:
        made = model(torch.ones(2, 8))
    assert torch.equal(made, model(torch.ones(2, 8)))
    whole(trace)
    assert not trace.recording.not_seen
