"""What is compiled or scripted runs eagerly inside a block, and compiled after it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.utils.prune
from harmless import mlp, plain, process, quick, whole  # noqa: F401 - fixtures
from samples import one_in
from torch import nn

import dtypetrace
from dtypetrace.tracing import Trace

ROOT = Path(__file__).parents[2]


compile_by_name = torch.compile


class Counts:
    """A backend that runs the graph as it is, and counts."""

    def __init__(self):
        self.graphs = self.runs = 0

    def __call__(self, graph, inputs):
        self.graphs += 1

        def run(*args):
            self.runs += 1
            return graph(*args)

        return run


def compiled_module(backend):
    model = mlp()
    return torch.compile(model, backend=backend), model


def compiled_function(backend):
    model = mlp()
    return torch.compile(lambda x: model(x), backend=backend), model


def compiled_by_name(backend):
    model = mlp()
    return compile_by_name(lambda x: model(x), backend=backend), model


class Around(nn.Module):
    """torch.compile passes over the frames of torch's own modules."""

    def __init__(self):
        super().__init__()
        self.inner = mlp()

    def forward(self, x):
        return self.inner(x)


def compiled_in_place(backend):
    model = Around()
    model.compile(backend=backend)
    return model, model


def compiled_by_decorator(backend):
    model = mlp()

    @torch.compile(backend=backend)
    def f(x):
        return model(x)

    return f, model


def compiled_part(backend):
    model = nn.Sequential(Around(), Around())
    model[0].compile(backend=backend)
    model[1] = torch.compile(model[1], backend=backend)
    return model, model


@pytest.fixture
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("made", ["before", "before, and used", "inside"])
@pytest.mark.parametrize(
    "make",
    [compiled_module, compiled_function, compiled_by_name, compiled_in_place, compiled_by_decorator, compiled_part],
    ids=lambda f: f.__name__,
)
def test_what_is_compiled_runs_eagerly_inside_and_compiled_after(make, made, fresh_dynamo):
    def use(f, model):
        model.zero_grad()
        y = f(x)
        y.sum().backward()
        return [plain(y), *(plain(p.grad) for p in model.parameters())]

    backend, x = Counts(), torch.randn(4, 8)
    if made != "inside":
        f, model = make(backend)
    if made == "before, and used":
        use(f, model)
        assert backend.runs
    runs = backend.runs
    before = process()
    with dtypetrace.trace() as trace:
        if made == "inside":
            f, model = make(backend)
        watched = use(f, model)
        assert backend.runs == runs
    assert process() == before
    whole(trace)
    assert {"linear", "relu"} <= {op.op for op in trace.recording.ops}
    assert any("compile" in reason for reason in trace.recording.not_seen)
    assert use(f, model) == watched
    assert backend.graphs >= 1 and backend.runs > runs


@pytest.mark.parametrize("w", [torch.ones(4, 4).half(), torch.ones(3, 4)], ids=["dtype", "shape"])
def test_what_torchscript_raises_keeps_its_text(w):
    f = torch.jit.script(mlp().requires_grad_(False))[0]
    f.weight = nn.Parameter(w, requires_grad=False)
    x = torch.ones(2, 4 if len(w) == 4 else 5)
    with pytest.raises(RuntimeError) as plainly:
        f(x)
    before = process()
    with pytest.raises(RuntimeError) as watched, dtypetrace.trace() as trace:
        f(x)
    assert str(watched.value) == str(plainly.value) and process() == before
    assert [f.severity for f in trace.findings] == (["error"] if w.dtype is torch.float16 else [])


def test_what_is_compiled_and_never_called_is_not_missed(fresh_dynamo):
    """Libraries decorate functions when they are imported."""
    with dtypetrace.trace() as trace:
        compiled_by_decorator(Counts())
        mlp()(torch.randn(4, 8)).sum().backward()
    assert not any("compile" in reason for reason in trace.recording.not_seen)


@pytest.mark.parametrize("inside", one_in(3, ["torch.compile", "by_name", "torch.nn.Module.compile"]))
def test_what_is_compiled_while_dynamo_is_not_yet_imported(inside):
    """The first use of torch.compile in the process is inside the block."""
    program = """
        import sys, torch, dtypetrace
        from torch import compile as by_name
        graphs = []
        def backend(graph, inputs):
            graphs.append(graph)
            return graph
        class Double(torch.nn.Module):
            def forward(self, x):
                return x * 2
        with dtypetrace.trace() as trace:
            assert "torch._dynamo" not in sys.modules
            if "HOW" == "torch.nn.Module.compile":
                f = Double()
                f.compile(backend=backend)
            else:
                f = HOW(lambda x: x * 2 + 1, backend=backend)
            f(torch.ones(2))
            assert not graphs
        f(torch.ones(2))
        assert trace._watch.recorder.broken is False
        assert torch._dynamo.eval_frame._stance.stance == "default"
        print(len(graphs))
    """.replace("HOW", inside)
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(line[8:] for line in program.splitlines())],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace:UserWarning")  # our count of steps
@pytest.mark.parametrize("watch", [{"watch_every": 3}, {"trace_steps": 2}], ids=["pauses", "ends"])
def test_the_watching_ends_inside_a_compiled_function(watch, fresh_dynamo, monkeypatch):
    """At its end a compiled function brings back the dispatch keys of its beginning, when our mode was on."""
    ends = torch._dynamo.eval_frame._maybe_set_eval_frame

    def trained(trace) -> list[float]:
        torch.manual_seed(0)
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        step, seen = torch.compile(lambda: optimizer.step(), backend="eager"), []
        with trace or contextlib.nullcontext():
            for _ in range(8):
                optimizer.zero_grad()
                model(torch.ones(2, 4)).sum().backward()
                step()
                seen.append(model.weight.sum().item())
        return seen

    assert trained(Trace(**watch)) == trained(None)
    assert not torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.Python)
    assert torch._dynamo.eval_frame._maybe_set_eval_frame is ends
