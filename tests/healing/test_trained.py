"""Healing changes the dtype of nothing that a program trains, nor of an average of it; what only an inserted cast led to
is told with that cast's cause."""

from __future__ import annotations

import copy
import linecache

import numpy as np
import pytest
import torch
from torch import nn

import dtypetrace


def network(width=16):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, 2))


def step(model, optimizer):
    x = torch.randn(8, 6).to(model[0].weight.dtype)
    (model(x) - x[:, :2]).float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=1e-2)


# Each program returns the dtypes that must stay: of what is trained, and of what is kept beside it.


def average_from_an_archive():
    model = network()
    archive = {name: p.detach().half().numpy() for name, p in model.named_parameters()}
    average = {name: torch.from_numpy(np.copy(a)) for name, a in archive.items()}  # BORN
    optimizer = sgd(model)
    for _ in range(3):
        step(model, optimizer)
        with torch.no_grad():
            torch._foreach_lerp_(list(average.values()), list(model.parameters()), 0.1)
    return {p.dtype for p in model.parameters()}, {a.dtype for a in average.values()}, torch.float32, torch.float16


def lookahead():
    model = network()
    slow = [p.detach().clone().to(torch.bfloat16) for p in model.parameters()]  # BORN
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(3):
        step(model, optimizer)
        with torch.no_grad():
            torch._foreach_lerp_(slow, [p.data for p in model.parameters()], 0.5)
            torch._foreach_lerp_(list(model.parameters()), slow, 1.0)
    return {p.dtype for p in model.parameters()}, {s.dtype for s in slow}, torch.float32, torch.bfloat16


def evaluated_average():
    model = network()
    average = copy.deepcopy(model).half().requires_grad_(False)  # BORN
    optimizer = sgd(model)
    for _ in range(3):
        step(model, optimizer)
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.1)
            assert average(torch.randn(2, 6).half()).dtype is torch.float16
    return {p.dtype for p in model.parameters()}, {a.dtype for a in average.parameters()}, torch.float32, torch.float16


def before_the_optimizer_exists():
    model = network()
    start = [p.detach().half() for p in model.parameters()]  # BORN
    with torch.no_grad():
        torch._foreach_lerp_(start, list(model.parameters()), 0.5)
    step(model, sgd(model))
    return {p.dtype for p in model.parameters()}, {s.dtype for s in start}, torch.float32, torch.float16


def wide_state(**form):
    def program():
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, **form)
        for n in range(4):
            if n == 2:
                model.half()  # BORN
            step(model, optimizer)
        state = {v.dtype for s in optimizer.state.values() for v in s.values()}
        return {p.dtype for p in model.parameters()}, state, torch.float16, torch.float32

    return program


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(32, 32).half().requires_grad_(False)
        self.down, self.up = nn.Linear(32, 4, bias=False), nn.Linear(4, 32, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x.float())).half()


def adapters_beside_a_half_base(mix):
    """Most numbers of the run are float16: counts of dtypes would narrow what is trained."""

    def program():
        torch.manual_seed(0)
        model = Adapted()
        trained = [p for p in model.parameters() if p.requires_grad]
        kept = [p.detach().half() for p in trained]  # BORN
        optimizer = torch.optim.SGD(trained, lr=1e-2)
        for _ in range(3):
            x = torch.randn(8, 32).half()
            (model(x) - x).float().square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                mix(trained, kept)
        return {p.dtype for p in trained}, {k.dtype for k in kept}, torch.float32, torch.float16

    return program


def one_by_one(trained, kept):
    for p, k in zip(trained, kept):
        p.data = torch.lerp(p.data, k, 0.1)


def as_lists(trained, kept):
    for p, mixed in zip(trained, torch._foreach_lerp(trained, kept, 0.1)):
        p.data = mixed


def by_product(trained, kept):
    for p, k in zip(trained, kept):
        p.data = torch.addmm(p.data, k, torch.eye(p.shape[1]), beta=0.9, alpha=0.1)


