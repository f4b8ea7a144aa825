"""What runs inside an optimizer's step: its own work, and the closure's, which is the model's."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
import torch
from torch import nn

import dtypetrace
from dtypetrace.records import MOST_STEPS


class Closure:
    """A closure as Lightning makes it: an object that is called."""

    def __init__(self, function) -> None:
        self.function = function

    def __call__(self):
        return self.function()

    def method(self):
        return self.function()


class SharpnessAware(torch.optim.Optimizer):
    """SAM: calls the closure between two changes of the weights, and steps another optimizer inside its own step."""

    def __init__(self, params, lr: float) -> None:
        super().__init__(params, {"lr": lr})
        self.base = torch.optim.AdamW(self.param_groups, lr=lr)

    @torch.no_grad()
    def step(self, closure=None):
        with torch.enable_grad():
            closure()
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad * 0.01)
        with torch.enable_grad():
            loss = closure()
        self.base.step()
        for group in self.param_groups:
            for p in group["params"]:
                p.mul_(0.5)
        return loss


WAYS = {
    "by hand": None,
    "function": lambda f: f,
    "partial": partial,
    "object": Closure,
    "method": lambda f: Closure(f).method,
    "decorated": lambda f: torch.enable_grad()(f),
    "partial of an object": lambda f: partial(Closure(f)),
}


def train(given, make=torch.optim.AdamW, **options):
    """Two steps of a model that multiplies by a table which is too wide, in a module and outside one."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    table = torch.ones(8, dtype=torch.float64)
    optimizer = make(model.parameters(), lr=1e-3)

    def closure():
        optimizer.zero_grad()
        loss = (model(torch.ones(4, 8)) * table).square().mean()
        loss.backward()
        return loss

    with dtypetrace.trace(**options) as trace:
        for _ in range(2):
            if given is None:
                closure()
                optimizer.step()
            else:
                optimizer.step(given(closure))
    assert trace._watch.recorder.broken is False, trace.recording.not_seen
    return trace


@pytest.mark.parametrize("numerics", [False, True], ids=["dtypes", "numerics"])
@pytest.mark.parametrize("way", [name for name in WAYS if name != "by hand"])
def test_a_closure_is_judged_as_the_same_lines_before_the_step_are(way, numerics):
    plain, given = train(None, numerics=numerics), train(WAYS[way], numerics=numerics)
    reported = [
        (
            [(f.code, f.phase, f.severity, f.count) for f in t.findings],
            Counter((o.phase, o.aten) for o in t.recording.ops),
        )
        for t in (plain, given)
    ]
    assert reported[0] == reported[1] and reported[0][0][0][:2] == ("DT201", "forward")
    facts = [
        [(u.name, u.gradient_dtype, u.absent, u.written, u.steps, u.reached) for u in t.recording.updates]
        for t in (plain, given)
    ]
    assert facts[0] == facts[1]
    assert [p.model for p in plain.recording.plans] == [p.model for p in given.recording.plans] == ["Sequential"]


@pytest.mark.parametrize("make", [torch.optim.LBFGS, SharpnessAware], ids=lambda m: m.__name__)
def test_an_optimizers_own_work_is_distinguished_from_the_closures(make):
    trace = train(WAYS["function"], make)
    phases = {phase: Counter() for phase in ("forward", "backward", "optimizer", "other")}
    for op in trace.recording.ops:
        phases[op.phase][op.op] += 1
    assert phases["forward"].keys() == {"linear", "relu", "mul", "square", "mean"}
    for phase in ("optimizer", "other"):
        assert not phases["forward"].keys() - {"mul"} & phases[phase].keys()
    assert {"add_", "mul_"} & phases["optimizer"].keys()


def test_a_collision_in_a_closure_is_no_optimizers():
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    with pytest.raises(RuntimeError):
        with dtypetrace.trace() as trace:
            optimizer.step(lambda: torch.ones(2, 2) @ torch.ones(2, 2).half())
    (finding,) = trace.findings
    assert (finding.code, finding.phase) == ("DT101", "other")


def test_a_check_in_python_that_a_closure_runs_into_is_no_optimizers():
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)

    def closure():
        return nn.LSTM(2, 2)(torch.ones(1, 1, 2).double())

    with pytest.raises((RuntimeError, ValueError)):
        with dtypetrace.trace() as trace:
            optimizer.step(closure)
    assert trace.findings and trace.findings[0].phase == "forward"


def test_a_module_that_runs_in_a_step_is_no_optimizers():
    class Learned(torch.optim.SGD):
        rule = nn.Linear(2, 2)

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(self.rule(p))

    optimizer = Learned([nn.Parameter(torch.ones(2, 2))], lr=0.1)
    with dtypetrace.trace() as trace:
        optimizer.step()
    phases = {op.op: op.phase for op in trace.recording.ops}
    assert (phases["linear"], phases["add_"]) == ("forward", "optimizer")


def test_steps_that_exceptions_left_are_forgotten():
    inner = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    outer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)

    def closure():
        inner.step(lambda: 1 / 0)

    with dtypetrace.trace() as trace:
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                outer.step(closure)
        assert len(trace._watch.recorder.running_steps) <= 2
        outer.step()
        assert not trace._watch.recorder.running_steps
        torch.ones(2) * 2
    assert {op.phase for op in trace.recording.ops if op.op == "mul"} == {"other"}


def test_the_ops_of_each_step_are_kept_once_for_all_steps_with_the_same():
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with dtypetrace.trace() as t:
        for n in range(6):
            out = net(torch.ones(1, 2))
            if n in (3, 5):
                out = out.double()
            out.sum().backward()
            optimizer.step()
    ends = {first: (seen, last, count, ran) for first, seen, last, count, *ran in t.recording.step_ends}
    wide = next(n for n, op in enumerate(t.recording.ops) if "float64" in op.outputs)
    assert ends[4][:3] == (len(t.recording.ops), 6, 2) and ends[4][3][-1] == len(t.recording.ops)
    plain = {first: end for first, end in ends.items() if first != 4}
    assert sum(count for _, _, count, _ in plain.values()) == 4 and plain[max(plain)][1] == 5
    assert all(seen <= wide and ran[-1] <= wide for seen, _, _, ran in plain.values())


def test_what_is_kept_of_the_steps_is_bounded():
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with dtypetrace.trace() as t:
        for n in range(20):
            exec("net(torch.ones(1, 2)).sum().backward()" + "; torch.ones(1)" * n)  # another line each time
            optimizer.step()
    ends = t.recording.step_ends
    assert len(ends) == MOST_STEPS and sum(end[3] for end in ends) == 20 and ends[-1][2] == 20
