"""Every kind of dtype refusal that torch can raise on a CPU, each from a small program whose cause is known.

A program is a function. One of its lines is marked `# BORN`: there the culprit took its dtype; one `# COLLIDES`: there
the refused op was called (a C++ op of the backward pass is named from its forward); `# OTHER` marks where other
operands were born. The decorator says the rest: the wording's name in `dtypetrace/refusals.json`, code, op, culprit and
shape, module, and the phase where it is neither forward (in a module) nor other (outside one).

Where two tensors disagree, one has to be the cause: it is the one against its model, against what most of the run
holds, or the one that fell out of a default. Programs named `..._swapped` are the same collision with the other side at
fault.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import re
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import dtypetrace

f8, f16, bf16, f32, f64, i64 = (
    torch.float8_e4m3fn,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int64,
)


@dataclass(frozen=True)
class Program:
    function: Callable[[], None]
    pattern: str
    code: str
    op: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    module: str
    phase: str

    def lines(self, marker: str) -> list[int]:
        text, first = inspect.getsourcelines(self.function)
        return [first + n for n, line in enumerate(text) if re.search(rf"#.*\b{marker}\b", line)]


PROGRAMS: list[Program] = []


def refuses(pattern: str, says: str, module: str = "", phase: str = ""):
    """The decorator of a program; ``says`` is ``CODE op: culprit dtype AxBxC``, a blank in the culprit's name written |."""
    code, op, name, dtype, shape = re.fullmatch(r"(\w+) (\w+): (\S+) ((?:python )?[\w.]+) (\S+)", says).groups()
    phase = phase or ("forward" if module else "other")
    sizes = tuple(int(n) for n in re.findall(r"\d+", shape))

    def add(function):
        PROGRAMS.append(Program(function, pattern, code, op, name.replace("|", " "), dtype, sizes, module, phase))
        return function

    return add


# ---------------------------------------------------------------- matmul


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


# ---------------------------------------------------------------- convolution, normalisation


@refuses("conv.input_bias", "DT102 conv2d: input float32 1x4x8x8", module="vae.decoder")
def conv():
    class Vae(nn.Module):
        def __init__(self):
            super().__init__()
            self.decoder = nn.Conv2d(4, 3, 3)

        def decode(self, z):
            return self.decoder(z)  # COLLIDES

        forward = decode

    vae = Vae().half()
    latents = torch.randn(1, 4, 8, 8)  # BORN
    vae(latents)


@refuses("conv.input_bias", "DT102 conv2d: input uint8 1x3x8x8", module="net.0")
def conv_of_bytes():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3))
    image = torch.randint(0, 256, (1, 3, 8, 8), dtype=torch.uint8)  # BORN
    net(image)  # COLLIDES


@refuses("conv.input_bias", "DT102 conv2d: out.weight bfloat16 3x4x3x3", module="unet.out")
def conv_swapped():
    unet = nn.Sequential(OrderedDict(stem=nn.Conv2d(3, 4, 3), out=nn.Conv2d(4, 3, 3)))
    unet.out.to(bf16)  # BORN
    unet(torch.randn(1, 3, 8, 8))  # COLLIDES


@refuses("conv.input_bias", "DT102 conv1d: tail.bias float32 4", module="net.tail")
def conv_bias():
    net = nn.Sequential(OrderedDict(stem=nn.Conv1d(4, 4, 1), tail=nn.Conv1d(4, 4, 1))).to(bf16)
    net.tail.bias = nn.Parameter(torch.zeros(4))  # BORN
    net(torch.randn(1, 4, 8, dtype=bf16))  # COLLIDES


@refuses("conv.input_weight", "DT102 conv2d: input bfloat16 1x3x8x8", module="net.0")
def conv_weight():
    net = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.ReLU(), nn.Conv2d(4, 4, 3))
    image = torch.rand(1, 3, 8, 8).to(bf16)  # BORN
    net(image)  # COLLIDES


@refuses("scalar.expected_found", "DT102 conv_transpose2d: input float64 1x4x4x4", module="up")
def conv_transpose():
    up = nn.ConvTranspose2d(4, 3, 2, bias=False)
    frame = torch.from_numpy(np.zeros((1, 4, 4, 4)))  # BORN
    up(frame)  # COLLIDES


@refuses("norm.cpu_param_float", "DT104 layer_norm: input float32 2x8", module="block.norm")
def layer_norm():
    block = nn.Sequential(OrderedDict(norm=nn.LayerNorm(8), out=nn.Linear(8, 8))).to(bf16)
    hidden = torch.randn(2, 8)  # BORN
    block(hidden)  # COLLIDES


