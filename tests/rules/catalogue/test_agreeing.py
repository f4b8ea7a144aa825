"""Operands that must agree, comparisons among them. See `refusing` for what a program is."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import refusing
import torch
import torch.nn.functional as F
from refusing import Program, check, every
from torch import nn

f8, f16, bf16, f32, f64, i64 = (
    torch.float8_e4m3fn,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int64,
)

PROGRAMS: list[Program] = []
refuses = partial(refusing.refuses, PROGRAMS)


# ---------------------------------------------------------------- operands that must agree


@refuses("scalar.expected_object_second", "DT106 polar: angle float64 4")
def polar():
    magnitude = torch.ones(4)
    angle = torch.from_numpy(np.linspace(0, 1, 4))  # BORN
    torch.polar(magnitude, angle)  # COLLIDES


@refuses("scalar.must_match_arg", "DT106 embedding_bag: per_sample_weights float64 2x3", module="bag")
def embedding_bag():
    bag = nn.EmbeddingBag(10, 4, mode="sum")
    weights = torch.as_tensor(np.ones((2, 3)))  # BORN
    bag(torch.ones(2, 3, dtype=i64), per_sample_weights=weights)  # COLLIDES


@refuses("prom.lerp", "DT106 lerp_: end float16 4x4")
def lerp():
    online = nn.Linear(4, 4)
    target = copy.deepcopy(online)
    online.half()  # BORN
    with torch.no_grad():
        for average, now in zip(target.parameters(), online.parameters()):
            average.lerp_(now, 0.1)  # COLLIDES


@refuses("prom.lerp", "DT106 lerp_: self float16 4x4")
def lerp_swapped():
    online = nn.Linear(4, 4)
    target = copy.deepcopy(online).half()  # BORN
    online(torch.randn(2, 4))
    for average, now in zip(target.parameters(), online.parameters()):
        average.data.lerp_(now.data, 0.1)  # COLLIDES


@refuses("prom.lerp", "DT106 lerp: weight float64 3")
def lerp_weight():
    first, last = torch.randn(3), torch.randn(3)
    mix = torch.from_numpy(np.linspace(0, 1, 3))  # BORN
    torch.lerp(first, last, mix)  # COLLIDES


@refuses("prom.heaviside", "DT106 heaviside: values float64 1")
def heaviside():
    spikes = torch.randn(4)
    at_zero = torch.from_numpy(np.array([0.5]))  # BORN
    torch.heaviside(spikes, at_zero)  # COLLIDES


@refuses("prom.prioritize", "DT118 cat: tensors[1] float16 1x4")
def prioritize():
    model = nn.Linear(4, 4)
    extra = torch.zeros(1, 4, dtype=f16)  # BORN
    with torch.autocast("cpu", dtype=bf16):
        tokens = model(torch.randn(3, 4))
        torch.cat([tokens, extra])  # COLLIDES


@refuses("prom.meshgrid", "DT106 meshgrid: tensors[1] float64 4")
def meshgrid():
    rows = torch.linspace(0, 1, 3)
    columns = torch.from_numpy(np.linspace(0, 1, 4))  # BORN
    torch.meshgrid(rows, columns, indexing="ij")  # COLLIDES


@refuses("prom.float8", "DT112 add: shift float8_e4m3fn 4", module="scale")
def float8():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.ones(4))
            self.register_buffer("shift", torch.zeros(4).to(f8))  # BORN

        def forward(self, x):
            return x * self.gain + self.shift  # COLLIDES

    scale = Scale()
    scale(torch.randn(2, 4))


@refuses("prom.float8", "DT112 stack: tensors[1] float8_e4m3fn 4")
def float8_stack():
    keys = torch.randn(4)
    cached = torch.randn(4).to(f8)  # BORN
    torch.stack([keys, cached])  # COLLIDES


@refuses("prom.float8", "DT112 where: other float8_e5m2 4", module="merge")
def float8_where():
    class Merge(nn.Module):
        def __init__(self):
            super().__init__()
            self.proj = nn.Linear(4, 4)

        def forward(self, x, stored):
            return torch.where(x > 0, self.proj(x), stored)  # COLLIDES

    merge = Merge()
    stored = torch.zeros(4).to(torch.float8_e5m2)  # BORN
    merge(torch.randn(4), stored)


@refuses("prom.float4", "DT112 add: other uint16 4")
def barebones():
    index = torch.arange(4)
    depth = torch.from_numpy(np.ones(4, dtype=np.uint16))  # BORN
    index + depth  # COLLIDES


@refuses("scalar.expected_found", "DT106 grid_sample: grid float32 1x2x2x2", module="warp")
def grid_sample():
    class Warp(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 1, 1)

        def forward(self, x):
            grid = torch.zeros(1, 2, 2, 2)  # BORN
            return F.grid_sample(self.conv(x), grid, align_corners=False)  # COLLIDES

    warp = Warp().half()
    warp(torch.rand(1, 1, 4, 4).half())


@refuses("mm.solve", "DT106 cholesky_solve: input2 float64 3x3")
def cholesky_solve():
    observed = torch.randn(3, 1)
    factor = torch.from_numpy(np.linalg.cholesky(np.eye(3)))  # BORN
    torch.cholesky_solve(observed, factor)  # COLLIDES


# ---------------------------------------------------------------- comparisons


@refuses("close.did_not_match", "DT122 allclose: other float64 4")
def allclose():
    ours = torch.ones(4)
    reference = torch.from_numpy(np.ones(4))  # BORN
    torch.allclose(ours, reference)  # COLLIDES


@refuses("close.assert", "DT122 assert_close: expected float64 4")
def assert_close():
    ours = torch.ones(4)
    reference = torch.from_numpy(np.ones(4))  # BORN
    torch.testing.assert_close(ours, reference)  # COLLIDES


@every(PROGRAMS)
def test_names_the_line(program):
    check(program)
