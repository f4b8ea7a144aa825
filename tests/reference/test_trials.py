"""A damaged result is tried: the calls that led to it are made again without one rounding after the other."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

import dtypetrace
from dtypetrace.reference.calls import Done
from dtypetrace.reference.tape import MOST_BYTES, Tape


def tried(program):
    torch.manual_seed(0)
    with dtypetrace.trace(precision="values") as t:
        program()
    return t


def stored_ratio(stored, used):
    """The ratio of what is computed from a value and from its stored copy; both come from one source."""
    source = torch.randn(64, 8)
    base = source.to(used).float()  # shared: both sides see it
    logits = base * 200
    old = logits + 0.01 * torch.randn(64, 8)
    kept = logits.to(stored)
    ratio = (kept.float() - old).exp()
    return ratio.max().item()


def test_the_rounding_that_only_one_side_has_is_the_cause():
    t = tried(lambda: stored_ratio(torch.bfloat16, torch.bfloat16))
    (found,) = (f for f in t.findings if f.code == "DT308")
    assert found.tried.cures and found.tried.roundings == 1 and found.tried.after < 1e-3 < found.tried.before
    assert found.culprit.origin.line == stored_ratio.__code__.co_firstlineno + 6
    alone = {t.recording.ops[x.undone[0]].place: x for x in t.recording.trials if len(x.undone) == 1}
    assert sum(x.after <= 0.25 * x.before for x in alone.values()) == 1, "what both sides share is inert"


def test_several_roundings_are_left_out_together_where_none_is_enough():
    def program():
        x = (12 + 0.3 * torch.randn(32, 64)).bfloat16()
        mean = x.mean(-1, keepdim=True)
        return ((x * x).mean(-1, keepdim=True) - mean * mean).clamp(min=0).sqrt().max().item()

    (found,) = (f for f in tried(program).findings if f.code == "DT308")
    assert found.tried.cures and found.tried.roundings > 2


def test_what_becomes_infinite_is_tried_at_its_op():
    def program():
        return (torch.full((8,), 400.0, dtype=torch.float16).square() * 1e-3).sum().item()

    found = next(f for f in tried(program).findings if f.code == "DT301")
    assert found.tried.cures and found.tried.before > 1e5 > 1 > found.tried.after


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_lost_step_is_taken_again_in_float32(dtype):
    def program():
        net = nn.Linear(8, 8).to(dtype)
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-5)
        for _ in range(4):
            net(torch.randn(4, 8).to(dtype)).float().square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    t = tried(program)
    found = next(f for f in t.findings if f.code == "DT304")
    assert found.tried.unit == "step" and found.tried.before > 0.9 and found.tried.after < 0.1


def test_a_healthy_program_tries_nothing():
    def program():
        net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(2):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = net(torch.randn(32, 8)).float().square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    t = tried(program)
    assert t.recording.trials == () == t.recording.rehearsed and all(f.tried is None for f in t.findings)


def test_the_trial_is_in_every_view(tmp_path):
    t = tried(lambda: stored_ratio(torch.bfloat16, torch.bfloat16))
    assert "with these numbers kept in a wider dtype, by " in " ".join(repr(t).split())
    t.save(tmp_path / "t.json")
    again = dtypetrace.load(tmp_path / "t.json")
    assert again.findings[0].tried == t.findings[0].tried and again.findings[0].tried.cures
    t.report(tmp_path / "t.html")
    assert "with these numbers kept in a wider dtype" in (tmp_path / "t.html").read_text("utf-8")


def small_steps():
    total = torch.ones(32, 32, dtype=torch.bfloat16)
    step = 1e-3 * torch.rand(32, 32)
    for _ in range(12):
        total += step.bfloat16()
    return (total.float() - 1).mean().item()


def test_what_was_changed_in_place_is_made_again_with_all_its_changes():
    """Torch counts a write only when it has returned."""
    t = tried(small_steps)
    add = next(n for n, op in enumerate(t.recording.ops) if op.op == "add_")
    ends = [x for x in t.recording.trials if x.op > add and x.undone == (add,)]
    assert ends and all(x.after < 0.01 < 0.9 < x.before for x in ends)


def test_a_finding_is_tried_at_its_lines_once():
    from dtypetrace.rules.run_facts import Run
    from dtypetrace.rules.trials import Suspected

    t = tried(small_steps)
    suspected = Suspected(Run(t.recording))
    found = [f for f in t.findings if f.kind == "lost-update"]
    assert found and all(not f.tried.missing for f in found) and suspected.asked(found) == []
    asked = suspected.asked([dataclasses.replace(f, tried=None) for f in found])
    add = next(n for n, op in enumerate(t.recording.ops) if op.op == "add_")
    assert {number for number, _, _ in asked} >= {add} and any((add,) in sets for _, sets, _ in asked)
    assert suspected.asked([dataclasses.replace(f, tried=None, severity="note") for f in found]) == []


# ---------------------------------------------------------------- the tape


def test_calls_are_made_again_with_the_numbers_that_they_had():
    tape, a = Tape(), torch.ones(4)
    add, mul = torch.ops.aten.add_.Tensor, torch.ops.aten.mul.Tensor
    tape.before((a, a), {})
    tape.after(Done(0, add, (a, 2.0), {}, a.add_(2.0)), (a,))
    out = a * 3
    tape.after(Done(1, mul, (a, 3.0), {}, out), ())
    a.zero_()  # by nobody who is followed: another storage from then on
    later = a * 5
    tape.after(Done(2, mul, (a, 5.0), {}, later), ())
    made = {}

    def each(call, args, kwargs):
        made[call.number] = call.func(*args, **kwargs)
        return made[call.number]

    tape.play(tape.needed((1, 2), 8), each)
    assert made[1].equal(torch.full((4,), 9.0)) and made[2].equal(torch.zeros(4))
    assert [c.number for c in tape.needed((2,), 8)] == [2]


def test_the_tape_holds_no_tensor_of_the_program_and_has_an_end():
    import weakref

    tape, a = Tape(), torch.ones(4)
    tape.after(Done(0, torch.ops.aten.mul.Tensor, (a, 3.0), {}, a * 3), ())
    alive = weakref.ref(a)
    del a
    assert alive() is None
    large = torch.empty(MOST_BYTES + 1, dtype=torch.uint8)
    tape.after(Done(1, torch.ops.aten.mul.Tensor, (large, 3), {}, large), ())
    assert tape.full
