"""Convolutions, norms, attention and recurrent layers that are refused. See `refusing` for what a program is."""

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


@every(PROGRAMS)
def test_names_the_line(program):
    check(program)
