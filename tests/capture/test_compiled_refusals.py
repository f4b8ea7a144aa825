"""What Dynamo refuses while it compiles is told like any collision; the exception stays as it is."""

from __future__ import annotations

import contextlib
import os
import traceback

import pytest
import torch
import torch.nn.functional as F
from compiled_programs import EAGER
from harmless import quick, whole  # noqa: F401 - fixture
from torch import nn

import dtypetrace


class Attention(nn.Module):
    """A mask of its own, in another dtype."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(8, 8)

    def forward(self, x):
        h = self.project(x).relu()
        mask = torch.ones(2, 8, dtype=torch.float16)  # BORN
        return F.scaled_dot_product_attention(h[None], h[None], mask[None])  # MEETS


class Weights(nn.Module):
    """A parameter in another dtype, through a view."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(8, 8)
        self.values = nn.Parameter(torch.randn(2, 8).half())  # BORN

    def forward(self, x):
        h = self.project(x)
        values = self.values[None]
        return F.scaled_dot_product_attention(h[None], h[None], values)  # MEETS


class Cast(nn.Module):
    """A cast on the way, in a function that it calls."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(8, 8)

    def narrow(self, x):
        return x.to(torch.bfloat16)  # BORN

    def forward(self, x):
        h = self.project(x)
        values = self.narrow(h) * 2
        return F.scaled_dot_product_attention(h[None], h[None], values[None])  # MEETS


class Buffer(nn.Module):
    """A buffer that is added to what is already narrow."""

    def __init__(self):
        super().__init__()
        self.register_buffer("values", torch.zeros(2, 8, dtype=torch.float64))  # BORN

    def forward(self, x):
        return F.scaled_dot_product_attention(x[None], x[None], (x + self.values)[None])  # MEETS


def line(kind: type, mark: str) -> int:
    """The line of this file with a mark, in a class."""
    with open(__file__) as file:
        lines = file.readlines()
    begins = next(n for n, text in enumerate(lines) if text.startswith(f"class {kind.__name__}("))
    return next(n for n, text in enumerate(lines[begins:], begins + 1) if text.rstrip().endswith(f"# {mark}"))


def raised(kind: type, **watch):
    torch._dynamo.reset()
    torch.manual_seed(0)
    trace = dtypetrace.trace(**watch) if watch else None
    with pytest.raises(RuntimeError) as caught, trace or contextlib.nullcontext():
        torch.compile(kind(), backend=EAGER)(torch.randn(2, 8))
    torch_own = os.path.dirname(torch.__file__)
    frames = [(f.filename, f.name) for f in traceback.extract_tb(caught.value.__traceback__)]
    return type(caught.value), str(caught.value), [f for f in frames if not f[0].startswith(torch_own)], trace


@pytest.mark.parametrize("kind", [Attention, Weights, Cast, Buffer])
def test_both_operands_and_their_births(kind):
    alone = raised(kind)
    *watched, trace = raised(kind, numerics=True)
    assert tuple(watched) == alone[:3]
    whole(trace)
    found = trace.findings[0]
    assert (found.severity, found.kind, found.op) == ("error", "collision", "scaled_dot_product_attention")
    assert found.site.line == line(kind, "MEETS")
    assert found.culprit.origin.line == line(kind, "BORN")
    assert len({operand.dtype for operand in found.operands}) == 2


def test_a_refusal_that_the_program_handles_is_a_note():
    torch._dynamo.reset()
    module = Attention()
    with dtypetrace.trace() as trace:
        try:
            torch.compile(module, backend=EAGER)(torch.randn(2, 8))
        except RuntimeError:
            module.project(torch.randn(2, 8))
    whole(trace)
    assert [(f.severity, f.site.line) for f in trace.findings] == [("note", line(Attention, "MEETS"))]