PROGRAMS = {
    "archive": average_from_an_archive,
    "lookahead": lookahead,
    "evaluated average": evaluated_average,
    "before the optimizer": before_the_optimizer_exists,
    "wide state, foreach": wide_state(foreach=True),
    "wide state, fused": wide_state(fused=True),
    "adapters, one by one": adapters_beside_a_half_base(one_by_one),
    "adapters, lists": adapters_beside_a_half_base(as_lists),
    "adapters, product": adapters_beside_a_half_base(by_product),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_what_is_trained_and_its_averages_keep_their_dtypes(program):
    with dtypetrace.trace(autofix=True) as t:
        trained, kept, of_trained, of_kept = program()
    assert trained == {of_trained} and kept == {of_kept}
    (found,) = (f for f in t.findings if f.kind == "collision")
    assert found.culprit is not None
    assert linecache.getline(__file__, found.culprit.origin.line).endswith("# BORN\n"), found
    assert found.fix is None or not any("float16" in e.after or "half" in e.after for e in found.fix.edits)


def test_a_healed_step_on_wide_state_is_the_step_in_the_wide_dtype():
    """The values of the step are those of one in float32, rounded once to what the weights are kept in."""

    def trained(corrected):
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, foreach=True)
        torch.manual_seed(1)
        gradients = [[torch.randn_like(p) for p in model.parameters()] for _ in range(2)]
        for n, given in enumerate(gradients):
            if n:
                model.bfloat16()
            if n and corrected:
                model.float()
            for p, g in zip(model.parameters(), given):
                p.grad = g.bfloat16().to(p.dtype) if n else g
            optimizer.step()
        return [p.detach().bfloat16() for p in model.parameters()]

    wanted = trained(True)
    with dtypetrace.trace(autofix=True):
        healed = trained(False)
    assert all(torch.equal(a, b) for a, b in zip(wanted, healed))


# ---------------------------------------------------------------- what only an inserted cast led to


def state_that_was_read():
    """The state is widened by healing, and the program reads it."""
    model, log = network(), nn.Linear(16, 1).half()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, foreach=True)
    for n in range(3):
        if n == 1:
            for s in optimizer.state.values():
                s["exp_avg"] = s["exp_avg"].half()  # BORN
        step(model, optimizer)
    log(optimizer.state[model[0].weight]["exp_avg"].t())


def kernel_without_a_dtype():
    net = nn.Linear(8, 8).to(torch.bfloat16)
    stored = torch.randn(4, 8).to(torch.float8_e4m3fn)  # BORN
    net(torch.tanh(stored))


def mean_of_integers():
    weight = torch.randn(4, 4, dtype=torch.bfloat16)
    ids = torch.randint(0, 9, (3, 5, 4))  # BORN
    ids.mean(1) @ weight


@pytest.mark.parametrize("program", [state_that_was_read, kernel_without_a_dtype, mean_of_integers])
def test_a_consequence_of_healing_is_told_with_its_cause(program):
    with dtypetrace.trace(autofix=True) as t:
        program()
    refused = [r for r in t.recording.refused if r.healed]
    (found,) = (f for f in t.findings if f.kind == "collision")
    assert len(refused) > 1 and found.op == refused[0].op
    assert linecache.getline(__file__, found.culprit.origin.line).endswith("# BORN\n")
    assert any("was refused only after the cast that was inserted for this" in note for note in found.notes)


def test_in_a_healed_run_causes_are_told_as_they_were_met():
    """The first refusal is what ends the program by itself, however often a later one is met."""
    model = network().to(torch.bfloat16)
    with dtypetrace.trace(autofix=True) as t:
        model(torch.randn(2, 6))
        for _ in range(5):
            torch.nn.functional.cross_entropy(torch.randn(2, 3), torch.tensor([0, 1], dtype=torch.int32))
    assert [f.code for f in t.findings if f.kind == "collision"] == ["DT101", "DT108"]
    assert [f.count for f in t.findings if f.kind == "collision"] == [1, 5]
