"""Destinations, parameters, defaults, and what leaves torch. See `refusing` for what a program is."""

from __future__ import annotations

from functools import partial

import numpy as np
import refusing
import torch
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


# ---------------------------------------------------------------- destinations


@refuses("prom.result_type", "DT111 add_: self int64 4")
def in_place():
    position = torch.arange(4)  # BORN
    position += torch.rand(4)  # COLLIDES


@refuses("prom.result_type", "DT111 mul_: self int64 4")
def in_place_scalar():
    position = torch.arange(4)  # BORN
    position *= 0.5  # COLLIDES


@refuses("prom.result_type", "DT111 add_: self float32 4")
def in_place_complex():
    wave = torch.zeros(4)  # BORN
    wave += torch.fft.fft(torch.randn(4))  # COLLIDES


@refuses("prom.result_type", "DT111 ior: self bool 4")
def in_place_bool():
    mask = torch.zeros(4).bool()  # BORN
    mask |= torch.tensor([0, 1, 1, 0])  # COLLIDES


@refuses("out.expected", "DT111 mm: out float16 2x2")
def out_expected():
    buffer = torch.empty(2, 2, dtype=f16)  # BORN
    torch.mm(torch.randn(2, 4), torch.randn(4, 2), out=buffer)  # COLLIDES


@refuses("out.scalar", "DT111 index_select: out float16 2x3")
def out_scalar():
    buffer = torch.empty(2, 3, dtype=f16)  # BORN
    torch.index_select(torch.randn(4, 3), 0, torch.tensor([0, 1]), out=buffer)  # COLLIDES


@refuses("prom.cat", "DT111 cat: out int64 4")
def cat_out():
    buffer = torch.empty(4, dtype=i64)  # BORN
    torch.cat([torch.randn(2), torch.randn(2)], out=buffer)  # COLLIDES


# ---------------------------------------------------------------- parameters, defaults, leaving torch


@refuses("grad.requires_grad_int", "DT119 requires_grad_: self int64 3")
def requires_grad():
    prompt = torch.tensor([4, 5, 6])  # BORN
    prompt.requires_grad_()  # COLLIDES


@refuses("grad.requires_grad_int", "DT119 Parameter: data int64 4x4")
def module_of_integers():
    nn.Linear(4, 4, dtype=torch.int64)  # BORN COLLIDES


@refuses("grad.requires_grad_int", "DT119 Parameter: data int64 3x2")
def embedding_of_integers():
    codes = torch.tensor([[0, 1], [1, 0], [1, 1]])  # BORN
    nn.Embedding.from_pretrained(codes, freeze=False)  # COLLIDES


@refuses("grad.requires_grad_int", "DT119 Parameter: data int64 4")
def parameter():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            start = torch.tensor([1] * 4)  # BORN
            self.gain = nn.Parameter(start)  # COLLIDES

    Scale()


@refuses("grad.data_set", "DT119 data: value int8 3x4")
def data():
    layer = nn.Linear(4, 3)
    rounded = (layer.weight.data * 127).to(torch.int8)  # BORN
    layer.weight.data = rounded  # COLLIDES


@refuses("mod.to_int", "DT119 to: dtype int64 ()")
def module_to():
    model = nn.Linear(4, 4)
    batch = torch.tensor([[1, 2, 3, 4]])  # BORN
    model.to(batch.dtype)  # COLLIDES


@refuses("mod.to_int", "DT119 to: dtype int64 ()")
def module_to_literal():
    model = nn.Linear(4, 4)
    model.to(torch.int64)  # BORN COLLIDES


@refuses("impl.only_float", "DT109 finfo: dtype int64 ()", module="mask")
def finfo():
    class Mask(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(1))

        def forward(self, kept):
            lowest = torch.finfo(kept.dtype).min  # COLLIDES
            return self.bias + (1 - kept) * lowest

    mask = Mask()
    kept = torch.tensor([[1, 1, 0]])  # BORN
    mask(kept)


@refuses("mod.default_dtype", "DT119 set_default_dtype: d int64 ()")
def default_dtype():
    torch.set_default_dtype(torch.int64)  # BORN COLLIDES


@refuses("impl.got_unsupported_scalar", "DT120 numpy: self bfloat16 1x3")
def numpy():
    model = nn.Linear(4, 3)
    model.to(bf16)  # BORN
    scores = model(torch.randn(1, 4).to(bf16))
    scores.detach().numpy()  # COLLIDES


@refuses("impl.got_unsupported_scalar", "DT120 array: self bfloat16 3")
def numpy_array():
    embedding = torch.ones(3, dtype=bf16)  # BORN
    np.asarray(embedding)  # COLLIDES


@refuses("impl.from_numpy", "DT120 from_numpy: rows numpy.object_ 2")
def from_numpy():
    rows = np.array([[1, 2], [3]], dtype=object)  # BORN
    torch.from_numpy(rows)  # COLLIDES


@refuses("impl.from_numpy", "DT120 as_tensor: column numpy.str_ 3")
def as_tensor():
    column = np.array(["1.5", "2.0", "-"])  # BORN
    torch.as_tensor(column)  # COLLIDES


@every(PROGRAMS)
def test_names_the_line(program):
    check(program)
