"""Operations without a kernel for a dtype, and complex numbers. See `refusing` for what a program is."""

from __future__ import annotations

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


# ---------------------------------------------------------------- no kernel


@refuses("impl.not_implemented_for", "DT109 linalg_svd: A float16 4x4")
def svd():
    delta = nn.Linear(4, 4).half().weight.data  # BORN
    torch.linalg.svd(delta)  # COLLIDES


@refuses("impl.not_implemented_for", "DT109 linalg_cholesky: input bfloat16 3x3")
def cholesky():
    covariance = torch.eye(3).to(bf16)  # BORN
    torch.linalg.cholesky(covariance)  # COLLIDES


@refuses("impl.not_implemented_for", "DT109 cdist: x1 float16 4x2")
def cdist():
    codes = torch.randn(4, 2, dtype=f16)  # BORN
    torch.cdist(codes, codes)  # COLLIDES


@refuses("impl.not_implemented_for", "DT109 softmax: input int64 2x3")
def softmax():
    votes = torch.ones(2, 3, dtype=i64)  # BORN
    F.softmax(votes, -1)  # COLLIDES


@refuses("prom.result_type", "DT111 dropout: input int64 2x3", module="drop")
def dropout():
    drop = nn.Dropout(0.5)
    tokens = torch.ones(2, 3, dtype=i64)  # BORN
    drop(tokens)  # COLLIDES


@refuses("impl.not_implemented_for", "DT109 interpolate: input bool 1x1x4x4")
def interpolate():
    mask = torch.ones(1, 1, 4, 4) > 0  # BORN
    F.interpolate(mask, scale_factor=2.0)  # COLLIDES


@refuses("impl.not_implemented_for", "DT109 ctc_loss: log_probs float16 5x2x4")
def ctc():
    model = nn.Linear(4, 4).half()  # BORN
    scores = model(torch.randn(5, 2, 4).half()).log_softmax(-1)
    F.ctc_loss(scores, torch.ones(2, 3, dtype=i64), torch.tensor([5, 5]), torch.tensor([3, 3]))  # COLLIDES


@refuses("impl.not_implemented_for", "DT109 bernoulli: input int64 4")
def bernoulli():
    keep = torch.tensor([0, 1, 1, 0])  # BORN
    torch.bernoulli(keep)  # COLLIDES


@refuses("impl.not_implemented_for", "DT109 normal_: tensor int64 4x2")
def initialise():
    table = torch.empty(4, 2, dtype=i64)  # BORN
    nn.init.normal_(table)  # COLLIDES


@refuses("impl.not_implemented_for", "DT109 mul: self float8_e4m3fn 4")
def float8_alone():
    packed = torch.ones(4).to(f8)  # BORN
    packed * 2  # COLLIDES


@refuses("impl.quantize", "DT109 quantize_per_tensor: input float16 4")
def quantize():
    weights = torch.randn(4).half()  # BORN
    torch.quantize_per_tensor(weights, 0.1, 0, torch.quint8)  # COLLIDES


@refuses("impl.bool_ops", "DT109 relu: input bool 4")
def relu_of_bool():
    above = torch.randn(4) > 0  # BORN
    F.relu(above)  # COLLIDES


@refuses("impl.not_implemented_for", "DT109 and: self float32 4")
def bitwise():
    valid = torch.ones(4)  # BORN
    valid & (torch.arange(4) > 1)  # COLLIDES


@refuses("impl.not_implemented_for", "DT109 linalg_qr: A float16 4x4")
def orthogonal():
    layer = nn.Linear(4, 4).half()  # BORN
    nn.init.orthogonal_(layer.weight)  # COLLIDES


@refuses("impl.low_precision_linalg", "DT109 linalg_inv: A float16 3x3")
def inverse():
    camera = torch.eye(3).half()  # BORN
    torch.linalg.inv(camera)  # COLLIDES


@refuses("impl.unsupported_dtype", "DT109 fft_rfft: input bfloat16 8")
def fft():
    wave = torch.randn(8, dtype=bf16)  # BORN
    torch.fft.rfft(wave)  # COLLIDES


