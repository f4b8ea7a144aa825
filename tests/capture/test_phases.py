"""Which phase, module and line an op gets."""

from __future__ import annotations

from pathlib import Path

import harmless
import pytest
import torch
import torch.nn.functional as F
import torch.nn.utils.prune
from harmless import Raises, Refused, mlp, quick, whole  # noqa: F401 - fixtures
from torch import nn
from torch.utils.checkpoint import checkpoint

import dtypetrace


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x):
        x = self.first(x).relu()
        return checkpoint(self.second, x, use_reentrant=False)


def line_of(text: str, file: str = __file__) -> int:
    return next(i for i, line in enumerate(Path(file).read_text().splitlines(), 1) if line.strip() == text)


def test_ops_have_their_phase_module_and_line():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.ones(2, 4)
    with dtypetrace.trace(net) as trace:
        for _ in range(2):
            optimizer.zero_grad()
            loss = net(x).sum()
            loss.backward()
            optimizer.step()
        x * 2
    whole(trace)
    recording = trace.recording
    ops = [(op.phase, op.aten, op.module, recording.places[op.place].line) for op in recording.ops]
    called = line_of("loss = net(x).sum()")
    loss, step = called + 1, called + 2
    first, second = (
        line_of("x = self.first(x).relu()"),
        line_of("return checkpoint(self.second, x, use_reentrant=False)"),
    )
    assert ("forward", "addmm.default", "net.first", first) in ops
    assert ("forward", "relu.default", "net", first) in ops
    assert ("forward", "addmm.default", "net.second", second) in ops
    assert ("forward", "sum.default", "", called) in ops
    assert any(op[:3] == ("recompute", "t.default", "net.second") for op in ops)
    assert ("backward", "mm.default", "net.first", first) in ops
    assert ("backward", "threshold_backward.default", "net", first) in ops
    assert ("backward", "mm.default", "net.second", second) in ops
    assert any(op[0] == "optimizer" and op[1].startswith(("_foreach_add_", "add_")) and op[3] == step for op in ops)
    assert any(op[0] == "other" and op[1] == "mul.Tensor" for op in ops)
    assert {op.phase for op in recording.ops} == {"forward", "recompute", "backward", "optimizer", "other"}
    assert not [op for op in ops if op[0] == "forward" and "backward" in op[1]]
    assert recording.meta["steps"] == 2
    for op in recording.ops:
        if op.phase == "backward" and op.module:
            assert any(f.phase == "forward" and (f.module, f.place) == (op.module, op.place) for f in recording.ops), op
    assert ("backward", "ones_like.default", "", loss) in ops


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_ops_keep_their_module_and_line(reentrant):
    net = mlp()
    x = torch.ones(2, 8, requires_grad=True)
    with dtypetrace.trace(net) as trace:
        y = checkpoint(net, x, use_reentrant=reentrant)
        y.sum().backward()
    whole(trace)
    recording = trace.recording
    forward, again, back = (
        [op for op in recording.ops if op.phase == phase and op.module]
        for phase in ("forward", "recompute", "backward")
    )
    assert {(op.op, op.module) for op in again} == {(op.op, op.module) for op in forward if op.module}
    assert {op.module for op in back} >= {op.module for op in forward if op.aten.startswith("addmm")}
    assert any(
        recording.places[op.place].line == line_of("y = checkpoint(net, x, use_reentrant=reentrant)") for op in forward
    )


def test_a_step_that_an_exception_leaves_is_no_optimizer_phase_after_it():
    net = mlp()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def closure():
        raise ValueError("stop")

    with dtypetrace.trace() as trace:
        with pytest.raises(ValueError, match="stop"):
            optimizer.step(closure)
        torch.ones(2) * 2
        net(torch.ones(2, 8))
    phases = {op.aten: op.phase for op in trace.recording.ops}
    assert (phases["mul.Tensor"], phases["addmm.default"]) == ("other", "forward")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_module_that_an_exception_leaves_is_not_taken_for_running(error):
    def deep(depth):
        net = Raises(error("stop"))
        for _ in range(depth):
            net = nn.Sequential(net)
        return net

    def further(depth, action):
        return further(depth - 1, action) if depth else action()

    inner = nn.Sequential(nn.Tanh())
    with dtypetrace.trace() as trace:
        for depth in range(4):
            for further_down in range(4):
                for action in (lambda: torch.ones(2, 8) * 3, lambda: inner(torch.ones(2, 8))):
                    with pytest.raises(error):
                        deep(depth)(torch.ones(2, 8))
                    further(further_down, action)
    whole(trace)
    modules = {(op.aten, op.module) for op in trace.recording.ops}
    assert {m for aten, m in modules if aten == "mul.Tensor"} == {""}
    assert {m for aten, m in modules if aten == "tanh.default"} == {"inner.0"}


# ---------------------------------------------------------------- backward alone in the block


def test_a_backward_whose_forward_lies_outside():
    model = mlp()
    loss = model(torch.ones(2, 8)).sum()
    with dtypetrace.trace(model) as trace:
        loss.backward()
    whole(trace)
    assert trace.findings == ()
    back = [op for op in trace.recording.ops if op.phase == "backward"]
    assert {"mm.default", "threshold_backward.default"} <= {op.aten for op in back}
    assert {"Sequential.0", "Sequential.2"} <= {op.module for op in back}
    assert all(p.grad is not None for p in model.parameters())
    assert trace.recording.not_seen


def test_a_collision_in_a_backward_whose_forward_lies_outside():
    model = mlp()
    loss = Refused.apply(model(torch.ones(2, 8))).sum()
    with pytest.raises(RuntimeError) as info:
        with dtypetrace.trace(model) as trace:
            loss.backward()
    [finding] = trace.findings
    assert (finding.kind, finding.severity, finding.phase, finding.op) == ("collision", "error", "backward", "matmul")
    assert finding.site.line == line_of("return grad @ torch.ones(8, 8, dtype=torch.float64)", harmless.__file__)
    assert finding.culprit.dtype == "float64" and finding.culprit.origin.line == finding.site.line
    assert info.value.__notes__


def test_a_collision_in_the_engine_whose_forward_lies_outside():
    """No Python runs there: a loss whose target is float64 widens the gradient of a float16 stream."""
    x = torch.ones(4, 4, dtype=torch.float16, requires_grad=True)
    weight = torch.ones(4, 4, dtype=torch.float16, requires_grad=True)
    loss = F.huber_loss(x @ weight, torch.zeros(4, 4, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="Half|dtype|Double"):
        with dtypetrace.trace() as trace:
            loss.backward()  # refused by the engine
    [finding] = trace.findings
    assert (finding.kind, finding.severity, finding.phase) == ("collision", "error", "backward")
    assert {"float16", "float64"} <= {o.dtype for o in finding.operands}
    assert finding.site.line == line_of("loss.backward()  # refused by the engine")
    whole(trace)


def test_what_makes_a_model_is_no_forward():
    """Writing into a parameter and casting it need no gradient; computing with it does, with or without a module."""
    with dtypetrace.trace() as t:
        weight = torch.nn.Linear(4, 4).half().weight
        (weight.float() @ torch.ones(4)).sum()
    phases = {op.op: op.phase for op in t.recording.ops}
    assert phases["kaiming_uniform_"] == phases["half"] == "other"
    assert phases["matmul"] == phases["sum"] == "forward"