@refuses("norm.cpu_param_float", "DT104 group_norm: 0.weight float16 4", module="block.0")
def group_norm_swapped():
    block = nn.Sequential(nn.GroupNorm(2, 4), nn.Conv2d(4, 4, 1))
    block[0].half()  # BORN
    block(torch.randn(1, 4, 8, 8))  # COLLIDES


@refuses("norm.cpu_all_same", "DT104 batch_norm: input float64 6x4", module="net.0")
def batch_norm():
    net = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))
    table = torch.as_tensor(np.random.rand(6, 4))  # BORN
    net(table)  # COLLIDES


@refuses("norm.cpu_all_same", "DT104 layer_norm: norm.weight float32 8", module="block.norm")
def layer_norm_swapped():
    block = nn.Sequential(OrderedDict(proj=nn.Linear(8, 8), norm=nn.LayerNorm(8))).double()
    block.norm.float()  # BORN
    block(torch.randn(2, 8).double())  # COLLIDES


@refuses("norm.prelu", "DT106 prelu: 1.weight float16 1", module="net.1")
def prelu():
    net = nn.Sequential(nn.Linear(4, 4), nn.PReLU())
    net[1].half()  # BORN
    net(torch.randn(2, 4))  # COLLIDES


@refuses("norm.prelu", "DT106 prelu: input float32 2x4", module="net.0")
def prelu_swapped():
    net = nn.Sequential(nn.PReLU(), nn.Linear(4, 4)).half()
    x = torch.randn(2, 4)  # BORN
    net(x)  # COLLIDES


# ---------------------------------------------------------------- attention


class Attention(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)

    def heads(self, x):
        return (t.unsqueeze(1) for t in self.qkv(x).chunk(3, -1))

    def forward(self, x, mask=None):
        q, k, v = self.heads(x)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@refuses("sdpa.qkv", "DT103 scaled_dot_product_attention: query float32 1x1x4x8", module="attention")
def sdpa_query():
    class Rotary(Attention):
        def forward(self, x):
            q, k, v = self.heads(x)
            angles = torch.arange(4).float()[:, None]  # BORN
            q = q * angles.cos()
            return F.scaled_dot_product_attention(q, k, v)  # COLLIDES

    attention = Rotary().to(bf16)
    attention(torch.randn(1, 4, 8, dtype=bf16))


@refuses("sdpa.qkv", "DT103 scaled_dot_product_attention: value float16 1x1x4x8", module="attention")
def sdpa_value():
    class Cached(Attention):
        def forward(self, x):
            q, k, v = self.heads(x)
            stored = v.half()  # BORN
            return F.scaled_dot_product_attention(q, k, stored)  # COLLIDES

    attention = Cached()
    attention(torch.randn(1, 4, 8))


@refuses("scalar.expected_found", "DT103 scaled_dot_product_attention: query int32 1x1x4x8")
def sdpa_of_integers():
    tokens = torch.ones(1, 1, 4, 8, dtype=torch.int32)  # BORN
    F.scaled_dot_product_attention(tokens, tokens, tokens)  # COLLIDES


@refuses("sdpa.mask", "DT103 scaled_dot_product_attention: attn_mask float64 4x4", module="attention")
def sdpa_mask():
    class Causal(Attention):
        def forward(self, x, mask):
            return F.scaled_dot_product_attention(*self.heads(x), attn_mask=mask)  # COLLIDES

    attention = Causal()
    mask = torch.from_numpy(np.triu(np.full((4, 4), -np.inf), 1))  # BORN
    attention(torch.randn(1, 4, 8), mask)


@refuses("sdpa.mask", "DT103 scaled_dot_product_attention: attn_mask int64 4x4", module="attention")
def sdpa_mask_integer():
    class Padded(Attention):
        def forward(self, x, mask):
            return F.scaled_dot_product_attention(*self.heads(x), attn_mask=mask)  # COLLIDES

    attention = Padded().half()
    mask = torch.tensor([[1, 1, 1, 0]] * 4)  # BORN
    attention(torch.randn(1, 4, 8).half(), mask)


@refuses("mm.mat1_mat2", "DT101 linear: input float16 4x1x8", module="attention")
def multihead_cross():
    attention = nn.MultiheadAttention(8, 2)
    context = torch.randn(4, 1, 8).half()  # BORN
    attention(torch.randn(3, 1, 8), context, context)  # COLLIDES


@refuses("sdpa.mask_kind", "DT103 MultiheadAttention: key_padding_mask int64 1x4", module="attention")
def multihead_padding():
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    padding = torch.tensor([[0, 0, 0, 1]])  # BORN
    x = torch.randn(1, 4, 8)
    attention(x, x, x, key_padding_mask=padding)  # COLLIDES


@refuses("mm.baddbmm", "DT101 baddbmm: input float64 1x4x4", module="attention")
def multihead_mask():
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    distance = torch.from_numpy(np.zeros((4, 4)))  # BORN
    x = torch.randn(1, 4, 8)
    attention(x, x, x, attn_mask=distance)  # COLLIDES