@refuses("impl.quantile", "DT109 quantile: self float16 8")
def quantile():
    activations = torch.randn(8).half()  # BORN
    activations.quantile(0.99)  # COLLIDES


@refuses("impl.quantile", "DT106 quantile: q float64 2")
def quantile_levels():
    activations = torch.randn(8)
    levels = torch.from_numpy(np.array([0.1, 0.9]))  # BORN
    torch.quantile(activations, levels)  # COLLIDES


@refuses("impl.mean", "DT109 mean: self int64 3")
def mean():
    hits = torch.tensor([1, 0, 1])  # BORN
    hits.mean()  # COLLIDES


@refuses("impl.mean", "DT109 mean: self uint8 3x4x4", module="normalise")
def mean_image():
    class Normalise(nn.Module):
        def forward(self, image):
            return image - image.mean((1, 2), keepdim=True)  # COLLIDES

    normalise = Normalise()
    photo = torch.from_numpy(np.zeros((3, 4, 4), dtype=np.uint8))  # BORN
    normalise(photo)


@refuses("impl.var", "DT109 std: self int64 3")
def std():
    counts = torch.tensor([3, 4, 5])  # BORN
    counts.std()  # COLLIDES


@refuses("impl.linalg_float", "DT109 linalg_vector_norm: input int64 3")
def norm():
    steps = torch.tensor([3, 4, 5])  # BORN
    torch.linalg.vector_norm(steps)  # COLLIDES


@refuses("impl.only_float", "DT109 cosine_similarity: x1 int64 4")
def cosine():
    first = torch.tensor([1, 0, 1, 1])  # BORN
    F.cosine_similarity(first, first, dim=0)  # COLLIDES


@refuses("impl.addcdiv", "DT109 addcdiv: input int64 2")
def addcdiv():
    step = torch.ones(2, dtype=i64)  # BORN
    torch.addcdiv(step, step, step)  # COLLIDES


@refuses("impl.only_float", "DT109 multinomial: input int64 4")
def multinomial():
    counts = torch.tensor([1, 2, 3, 4])  # BORN
    torch.multinomial(counts, 2)  # COLLIDES


@refuses("impl.bool_ops", "DT109 rsub: self bool 4")
def bool_minus():
    mask = torch.arange(4) > 1  # BORN
    1 - mask  # COLLIDES


@refuses("impl.bool_ops", "DT109 sub: self bool 4")
def bool_difference():
    mask = torch.arange(4) > 1  # BORN
    mask - mask.roll(1)  # COLLIDES


@refuses("impl.bool_ops", "DT109 neg: self bool 4")
def bool_negative():
    mask = torch.arange(4) > 1  # BORN
    -mask  # COLLIDES


# ---------------------------------------------------------------- complex numbers


@refuses("cplx.both_inputs", "DT109 complex: real bfloat16 4")
def complex_bf16():
    real = torch.randn(4).to(bf16)  # BORN
    torch.complex(real, torch.zeros_like(real))  # COLLIDES


@refuses("cplx.view_as_complex", "DT109 view_as_complex: input bfloat16 2x4x2", module="rope")
def view_as_complex():
    class Rope(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = nn.Linear(8, 8)

        def forward(self, x):
            return torch.view_as_complex(self.q(x).unflatten(-1, (4, 2)))  # COLLIDES

    rope = Rope()
    rope.to(bf16)  # BORN
    rope(torch.randn(2, 8).to(bf16))


@refuses("cplx.view_as_real", "DT109 view_as_real: input float32 4")
def view_as_real():
    spectrum = torch.fft.rfft(torch.randn(6)).real  # BORN
    torch.view_as_real(spectrum)  # COLLIDES


@refuses("cplx.no_kernel", "DT109 relu: input complex64 4", module="net.1")
def relu_of_complex():
    net = nn.Sequential(nn.Identity(), nn.ReLU())
    spectrum = torch.fft.rfft(torch.randn(6))  # BORN
    net(spectrum)  # COLLIDES


@refuses("mod.view_dtype", "DT112 view: self complex64 4")
def view_of_conjugate():
    turned = torch.fft.fft(torch.randn(4)).conj()  # BORN
    turned.view(f32)  # COLLIDES


@every(PROGRAMS)
def test_names_the_line(program):
    check(program)
