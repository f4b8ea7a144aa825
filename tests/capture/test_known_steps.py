"""Optimizer steps whose ops are known: they are judged as a whole, and their ops are not seen one by one."""

from __future__ import annotations

import linecache
import signal
import sys

import pytest
import torch
from conftest import installed
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as modes_on

import dtypetrace
from dtypetrace.capture.stacks import Places

WINDOWS = [17, 33, 65]
"""Steps that are watched by schedule, after the first ones."""


class Seen(torch.optim.Optimizer):
    """Divides by a running size of the gradients. Keeps the numbers of the steps that ran with a mode on."""

    def __init__(self, params, lr: float) -> None:
        super().__init__(params, {"lr": lr})
        self.on, self.steps = [], 0

    @torch.no_grad()
    def step(self, closure=None):
        self.steps += 1
        self.on += [self.steps] * bool(modes_on())
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["size"] = torch.zeros_like(p)
                if p.grad is not None:
                    state["size"].lerp_(p.grad.square(), 0.1)
                    p.sub_(group["lr"] * p.grad / (state["size"].sqrt() + 1e-8))
        self.after()

    def after(self):
        """What else it does."""


def watch():
    return dtypetrace.trace(every="new", precision="values")


def net_of(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).to(dtype)


def train(net, optimizer, steps=70, before=lambda s: None):
    for step in range(1, steps + 1):
        before(step)
        net(torch.ones(4, 8, dtype=net[0].weight.dtype)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach() for p in net.parameters()]


def late(on):
    return [step for step in on if step > 12]


def test_a_known_step_runs_without_modes_and_counts_as_it_did_before():
    net = net_of()
    optimizer = Seen(net.parameters(), lr=1e-4)
    with watch() as t:
        weights = train(net, optimizer)
    assert t.windows.watched == 15 and late(optimizer.on) == []
    roots = [o for o in t.recording.ops if o.op == "sqrt" and o.phase == "optimizer"]
    assert roots and sum(o.count for o in roots) == 4 * 15  # four parameters
    assert max(u.steps for u in t.recording.updates) == 10 + 3  # of the last first ones each second is measured
    (state,) = t.recording.state
    assert t.recording.events[state.event].how == "factory"
    alone = net_of()
    assert all(map(torch.equal, weights, train(alone, Seen(alone.parameters(), lr=1e-4))))


class Extra(Seen):
    """Does something more in each third step."""

    def after(self):
        if self.steps % 3 == 0:
            self.param_groups[0]["params"][0].mul_(1.0)


class Counting(Seen):
    """Counts its steps in 16 bits."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.count = torch.zeros((), dtype=torch.bfloat16)

    def after(self):
        self.count += 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: (net := net_of(torch.bfloat16), Seen(net.parameters(), lr=1e-2)),
        lambda: (net := net_of(), Extra(net.parameters(), lr=1e-4)),
        lambda: (net := net_of(), Counting(net.parameters(), lr=1e-4)),
    ],
    ids=["weights in 16 bits", "other ops in each third step", "a counter in 16 bits"],
)
def test_ops_that_may_be_judged_are_seen(make):
    net, optimizer = make()
    with watch():
        train(net, optimizer)
    assert set(WINDOWS) <= set(optimizer.on)


def other_rate(optimizer):
    optimizer.param_groups[0]["lr"] = torch.tensor(1e-4)


def other_state(optimizer):
    for state in optimizer.state.values():
        state["size"] = state["size"].double()


def frozen(optimizer):
    optimizer.param_groups[0]["params"][0].requires_grad_(False)


def hooked(optimizer):
    optimizer.register_step_post_hook(lambda *given: torch.zeros(1) + 1)


@pytest.mark.parametrize("change", [other_rate, other_state, frozen, hooked])
def test_a_step_that_differs_is_seen(change):
    net = net_of()
    optimizer = Seen(net.parameters(), lr=1e-4)
    with watch():
        try:
            train(net, optimizer, 70, lambda s: change(optimizer) if s == 33 else None)
        except RuntimeError:
            assert change is other_state
    assert 17 not in optimizer.on and 33 in optimizer.on


class Fails(Seen):
    """Raises in the middle of a step."""

    at = 17

    def after(self):
        if self.steps == self.at:
            raise ValueError("not today")


@pytest.mark.parametrize("opened", [0, 2], ids=["no mode of the program", "modes of the program"])
@pytest.mark.parametrize("goes_on", [0, 30], ids=["the block ends", "training goes on"])
def test_an_exception_that_leaves_a_known_step(opened, goes_on):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Passes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    own = [Passes() for _ in range(opened)]
    for mode in own:
        mode.__enter__()
    try:
        net = net_of()
        optimizer = Fails(net.parameters(), lr=1e-4)
        with watch() as t:
            with pytest.raises(ValueError):
                train(net, optimizer)
            assert t.is_attached and modes_on() == own
            if goes_on:
                net(torch.ones(4, 8))
                assert len(modes_on()) == opened + 1
                train(net, optimizer, goes_on)
            ops = len(t.recording.ops)
        assert modes_on() == own and ops and not t._watch.recorder.broken
    finally:
        for mode in reversed(own):
            mode.__exit__(None, None, None)


def interrupted_at(line):
    """Raises SIGINT as that line is about to run: of the files that take the modes off and put them back."""
    count = 0

    def trace_lines(frame, event, arg):
        nonlocal count
        if not frame.f_code.co_filename.endswith(("known_steps.py", "hooks.py", "mode_stacks.py")):
            return None if event == "call" else trace_lines
        within = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with ")
        if event == "line" and not within:  # Python names that line again, where no signal is handled
            count += 1
            if count == line:
                signal.raise_signal(signal.SIGINT)
        return trace_lines

    net = net_of()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    with watch():
        train(net, optimizer, 16)
        net(torch.ones(4, 8)).sum().backward()
        sys.settrace(trace_lines)
        optimizer.step()
        sys.settrace(None)
    return count


def test_an_interrupt_in_a_known_step_leaves_nothing():
    lines, interrupted = interrupted_at(-1), 0
    for line in range(1, lines, max(1, lines // 40)):
        try:
            interrupted_at(line)
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            sys.settrace(None)
        assert not installed() and not modes_on(), line
    assert interrupted > 30


def test_an_op_of_a_step_has_the_place_that_the_whole_stack_has(monkeypatch):
    def recorded():
        net = net_of()
        chosen = [torch.optim.AdamW(net.parameters(), lr=1e-4), Seen(net.parameters(), lr=1e-4)]
        with dtypetrace.trace() as t:
            for optimizer in chosen:
                train(net, optimizer, 2)
        return [(o.aten, o.phase, o.count, tuple(t.recording.places[o.place].stack)) for o in t.recording.ops]

    short, whole = [], []
    for found in (short, whole):  # from one line
        found += recorded()
        monkeypatch.setattr(Places, "only_hidden", lambda *given: False)
    assert short == whole
