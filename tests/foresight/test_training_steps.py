"""What a training step would do in other dtypes, against the step that is really run in them: backward and the
optimizer are worked out from the changed forward."""

from __future__ import annotations

from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import dtypetrace
from dtypetrace.foresight import Replay, resolve
from dtypetrace.tables.dtypes import REAL
from dtypetrace.tables.operators import is_cast, is_move


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n, self.b = nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 1)

    def forward(self, x):
        return self.b(torch.relu(self.n(self.a(x))))


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n, self.b = nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Conv2d(4, 2, 3)

    def forward(self, x):
        return self.b(F.silu(self.n(self.a(x.view(-1, 1, 8, 8))))).flatten(1)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.a, self.b = nn.Embedding(9, 8), nn.Linear(8, 24), nn.Linear(8, 9)

    def forward(self, x):
        q, k, v = self.a(self.words(x.abs().long() % 9)).chunk(3, dim=-1)
        return self.b(F.scaled_dot_product_attention(q, k, v, is_causal=True)).flatten(1)


class Again(Rows):
    def forward(self, x):
        return self.b(checkpoint(lambda y: torch.tanh(self.a(y)), x, use_reentrant=False))


class Adapted(nn.Module):
    """A frozen base, and an adapter that is trained."""

    def __init__(self):
        super().__init__()
        self.a, self.down, self.b = nn.Linear(16, 16), nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False)
        self.a.requires_grad_(False)

    def forward(self, x):
        return self.a(x) + self.b(self.down(x))


MAKES = {
    "adamw": lambda p: torch.optim.AdamW(p, foreach=False),
    "foreach": lambda p: torch.optim.Adam(p, foreach=True),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=False),
    "rmsprop": lambda p: torch.optim.RMSprop(p, foreach=False),
    "adagrad": lambda p: torch.optim.Adagrad(p, foreach=False),
}
PROGRAMS = {
    "rows": (Rows, "adamw", False),
    "rows, many at once": (Rows, "foreach", True),
    "pictures": (Pictures, "momentum", False),
    "words": (Words, "rmsprop", True),
    "again": (Again, "adagrad", False),
    "adapted": (Adapted, "adamw", False),
}
CHANGES = [
    ("bfloat16", {"net": "bfloat16"}),
    ("bfloat16", {"autocast": "off"}),
    ("bfloat16", {"net": "bfloat16", "autocast": "off"}),
    ("bfloat16", {"net": "float64"}),
    ("off", {"autocast": "bfloat16"}),
    ("off", {"net": "bfloat16"}),
    ("off", {"net": "bfloat16", "autocast": "bfloat16"}),
    ("off", {"a": "bfloat16", "autocast": "bfloat16"}),
]


@cache
def recorded(program: str, autocast: str, **dtypes: str):
    """The recording of one step, with some modules in other dtypes."""
    kind, optimizer, clips = PROGRAMS[program]

    def step():
        torch.manual_seed(0)
        net = kind()
        for name, dtype in dtypes.items():
            (net if name == "net" else getattr(net, name)).to(getattr(torch, dtype))
        made = MAKES[optimizer]([p for p in net.parameters() if p.requires_grad])
        with torch.autocast(
            "cpu", getattr(torch, "bfloat16" if autocast == "off" else autocast), enabled=autocast != "off"
        ):
            y = net(torch.randn(4, 64 if kind is Pictures else 16))
        (y.float() ** 2).mean().backward()
        if clips:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        made.step()

    t = dtypetrace.trace()
    try:
        with t:
            step()
    except RuntimeError:
        pass
    return t.recording


def computed(recording, results) -> set[tuple[str, str, str]]:
    """The dtypes in which each operator computes, by phase; without attention, whose kernel chooses by itself."""
    found = set()
    for op, outputs in zip(recording.ops, results):
        arithmetic = op.inputs and not (is_cast(op) or is_move(op)) and outputs and outputs[0] in REAL
        called = recording.ops[op.of].op if op.of >= 0 else op.op
        if arithmetic and op.phase != "other" and called != "scaled_dot_product_attention":
            found.add((op.phase, op.aten, outputs[0]))
    return found


@pytest.mark.parametrize("autocast, changes", CHANGES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_step_that_is_foretold_is_the_one_that_runs(program, autocast, changes):
    base = recorded(program, autocast)
    dtypes = {name: dtype for name, dtype in changes.items() if name != "autocast"}
    real = recorded(program, changes.get("autocast", autocast), **dtypes)
    run = Replay(base, resolve(base, changes))
    refused = [op.op for op, c in zip(base.ops, run.ops) if c.code]
    assert refused[:1] == [r.op for r in real.refused if r.left], changes
    if not refused:
        foretold = computed(base, [c.outputs for c in run.ops])
        really = computed(real, [op.outputs for op in real.ops])
        assert foretold <= really
        # one record of the optimizer stands for the calls of parameters that now differ
        assert {(phase, aten) for phase, aten, _ in really} == {(phase, aten) for phase, aten, _ in foretold}


def test_no_change_changes_no_step():
    for program in PROGRAMS:
        base = recorded(program, "bfloat16")
        run = Replay(base, resolve(base, {}))
        by_autocast = {n for n, op in enumerate(base.ops) if op.autocast and is_cast(op)}
        assert all(c.outputs == op.outputs for n, (c, op) in enumerate(zip(run.ops, base.ops)) if n not in by_autocast)
        assert not any(c.code for c in run.ops)
