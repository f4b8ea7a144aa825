"""Indexed writes, indices and masks. See `refusing` for what a program is."""

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


@every(PROGRAMS)
def test_names_the_line(program):
    check(program)
