"""Matrix products that are refused. See `refusing` for what a program is."""

from __future__ import annotations

from collections import OrderedDict
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


@refuses("mm.mat1_mat2", "DT101 linear: input float32 2x8", module="model.0")
def linear():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)).half()  # OTHER
    batch = torch.randn(2, 8)  # BORN
    model(batch)  # COLLIDES


@refuses("mm.mat1_mat2", "DT101 linear: 1.weight float16 4x8", module="model.1")
def linear_swapped():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))  # OTHER
    model[1].half()  # BORN
    model(torch.randn(2, 8))  # COLLIDES


@refuses("mm.self_mat2", "DT101 linear: head.bias float64 3", module="model.head")
def linear_bias():
    model = nn.Sequential(OrderedDict(body=nn.Linear(8, 8), head=nn.Linear(8, 3)))
    frequency = np.array([0.7, 0.2, 0.1])
    model.head.bias.data = torch.from_numpy(np.log(frequency))  # BORN
    model(torch.randn(2, 8))  # COLLIDES


@refuses("mm.m1_m2", "DT101 matmul: self float32 2x8", module="codebook")
def matmul():
    class Codebook(nn.Module):
        def __init__(self):
            super().__init__()
            self.codes = nn.Parameter(torch.randn(16, 8, dtype=bf16))  # OTHER

        def forward(self, z):
            return (z @ self.codes.t()).argmax(-1)  # COLLIDES

    codebook = Codebook()
    latent = torch.randn(2, 8)  # BORN
    codebook(latent)


@refuses("mm.m1_m2", "DT101 matmul: self int64 3x4")
def matmul_one_hot():
    table = nn.Parameter(torch.randn(4, 8))  # OTHER
    chosen = F.one_hot(torch.tensor([0, 3, 1]), 4)  # BORN
    chosen @ table  # COLLIDES


@refuses("mm.mat1_mat2", "DT101 linear: input int64 2x8", module="net.0")
def linear_of_integers():
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    counts = torch.arange(16).reshape(2, 8)  # BORN
    net(counts)  # COLLIDES


@refuses("mm.addmv", "DT101 mv: vec float64 8")
def mv():
    projection = torch.randn(4, 8)  # OTHER
    direction = torch.from_numpy(np.linspace(0, 1, 8))  # BORN
    torch.mv(projection, direction)  # COLLIDES


@refuses("mm.dot", "DT101 dot: tensor float16 4")
def dot():
    model = nn.Linear(3, 1)
    gradient = torch.cat([p.detach().flatten() for p in model.parameters()])
    previous = gradient.half()  # BORN
    torch.dot(gradient, previous)  # COLLIDES


@refuses("mm.inner", "DT101 inner: other float64 3x4")
def inner():
    query = torch.randn(2, 4)
    keys = torch.tensor(np.eye(3, 4))  # BORN
    torch.inner(query, keys)  # COLLIDES


@refuses("mm.multi_dot", "DT101 linalg_multi_dot: tensors[1] float64 4x4")
def multi_dot():
    left, right = torch.randn(2, 4), torch.randn(4, 2)
    middle = torch.from_numpy(np.eye(4))  # BORN
    torch.linalg.multi_dot([left, middle, right])  # COLLIDES


@refuses("mm.baddbmm", "DT101 baddbmm: input float32 1x4x4", module="attention")
def baddbmm():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qk = nn.Linear(8, 16)

        def forward(self, x):
            q, k = self.qk(x).chunk(2, -1)
            slope = torch.arange(4) * -0.5  # BORN
            return torch.baddbmm(slope.expand(1, 4, 4), q, k.transpose(1, 2))  # COLLIDES

    attention = Attention().to(bf16)
    attention(torch.randn(1, 4, 8, dtype=bf16))


@refuses("mm.bilinear", "DT106 bilinear: input2 float64 2x3", module="join")
def bilinear():
    join = nn.Bilinear(4, 3, 5)
    image = torch.randn(2, 4)
    table = torch.from_numpy(np.ones((2, 3)))  # BORN
    join(image, table)  # COLLIDES


@refuses("mm.scaled_mm", "DT121 _scaled_mm: input float32 16x16")
def scaled_mm():
    weight = torch.randn(16, 16).to(f8)
    x = torch.randn(16, 16)  # BORN
    torch._scaled_mm(x, weight.t(), torch.ones(()), torch.ones(()))  # COLLIDES


@refuses("mm.solve", "DT106 linalg_solve: B float64 4x1")
def solve():
    features = torch.randn(16, 4)
    gram = features.T @ features
    moments = torch.as_tensor(np.ones((4, 1)))  # BORN
    torch.linalg.solve(gram, moments)  # COLLIDES


@refuses("mm.sampled_addmm", "DT101 sparse_sampled_addmm: mat2 float64 4x3")
def sampled_addmm():
    edges = torch.eye(3).to_sparse_csr()
    source = torch.randn(3, 4)
    target = torch.from_numpy(np.ones((4, 3)))  # BORN
    torch.sparse.sampled_addmm(edges, source, target)  # COLLIDES


@refuses("scalar.expected_found", "DT101 einsum: operands[1] float32 4x4", module="rotate")
def einsum():
    class Rotate(nn.Module):
        def __init__(self):
            super().__init__()
            self.qk = nn.Linear(4, 4)
            self.register_buffer("turn", torch.eye(4), persistent=False)

        def forward(self, x):
            turn = self.turn.float()  # BORN
            return torch.einsum("btc,cd->btd", self.qk(x), turn)  # COLLIDES

    rotate = Rotate().half()
    rotate(torch.randn(2, 3, 4).half())


@refuses("scalar.expected_found", "DT101 bmm: mat2 float16 2x4x3", module="pool")
def bmm():
    class Pool(nn.Module):
        def __init__(self):
            super().__init__()
            self.score = nn.Linear(3, 4)

        def forward(self, x, memory):
            return torch.bmm(self.score(x), memory)  # COLLIDES

    pool = Pool()
    memory = torch.randn(2, 4, 3).half()  # BORN
    pool(torch.randn(2, 5, 3), memory)


@refuses("scalar.expected_found", "DT101 _sparse_mm: sparse float64 3x3", module="layer")
def sparse_mm():
    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 4))
            self.bias = nn.Parameter(torch.zeros(4))

        def forward(self, adjacency, x):
            return torch.sparse.mm(adjacency, x @ self.weight) + self.bias  # COLLIDES

    layer = Graph()
    edges = torch.sparse_coo_tensor([[0, 1], [1, 2]], np.ones(2), (3, 3))  # BORN
    layer(edges, torch.randn(3, 4))


@every(PROGRAMS)
def test_names_the_line(program):
    check(program)
