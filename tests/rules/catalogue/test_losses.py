"""Scalars that do not fit, and losses. See `refusing` for what a program is."""

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


@every(PROGRAMS)
def test_names_the_line(program):
    check(program)
