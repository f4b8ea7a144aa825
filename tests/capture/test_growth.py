"""The same step again adds no record and needs no memory."""

from __future__ import annotations

import gc
import sys
import tracemalloc

import pytest
import torch
import torch.nn.functional as F
import torch.nn.utils.prune
from harmless import mlp, quick, whole  # noqa: F401 - fixtures
from harmless_programs import steps_of_autocast
from torch import nn
from torch.utils.checkpoint import checkpoint

import dtypetrace


def steps_of_mlp():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.rand(4, 8)

    def step():
        optimizer.zero_grad()
        F.mse_loss(model(x), x).backward()
        optimizer.step()

    return step


def steps_of_checkpoint():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    x = torch.rand(4, 8)

    def step():
        optimizer.zero_grad(set_to_none=False)
        checkpoint(model, x, use_reentrant=False).sum().backward()
        optimizer.step()

    return step


def steps_of_lstm():
    model = nn.LSTM(4, 8, 2, batch_first=True)
    state = None

    def step():
        nonlocal state
        y, state = model(torch.rand(2, 5, 4), state)
        state = tuple(s.detach() for s in state)
        y.sum().backward()

    return step


def steps_that_fail():
    model = mlp()
    x = torch.rand(4, 8)

    def step():
        try:
            model(x.double())
        except RuntimeError:
            pass

    return step


def steps_that_make_modules():
    x = torch.ones(2, 8, requires_grad=True)

    def step():
        nn.MSELoss()(nn.Sequential(nn.Linear(8, 8), nn.ReLU())(x), x).backward()

    return step


def steps_that_widen():
    state = {"x": torch.ones(4, dtype=torch.float16)}

    def step():
        state["x"] = (state["x"].half() + torch.ones(4)) * 0.5

    return step


STEPS = [
    steps_of_mlp,
    steps_of_autocast,
    steps_of_checkpoint,
    steps_of_lstm,
    steps_that_fail,
    steps_that_make_modules,
    steps_that_widen,
]


@pytest.mark.parametrize("make", STEPS)
def test_the_same_step_again_adds_no_record(make):
    torch.manual_seed(0)

    def records():
        gc.collect()
        r = trace._watch.recorder
        r.origins.sweep()
        tables = (
            r.ops,
            r.origins.events,
            r.places,
            r.refusals.records,
            r.origins.marks,
            r.modules._entries,
            r.modules.roots,
            r.not_seen,
        )
        return [len(table) for table in tables]

    counts = []
    with dtypetrace.trace(every=1) as trace:
        step = make()
        for _ in range(20):
            step()
            counts.append(records())
    # what an optimizer makes in its first step is met as such only in its second
    assert counts[2:] == counts[1:2] * 18
    whole(trace)


def test_twenty_steps_need_no_memory():
    # a table of the process itself may grow once meanwhile; what a trace keeps grows in each trace
    assert min(growth_of_twenty_steps() for _ in range(3)) < 4_096


def growth_of_twenty_steps():
    sizes = []
    tracemalloc.start()
    try:
        with dtypetrace.trace(every=1) as trace:
            step = steps_of_mlp()
            for _ in range(23):
                step()
                gc.collect()
                sys._clear_type_cache()  # Python's own: it holds the attribute names that C++ looks up
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    whole(trace)
    return sizes[-1] - sizes[2]


def test_new_parameters_in_every_step_are_followed_for_some_steps_only(monkeypatch):
    monkeypatch.setattr("dtypetrace.capture.updates._MOST_CHANGES", 4)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    kept = []
    with dtypetrace.trace(precision="values") as t:
        for _ in range(8):
            kept.append(torch.ones(2, 2, requires_grad=True))
            optimizer.param_groups[0]["params"] = [kept[-1]]
            kept[-1].sum().backward()
            optimizer.step()
            (followed,) = t._watch.recorder.updates._optimizers
        assert len(followed.samples) == len(followed.known) == 4
    assert any("new parameters" in line for line in t.recording.not_seen)


def test_new_code_in_every_step_gets_no_places_without_end(monkeypatch):
    from dtypetrace.capture.stacks import Places

    monkeypatch.setattr(Places, "most", 40)
    x = torch.ones(2)
    with dtypetrace.trace() as t:
        for number in range(200):
            exec(compile("y = x * 2.0 + 1.0", f"<made {number}>", "exec"), {"x": x})
    assert len(t.recording.places) == 40 and len(t.recording.ops) < 60
    assert any("places of operators after 40" in line for line in t.recording.not_seen)
    assert sum(op.count for op in t.recording.ops) == 400