# ---------------------------------------------------------------- recurrent layers


@refuses("rnn.new", "DT105 LSTM: input float64 5x1x4", module="lstm")
def lstm():
    lstm = nn.LSTM(4, 8)
    series = torch.as_tensor(np.random.randn(5, 1, 4))  # BORN
    lstm(series)  # COLLIDES


@refuses("mm.mat1_mat2", "DT105 gru_cell: hx float32 2x8", module="controller.cell")
def gru_cell():
    class Controller(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.GRUCell(4, 8)
            self.head = nn.Linear(8, 4)

        def forward(self, x, state):
            return self.head(self.cell(x, state))  # COLLIDES

    controller = Controller().to(bf16)
    state = torch.zeros(2, 8)  # BORN
    controller(torch.randn(2, 4).to(bf16), state)


@refuses("rnn.new", "DT105 GRU: rnn.weight_ih_l0 float16 24x4", module="tagger.rnn")
def gru_swapped():
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(100, 4)
            self.rnn = nn.GRU(4, 8)

        def forward(self, ids):
            return self.rnn(self.embed(ids))  # COLLIDES

    tagger = Tagger()
    tagger.rnn.half()  # BORN
    tagger(torch.ones(5, 1, dtype=i64))


@refuses("mm.mat1_mat2", "DT105 lstm: data float64 4x3", module="lstm")
def lstm_packed():
    lstm = nn.LSTM(3, 8)
    sequences = [torch.tensor(np.random.rand(n, 3)) for n in (3, 1)]  # BORN
    packed = nn.utils.rnn.pack_sequence(sequences)
    lstm(packed)  # COLLIDES


@refuses("impl.onednn_rnn", "DT105 lstm: hx[0] float16 1x1x8", module="lstm")
def lstm_state():
    lstm = nn.LSTM(4, 8)
    state = tuple(torch.zeros(1, 1, 8, dtype=f16) for _ in range(2))  # BORN
    lstm(torch.randn(5, 1, 4), state)  # COLLIDES


@refuses("mm.mat1_mat2", "DT105 gru: hx float64 1x1x8", module="gru")
def gru_state():
    gru = nn.GRU(4, 8)
    memory = torch.from_numpy(np.zeros((1, 1, 8)))  # BORN
    gru(torch.randn(5, 1, 4), memory)  # COLLIDES


@refuses("mm.mat1_mat2", "DT105 lstm_cell: hx[0] float16 2x8", module="cell")
def lstm_cell():
    cell = nn.LSTMCell(4, 8)
    h = c = torch.zeros(2, 8).half()  # BORN
    cell(torch.randn(2, 4), (h, c))  # COLLIDES


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


# ---------------------------------------------------------------- indexed writes, indices, masks


@refuses("idx.index_put", "DT107 setitem: value float32 2x4", module="moe")
def index_put():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.expert = nn.Linear(4, 4)

        def forward(self, x, chosen):
            out = torch.zeros_like(x)
            gate = torch.rand(2, 1)  # BORN
            out[chosen] = self.expert(x[chosen]) * gate  # COLLIDES
            return out

    moe = Experts().to(bf16)
    moe(torch.randn(5, 4, dtype=bf16), torch.tensor([0, 3]))


@refuses("idx.index_put", "DT107 setitem: self float32 5x4", module="moe")
def index_put_swapped():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.expert = nn.Linear(4, 4)

        def forward(self, x, chosen):
            out = torch.zeros(5, 4)  # BORN
            out[chosen] = self.expert(x[chosen])  # COLLIDES
            return out

    moe = Experts().to(bf16)
    moe(torch.randn(5, 4, dtype=bf16), torch.tensor([0, 3]))


@refuses("idx.index_put", "DT107 setitem: value int64 2")
def index_put_integers():
    sums = torch.zeros(5)  # OTHER
    counts = torch.tensor([3, 4])  # BORN
    sums[torch.tensor([0, 3])] = counts  # COLLIDES


@refuses("idx.scatter_src", "DT107 scatter_add_: self float32 3x4", module="layer")
def scatter():
    class Message(nn.Module):
        def __init__(self):
            super().__init__()
            self.send = nn.Linear(4, 4)

        def forward(self, x, to):
            total = torch.zeros(3, 4)  # BORN
            return total.scatter_add_(0, to[:, None].expand(-1, 4), self.send(x))  # COLLIDES

    layer = Message().half()
    layer(torch.randn(5, 4).half(), torch.tensor([0, 1, 2, 1, 0]))


@refuses("idx.scatter_src", "DT107 scatter: src float64 2x1")
def scatter_swapped():
    grid = torch.zeros(2, 4)
    value = torch.as_tensor(np.ones((2, 1)))  # BORN
    grid.scatter(1, torch.tensor([[0], [2]]), value)  # COLLIDES


@refuses("idx.index_dtype", "DT108 scatter_: index float32 2x1")
def scatter_index():
    grid = torch.zeros(2, 4)
    columns = torch.tensor([[0.0], [2.0]])  # BORN
    grid.scatter_(1, columns, 1.0)  # COLLIDES


@refuses("idx.index_add", "DT107 index_reduce_: self float16 3")
def index_reduce():
    model = nn.Linear(4, 1)
    best = torch.zeros(3, dtype=f16)  # BORN
    scores = model(torch.randn(2, 4)).flatten().detach()
    best.index_reduce_(0, torch.tensor([0, 1]), scores, "amax")  # COLLIDES


@refuses("idx.index_add", "DT107 index_add_: source float64 2x4")
def index_add():
    histogram = torch.zeros(3, 4)
    new = torch.as_tensor(np.ones((2, 4)))  # BORN
    histogram.index_add_(0, torch.tensor([0, 1]), new)  # COLLIDES


@refuses("idx.index_copy", "DT107 index_copy_: self float32 1x8x4", module="layer")
def index_copy():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.key = nn.Linear(4, 4)

        def forward(self, x, cache, at):
            return cache.index_copy_(1, at, self.key(x))  # COLLIDES

    layer = Layer().to(bf16)
    cache = torch.zeros(1, 8, 4)  # BORN
    layer(torch.randn(1, 2, 4, dtype=bf16), cache, torch.tensor([0, 1]))


@refuses("idx.put_take", "DT107 put_: source float64 2")
def put():
    board = torch.zeros(4)
    score = torch.from_numpy(np.array([1.0, 2.0]))  # BORN
    board.put_(torch.tensor([0, 2]), score)  # COLLIDES


@refuses("idx.masked_scatter", "DT107 masked_scatter: source float32 2x4", module="merge")
def masked_scatter():
    class Merge(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(10, 4)

        def forward(self, ids, image):
            words = self.embed(ids)
            return words.masked_scatter((ids == 9)[:, None], image)  # COLLIDES

    merge = Merge().to(bf16)
    image = torch.randn(2, 4)  # BORN
    merge(torch.tensor([1, 9, 9, 2]), image)


@refuses("scalar.index_types", "DT108 embedding: input float32 2x3", module="embed")
def embedding():
    embed = nn.Embedding(10, 4)
    tokens = torch.zeros(2, 3)  # BORN
    embed(tokens)  # COLLIDES


@refuses("idx.index_dtype", "DT108 gather: index float32 2x1")
def gather():
    values = torch.randn(2, 4)
    actions = torch.Tensor([[0], [3]])  # BORN
    values.gather(1, actions)  # COLLIDES


@refuses("idx.index_dtype", "DT108 index_select: index float64 2")
def index_select():
    bank = torch.randn(4, 3)
    chosen = torch.from_numpy(np.array([0, 1]) / 1)  # BORN
    torch.index_select(bank, 0, chosen)  # COLLIDES


@refuses("idx.tensors_as_indices", "DT108 getitem: index float32 2")
def getitem():
    table = torch.randn(1000)
    steps = torch.linspace(0, 999, 2)  # BORN
    table[steps]  # COLLIDES


@refuses("idx.take_along", "DT108 take_along_dim: indices int32 2x1")
def take_along():
    scores = torch.randn(2, 4)
    order = scores.argmax(1, keepdim=True).int()  # BORN
    torch.take_along_dim(scores, order, 1)  # COLLIDES


@refuses("idx.one_hot", "DT108 one_hot: input int32 3")
def one_hot():
    labels = torch.tensor([0, 1, 2], dtype=torch.int32)  # BORN
    F.one_hot(labels, 3)  # COLLIDES


@refuses("idx.tensor_split", "DT108 tensor_split: tensor_indices_or_sections float64 2")
def tensor_split():
    stream = torch.randn(10)
    cuts = torch.from_numpy(np.array([3.0, 7.0]))  # BORN
    torch.tensor_split(stream, cuts)  # COLLIDES


@refuses("idx.only_integer", "DT108 index: self float32 ()")
def only_integer():
    lengths = torch.tensor([3, 5])
    longest = lengths.float().max()  # BORN
    range(longest)  # COLLIDES


@refuses("idx.mask_bool", "DT108 masked_fill: causal float32 4x4", module="attention")
def masked_fill_mask():
    class Scores(nn.Module):
        def __init__(self):
            super().__init__()
            self.k = nn.Linear(4, 4)
            self.register_buffer("causal", torch.ones(4, 4).triu(1))  # BORN

        def forward(self, x):
            return (x @ self.k(x).T).masked_fill(self.causal, -1e4)  # COLLIDES

    attention = Scores()
    attention(torch.randn(4, 4))


@refuses("idx.masked_select", "DT108 masked_select: mask int64 3")
def masked_select():
    losses = torch.rand(3)
    valid = torch.tensor([1, 0, 1])  # BORN
    losses.masked_select(valid)  # COLLIDES


@refuses("idx.mask_bool", "DT108 masked_scatter: mask int64 4x2")
def masked_scatter_mask():
    words, image = torch.zeros(4, 2), torch.ones(2, 2)
    where = torch.tensor([[0], [1], [1], [0]]).expand(-1, 2)  # BORN
    words.masked_scatter(where, image)  # COLLIDES


@refuses("impl.not_implemented_for", "DT109 repeat_interleave: repeats float32 3")
def repeat_interleave():
    durations = nn.Softplus()(torch.randn(3)).round()  # BORN
    torch.arange(3).repeat_interleave(durations)  # COLLIDES


@refuses("idx.integral", "DT108 ctc_loss: input_lengths float32 2")
def ctc_lengths():
    scores = torch.randn(5, 2, 4).log_softmax(-1)
    lengths = torch.tensor([1.0, 1.0]) * 5  # BORN
    F.ctc_loss(scores, torch.ones(2, 3, dtype=i64), lengths, torch.tensor([3, 3]))  # COLLIDES


@refuses("idx.unpool", "DT108 max_unpool2d: indices int32 1x1x2x2")
def unpool():
    pooled, at = F.max_pool2d(torch.randn(1, 1, 4, 4), 2, return_indices=True)
    stored = at.to(torch.int32)  # BORN
    F.max_unpool2d(pooled, stored, 2)  # COLLIDES


@refuses("idx.where_cond", "DT108 where: condition float32 4")
def where():
    noise = torch.randn(4)
    keep = torch.bernoulli(torch.full((4,), 0.5))  # BORN
    torch.where(keep, noise, torch.zeros(4))  # COLLIDES


@refuses("impl.invert", "DT108 invert: self float32 4")
def invert():
    padding = torch.zeros(4)  # BORN
    ~padding  # COLLIDES


# ---------------------------------------------------------------- scalars


@refuses("val.overflow", "DT110 masked_fill: -1e9 python float ()", module="attention")
def masked_fill_overflow():
    class Scores(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = nn.Linear(4, 4)

        def forward(self, x):
            far = torch.ones(2, 4).bool()
            lowest = -1e9  # BORN
            return self.q(x).masked_fill(far, lowest)  # COLLIDES

    attention = Scores().half()
    attention(torch.randn(2, 4).half())


@refuses("val.overflow", "DT110 full: -1e9 python float ()")
def full_overflow():
    torch.full((4, 4), -1e9, dtype=f16)  # BORN COLLIDES


@refuses("val.overflow", "DT110 fill_: 70000 python int ()")
def fill_overflow():
    clock = torch.zeros(4, dtype=f16)
    end = 70000  # BORN
    clock.fill_(end)  # COLLIDES


@refuses("val.overflow", "DT110 clamp: -1e9 python float ()")
def clamp_overflow():
    logits = torch.zeros(4, dtype=f16)
    logits.clamp(min=-1e9)  # BORN COLLIDES


@refuses("val.overflow", "DT110 setitem: -inf python float ()")
def setitem_overflow():
    ranks = torch.arange(4)
    ranks[0] = float("-inf")  # BORN COLLIDES


@refuses("val.overflow", "DT110 masked_fill: -inf python float ()")
def masked_fill_integer():
    ranks = torch.arange(4)
    ranks.masked_fill(ranks > 2, float("-inf"))  # BORN COLLIDES


@refuses("val.overflow", "DT110 full_like: 1e5 python float ()")
def full_like_overflow():
    sigmas = torch.zeros(4).half()
    largest = 1e5  # BORN
    torch.full_like(sigmas, largest)  # COLLIDES


@refuses("val.overflow", "DT110 tensor: 300 python int ()")
def tensor_overflow():
    torch.tensor(300, dtype=torch.uint8)  # BORN COLLIDES


@refuses("val.kind", "DT110 add_: 0.5 python float ()")
def alpha():
    votes = torch.ones(3, dtype=i64)
    share = 0.5  # BORN
    votes.add_(torch.ones(3, dtype=i64), alpha=share)  # COLLIDES


@refuses("val.bounds", "DT110 randint: 70000 python int ()")
def randint_bounds():
    torch.randint(0, 70000, (3,), dtype=f16)  # BORN COLLIDES


# ---------------------------------------------------------------- losses


@refuses("loss.target_long_or_byte", "DT108 cross_entropy: target float32 2")
def cross_entropy():
    logits = nn.Linear(4, 3)(torch.randn(2, 4))
    labels = torch.FloatTensor([0, 2])  # BORN
    F.cross_entropy(logits, labels)  # COLLIDES


@refuses("loss.target_long_or_byte", "DT108 nll_loss: target int32 2", module="criterion")
def nll():
    criterion = nn.NLLLoss()
    scores = torch.randn(2, 3).log_softmax(-1)
    labels = torch.from_numpy(np.array([0, 2], dtype=np.int32))  # BORN
    criterion(scores, labels)  # COLLIDES


@refuses("loss.prob_target", "DT113 cross_entropy: target int64 2x3")
def cross_entropy_probabilities():
    logits = torch.randn(2, 3)
    soft = F.one_hot(torch.tensor([0, 2]), 3)  # BORN
    F.cross_entropy(logits, soft)  # COLLIDES


@refuses("scalar.expected_found", "DT113 cross_entropy: weight float32 3")
def cross_entropy_weight():
    model = nn.Linear(4, 3).half()
    balance = torch.tensor([1.0, 2.0, 3.0])  # BORN
    logits = model(torch.randn(2, 4).half())
    F.cross_entropy(logits, torch.tensor([0, 2]), weight=balance)  # COLLIDES


@refuses("loss.kl", "DT113 kl_div: target int64 2x3")
def kl_div():
    student = torch.randn(2, 3).log_softmax(-1)
    teacher = torch.ones(2, 3, dtype=i64)  # BORN
    F.kl_div(student, teacher, reduction="sum")  # COLLIDES


@refuses("prom.found_dtype", "DT113 binary_cross_entropy: target int64 2x1", module="criterion")
def bce():
    model, criterion = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid()), nn.BCELoss()
    clicked = torch.tensor([[0], [1]])  # BORN
    criterion(model(torch.randn(2, 4)), clicked)  # COLLIDES


@refuses("prom.found_dtype", "DT113 binary_cross_entropy: target float64 2x1")
def bce_double():
    model = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())
    clicked = torch.as_tensor(np.array([[0.0], [1.0]]))  # BORN
    F.binary_cross_entropy(model(torch.randn(2, 4)).detach(), clicked)  # COLLIDES


@refuses("prom.result_type", "DT113 binary_cross_entropy_with_logits: target int64 2x1")
def bce_logits():
    clicked = torch.tensor([[0], [1]])  # BORN
    logits = nn.Linear(4, 1)(torch.randn(2, 4))
    F.binary_cross_entropy_with_logits(logits, clicked)  # COLLIDES


@refuses("prom.found_dtype", "DT113 huber_loss_backward: target float64 2x1", phase="backward")
def huber_backward():
    critic = nn.Linear(4, 1)
    reward = torch.as_tensor(np.ones((2, 1)))  # BORN
    loss = F.huber_loss(critic(torch.randn(2, 4)), reward)  # COLLIDES
    loss.backward()


@refuses("scalar.expected_integer", "DT108 multi_margin_loss: target float32 2")
def margin():
    scores = torch.randn(2, 3)
    labels = torch.ones(2)  # BORN
    F.multi_margin_loss(scores, labels)  # COLLIDES


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


# ---------------------------------------------------------------- gradients


@refuses("grad.assign", "DT114 grad: value float16 3x4")
def grad_assign():
    layer = nn.Linear(4, 3)
    received = torch.ones(3, 4, dtype=f16)  # BORN
    layer.weight.grad = received  # COLLIDES


@refuses("grad.hook_type", "DT114 backward: compress() float16 ()", phase="backward")
def tensor_hook():
    model = nn.Linear(4, 3)
    hidden = model(torch.randn(2, 4))

    def compress(gradient):
        return gradient.half()  # BORN

    hidden.register_hook(compress)
    hidden.sum().backward()  # COLLIDES


@refuses("grad.hook_type", "DT114 backward: hook() float16 ()", phase="backward")
def module_hook():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))

    def compress(module, grad_input, grad_output):
        return tuple(g.half() for g in grad_input)  # BORN

    model[1].register_full_backward_hook(compress)
    model(torch.randn(2, 4)).sum().backward()  # COLLIDES


