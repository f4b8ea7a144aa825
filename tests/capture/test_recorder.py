"""The recorder's short path records what its long path records, and is left where a dtype changes."""

from __future__ import annotations

import gc

import programs
import pytest
import torch
from adapters import unet, unet_loss
from torch import nn

import dtypetrace
from dtypetrace.capture.recorder import Recorder

PROGRAMS = {
    "training": """
        model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        for _ in range(4):
            model(torch.rand(3, 4)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
    "gradients that add up": """
        model = nn.Linear(4, 4)
        model.weight.grad = torch.zeros(4, 4).double().float()
        for _ in range(4):
            model(torch.rand(3, 4)).sum().backward()
        """,
    "dtypes by turns": """
        def widen(x):
            return (x.clone(memory_format=torch.contiguous_format) * x).transpose(0, 1).split(1)[0]
        for _ in range(3):
            for dtype in (torch.float32, torch.float16, torch.float64, torch.float32):
                y = widen(torch.ones(2, 2, dtype=dtype, requires_grad=True))
                y.sum().backward()
        """,
    "one function for tensors of several origins": """
        def twice(x):
            return x * 2
        wide, narrow = torch.ones(2), torch.ones(2, dtype=torch.float16)
        for _ in range(3):
            for x in (wide, narrow.float(), wide.half().float()):
                y = twice(x)
                torch.cat([y, y])
        """,
    "in place": """
        total = torch.zeros(3)
        for _ in range(4):
            total += torch.rand(3)
            total.mul_(0.5).clamp_(0, 1)
            torch.add(total, 1, out=total)
        """,
    "autocast": """
        model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))
        for _ in range(3):
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(torch.rand(3, 4)).float().square().mean()
            loss.backward()
        """,
    "a gradient of a gradient": """
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        for _ in range(3):
            x = torch.rand(3, 4, requires_grad=True)
            (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            slope.square().mean().backward()
        """,
    "checkpoint": """
        from torch.utils.checkpoint import checkpoint
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        for _ in range(3):
            for reentrant in (True, False):
                checkpoint(model, torch.rand(3, 4, requires_grad=True), use_reentrant=reentrant).sum().backward()
        """,
    "a backward that goes on in another": """
        weight = torch.rand(2, 2, requires_grad=True)
        for _ in range(3):
            loss = (weight @ weight).sum()
            loss.backward(retain_graph=True)
            loss.backward()
        """,
}


@pytest.fixture
def both(monkeypatch):
    """Runs something with the short path and without it."""

    def run(make):
        made = []
        for shorten in (Recorder._shorten, lambda *call: None):
            monkeypatch.setattr(Recorder, "_shorten", shorten)
            torch.manual_seed(0)
            made.append(make())  # from one line: another is another place
        return made

    return run


def reported(recording) -> tuple:
    return recording.ops, recording.events, recording.refused, recording.not_seen


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_short_path_records_the_same(name, both, tmp_path):
    short, whole = both(lambda: programs.run(tmp_path, PROGRAMS[name]).recording)
    assert reported(short) == reported(whole)


def test_the_short_path_records_the_same_of_a_real_model(both):
    def watch():
        model = unet(torch.float32)
        with dtypetrace.trace(model) as trace:
            for _ in range(2):
                unet_loss(model).backward()
        return trace.recording

    short, whole = both(watch)
    assert reported(short) == reported(whole) and len(short.ops) > 200


def test_most_calls_take_the_short_path(monkeypatch):
    model = unet(torch.float32)
    looked = []
    whole = Recorder._look
    monkeypatch.setattr(Recorder, "_look", lambda self, *call: looked.append(call) or whole(self, *call))
    with dtypetrace.trace(model) as trace:
        for step in range(3):
            looked.clear()
            unet_loss(model).backward()
    assert 0 < len(looked) * 10 < trace.recording.meta["ops"] / 3


def test_a_refusal_where_all_went_well_before_is_reported(tmp_path):
    text = """
        model = nn.Linear(4, 4)
        for dtype in (torch.float32, torch.float32, torch.float32, torch.float16):
            x = torch.ones(2, 4, dtype=dtype)
            model(x)
        """
    found = programs.run(tmp_path, text).only
    assert found.op == "linear" and found.operands[0].dtype == "float16"


def test_the_mark_of_a_deleted_tensor_is_not_used_for_another():
    with dtypetrace.trace() as trace:
        origins = trace._watch.recorder.origins
        weight = nn.Parameter(torch.ones(2))
        for _ in range(5_000):  # no module and no step: nothing takes the long path
            weight = weight * 0.5
        kept = [torch.ones(2) * 2 for _ in range(50)]
        assert len(origins.marks) <= origins.room < 1_500
        gc.collect()
        origins.sweep()
        assert {id(t) for t in kept} <= set(origins.marks) and len(origins.marks) < 120


class Numbers(nn.Module):
    """The same operator on one line, with a number before its tensor, behind it and in both."""

    def forward(self, x):
        for make in (torch.add, torch.mul, torch.sub, torch.true_divide, torch.pow, torch.remainder, torch.xlogy):
            for given in ((1, x), (x, 1), (2.0, x), (x, 2.0), (torch.tensor(2.0), x), (x, x)):
                y = make(*given)
        return y + torch.where(x > 1, 1.0, x) + torch.where(x > 1, x, 1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64])
@pytest.mark.parametrize("precision", ["values", "reference"])
def test_a_number_may_stand_where_a_tensor_stood(dtype, precision):
    model, x = Numbers(), torch.ones(2).to(dtype)
    with dtypetrace.trace(precision=precision) as trace:
        for _ in range(4):
            model(x), model.forward(x)
    assert not [note for note in trace.recording.not_seen if "internal error" in note]
    assert sum(op.count for op in trace.recording.ops) >= 4 * 2 * 7 * 6