@refuses("grad.implicit_complex", "DT114 backward: tensors[0] complex64 ()", phase="backward")
def complex_loss():
    weight = nn.Parameter(torch.ones(4))
    spectrum = torch.fft.fft(weight * torch.randn(4))  # BORN
    loss = spectrum.sum()
    loss.backward()  # COLLIDES


@refuses("mm.m1_m2", "DT101 matmul: self float32 2x3", phase="backward")
def function_backward():
    class Project(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(w)
            return (x @ w).float()

        @staticmethod
        def backward(ctx, g):
            (w,) = ctx.saved_tensors
            scale = torch.ones(2, 3)  # BORN
            return (g.to(w.dtype) * scale) @ w.t(), None  # COLLIDES

    w = nn.Parameter(torch.randn(4, 3, dtype=bf16))
    x = torch.randn(2, 4, dtype=bf16, requires_grad=True)
    Project.apply(x, w).sum().backward()


@refuses("grad.ckpt_metadata", "DT114 backward: recomputed_x float64 2x4", phase="backward")
def checkpoint_metadata():
    class Block(nn.Module):
        table = torch.ones(4)

        def forward(self, x):
            return torch.sin(x * self.table)

    block, x = Block(), torch.randn(2, 4, requires_grad=True)
    out = checkpoint(block, x, use_reentrant=False)
    block.table = torch.from_numpy(np.ones(4))  # BORN
    out.sum().backward()  # COLLIDES


# ---------------------------------------------------------------- optimizers, the loss scaler


@refuses("opt.unscale_fp16", "DT116 unscale_: weight float16 1x4", phase="optimizer")
def unscale():
    model = nn.Linear(4, 1)
    model.half()  # BORN
    optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cpu")
    scaler.scale(model(torch.randn(2, 4).half()).sum()).backward()
    scaler.unscale_(optimizer)  # COLLIDES
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def cast_under_an_optimizer(kind, **options):
    """A step in float32, then the weights become half while the optimizer's state stays as it was."""
    model = nn.Linear(4, 1)
    optimizer = kind(model.parameters(), 0.1, **options)
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


@refuses("prom.lerp", "DT115 lerp_: weight.grad float16 1x4", phase="optimizer")
def adamw():
    model, optimizer = cast_under_an_optimizer(torch.optim.AdamW)
    model.half()  # BORN
    model(torch.randn(2, 4).half()).sum().backward()
    optimizer.step()  # COLLIDES


@refuses("prom.lerp", "DT115 _foreach_lerp_: weight.grad float16 1x4", phase="optimizer")
def adamw_foreach():
    model, optimizer = cast_under_an_optimizer(torch.optim.AdamW, foreach=True)
    model.half()  # BORN
    model(torch.randn(2, 4).half()).sum().backward()
    optimizer.step()  # COLLIDES


@refuses("scalar.expected_found", "DT115 _fused_adamw_: weight float16 1x4", phase="optimizer")
def adamw_fused():
    model, optimizer = cast_under_an_optimizer(torch.optim.AdamW, fused=True)
    model.half()  # BORN
    model(torch.randn(2, 4).half()).sum().backward()
    optimizer.step()  # COLLIDES


@refuses("prom.lerp", "DT115 lerp_: exp_avg|of|weight float16 1x4", phase="optimizer")
def adamw_swapped():
    model, optimizer = cast_under_an_optimizer(torch.optim.AdamW)
    for state in optimizer.state.values():
        state["exp_avg"] = state["exp_avg"].half()  # BORN
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()  # COLLIDES


@refuses("scalar.expected_found", "DT115 _fused_sgd_: weight bfloat16 1x4", phase="optimizer")
def sgd_fused():
    model, optimizer = cast_under_an_optimizer(torch.optim.SGD, momentum=0.9, fused=True)
    model.to(bf16)  # BORN
    model(torch.randn(2, 4).to(bf16)).sum().backward()
    optimizer.step()  # COLLIDES


@refuses("opt.fused_supported", "DT115 step: p complex64 4", phase="optimizer")
def fused_complex():
    filter = nn.Parameter(torch.ones(4, dtype=torch.complex64))  # BORN
    optimizer = torch.optim.AdamW([filter], fused=True)
    filter.abs().sum().backward()
    optimizer.step()  # COLLIDES


@refuses("mm.dot", "DT115 dot: tensor float16 5", phase="optimizer")
def lbfgs():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters())
    data = torch.randn(2, 4)

    def closure():
        optimizer.zero_grad()
        loss = model(data.to(model.weight.dtype)).pow(2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    model.half()  # BORN
    optimizer.step(closure)  # COLLIDES


@refuses("opt.same_index", "DT115 update_parameters: weight float16 4x4")
def average_foreach():
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    model = nn.Linear(4, 4)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    average.update_parameters(model)
    model.half()  # BORN
    average.update_parameters(model)  # COLLIDES


@refuses("impl.linalg_float", "DT109 _foreach_norm: input[0] int64 3")
def total_norm():
    layer = nn.Linear(4, 3)
    counts = torch.tensor([1, 2, 3])  # BORN
    nn.utils.get_total_norm([layer.weight, counts])  # COLLIDES


# ---------------------------------------------------------------- distributed


@contextlib.contextmanager
def one_process():
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


@refuses("dist.c10d_mixed", "DT117 all_gather: tensor_list[0] float16 3")
def all_gather():
    with one_process():
        model = nn.Linear(3, 1)
        mine = model.weight.data.flatten()
        everyone = [torch.empty(3, dtype=f16)]  # BORN
        dist.all_gather(everyone, mine)  # COLLIDES


@refuses("dist.tensor_type", "DT117 all_gather_single: output_tensor float16 3")
def all_gather_into_tensor():
    with one_process():
        model = nn.Linear(3, 1)
        shard = model.weight.data.flatten()
        whole = torch.empty(3, dtype=f16)  # BORN
        dist.all_gather_into_tensor(whole, shard)  # COLLIDES


@refuses("dist.c10d_mixed", "DT117 all_to_all_single: output bfloat16 3")
def all_to_all():
    with one_process():
        model = nn.Linear(3, 1)
        routed = model.weight.data.flatten()
        arrived = torch.empty(3, dtype=bf16)  # BORN
        dist.all_to_all_single(arrived, routed)  # COLLIDES


@refuses("dist.c10d_mixed", "DT117 all_reduce_coalesced: tensors[1] float64 1")
def all_reduce_coalesced():
    with one_process():
        losses = torch.randn(3)
        count = torch.from_numpy(np.ones(1))  # BORN
        dist.all_reduce_coalesced([losses, count])  # COLLIDES


@refuses("dist.kernel", "DT117 all_reduce: tensor float8_e4m3fn 3")
def all_reduce():
    with one_process():
        gradient = torch.ones(3).to(f8)  # BORN
        dist.all_reduce(gradient)  # COLLIDES


@refuses("dist.expected_got", "DT117 backward: weight.grad float16 1x4", phase="backward")
def ddp():
    with one_process():
        model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
        with model.no_sync():
            model(torch.randn(2, 4)).sum().backward()
        for p in model.parameters():
            p.grad.data = p.grad.data.half()  # BORN
        model(torch.randn(2, 4)).sum().backward()  # COLLIDES


@refuses("dist.fsdp1_uniform", "DT117 FullyShardedDataParallel: 1.weight float16 4x4")
def fsdp():
    from torch.distributed.fsdp import FullyShardedDataParallel

    with one_process():
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
        model[1].half()  # BORN
        FullyShardedDataParallel(model, device_id=torch.device("cpu"))  # COLLIDES


@refuses("dist.fsdp1_int", "DT117 FullyShardedDataParallel: zeros int8 4")
def fsdp_integer():
    from torch.distributed.fsdp import FullyShardedDataParallel

    with one_process():
        model = nn.Module()
        model.zeros = nn.Parameter(torch.zeros(4, dtype=torch.int8), requires_grad=False)  # BORN
        model.head = nn.Linear(4, 4)
        FullyShardedDataParallel(model, device_id=torch.device("cpu"))  # COLLIDES


@refuses("dist.fsdp2_uniform", "DT117 FSDPSequential: 1.weight float16 4x4", module="model")
def fully_shard():
    from torch.distributed.fsdp import fully_shard

    with one_process():
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
        model[1].half()  # BORN
        fully_shard(model, mesh=dist.init_device_mesh("cpu", (1,)))
        model(torch.randn(2, 4))  # COLLIDES


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


# ---------------------------------------------------------------- the test


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.function.__name__)
def test_names_the_line(program):
    torch.manual_seed(0)
    np.random.seed(0)
    raised = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with dtypetrace.trace() as t:
                program.function()
        except Exception as error:
            raised = error
    assert raised is not None, "the program runs through: nothing to refuse"
    recorder = t._watch.recorder
    assert not recorder.broken, list(recorder.not_seen)
    collisions = [f for f in t.findings if f.kind == "collision"]
    assert len(collisions) == 1, [(f.code, f.op, f.exception) for f in collisions]
    (found,) = collisions

    assert found.exception.type == type(raised).__name__
    assert found.exception.message == str(raised)
    assert found.severity == "error"
    (refused,) = t.recording.refused
    assert refused.pattern == program.pattern
    (collides,), born = program.lines("COLLIDES"), program.lines("BORN")
    assert found.culprit is not None, found.operands
    culprit = found.culprit
    wrong = (found.code, found.op, culprit.name, culprit.dtype, culprit.shape, found.module, found.phase)
    assert wrong == (
        program.code,
        program.op,
        program.name,
        program.dtype,
        program.shape,
        program.module,
        program.phase,
    )
    assert (found.site.file, found.site.line) == (__file__, collides)
    assert (culprit.origin.file, [culprit.origin.line]) == (__file__, born)
    others = {o.origin.line for o in found.operands if o is not culprit}
    assert others >= set(program.lines("OTHER"))
    for operand in found.operands:
        assert operand.name and operand.dtype and operand.origin.line
        assert operand.device == "cpu" or not operand.shape or operand.dtype.startswith("numpy")
    assert found.fix is not None and found.fix.why


def test_no_process_group_is_left():
    assert not dist.is_initialized()
