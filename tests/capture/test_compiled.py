"""What is compiled stays compiled inside a block, as it is without one; what is scripted keeps its texts."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import compiled_check
import pytest
import torch
import torch.nn.functional as F
import torch.nn.utils.prune
import warm
from compiled_programs import (
    AOT,
    EAGER,
    INDUCTOR,
    PROGRAMS,
    Counts,
    compiled_autograd,
    conditional,
    custom_backend,
    function_modes_of_the_program,
    graph_breaks,
    hooks_of_saved_tensors_in_autocast,
    hooks_on_a_compiled_module,
    in_another_thread,
    left_alone_inside,
    nested,
    reduce_overhead,
    refused_and_handled,
    unet,
    warnings_inside,
    whole_train_step,
)
from harmless import mlp, plain, process, quick, whole  # noqa: F401 - fixtures
from samples import one_in
from torch import nn

import dtypetrace
from dtypetrace.tracing import Trace

ROOT = Path(__file__).parents[2]
SHOWS_RESULTS = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 12)
needs_results = pytest.mark.skipif(not SHOWS_RESULTS, reason="torch shows what compiled code returns from 2.12 on")


compile_by_name = torch.compile


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


made = pytest.mark.parametrize("made", ["before", "before, and used", "inside"])
ways = pytest.mark.parametrize(
    "make",
    [compiled_module, compiled_function, compiled_by_name, compiled_in_place, compiled_by_decorator, compiled_part],
    ids=lambda f: f.__name__,
)


def use(f, model, x):
    model.zero_grad()
    y = f(x)
    y.sum().backward()
    return [plain(y), *(plain(p.grad) for p in model.parameters())]


@made
@ways
def test_what_is_compiled_stays_compiled(make, made, fresh_dynamo):
    """It runs compiled inside the block, by the same graphs as before and after it, and one op stands for each call."""
    backend, x = Counts(), torch.randn(4, 8)
    if made != "inside":
        f, model = make(backend)
    if made == "before, and used":
        use(f, model, x)
    runs = backend.runs
    before = process()
    with dtypetrace.trace() as trace:
        if made == "inside":
            f, model = make(backend)
        watched = use(f, model, x)
    assert backend.runs > runs
    assert process() == before
    whole(trace)
    graphs = backend.graphs
    assert use(f, model, x) == watched and backend.graphs == graphs
    ops = [op for op in trace.recording.ops if op.aten == "torch.compile"]
    assert ops
    if SHOWS_RESULTS:
        assert all(op.outputs == ("float32",) and op.phase == "forward" for op in ops)
    assert not {"linear", "relu"} & {op.op for op in trace.recording.ops if op.phase == "forward"}
    assert any("compile" in reason for reason in trace.recording.not_seen) is not SHOWS_RESULTS
    assert "not judged: compiled code" in repr(trace) and "no dtype problem found" not in repr(trace)


@made
@ways
def test_what_is_compiled_runs_eagerly_where_that_is_asked_for(make, made, fresh_dynamo):
    backend, x = Counts(), torch.randn(4, 8)
    if made != "inside":
        f, model = make(backend)
    if made == "before, and used":
        use(f, model, x)
        assert backend.runs
    runs = backend.runs
    before = process()
    with dtypetrace.trace(compile="eager") as trace:
        if made == "inside":
            f, model = make(backend)
        watched = use(f, model, x)
        assert backend.runs == runs
    assert process() == before
    whole(trace)
    assert {"linear", "relu"} <= {op.op for op in trace.recording.ops}
    assert any("compile" in reason for reason in trace.recording.not_seen)
    assert "not judged: compiled code (ran eagerly" in repr(trace) and "no dtype problem found" not in repr(trace)
    assert use(f, model, x) == watched
    assert backend.graphs >= 1 and backend.runs > runs


EAGERLY = (
    *(graph_breaks, left_alone_inside, custom_backend, hooks_on_a_compiled_module, whole_train_step, conditional),
    *(warnings_inside, in_another_thread, function_modes_of_the_program, refused_and_handled, nested),
)


@pytest.mark.parametrize("program", one_in(2, EAGERLY, lambda f: f.__name__))
def test_programs_compile_and_compute_the_same(program, tmp_path):
    """Frames, graphs, graph breaks, recompilations, values, gradients, random numbers and warnings."""
    in_a_process_of_its_own(program, EAGER, tmp_path)


def in_a_process_of_its_own(program, backend, folder):
    """Dynamo's counters and caches belong to the process, and other tests compile, too."""
    arguments = [compiled_check.__file__, program.__name__, backend]
    if backend == INDUCTOR:  # which does not compile in a fork
        path = os.environ | {"PYTHONPATH": str(warm.ROOT)}
        ended = subprocess.run([sys.executable, *arguments], cwd=folder, env=path, capture_output=True, text=True)
    else:
        ended = warm.run(arguments, folder, timeout=280)
    assert ended.returncode == 0, ended.stderr[-3000:]


NOT = {(unet, AOT), (reduce_overhead, AOT)}
"""Torch 2.13 itself refuses a memory format in the first; the second's mode is one of inductor's."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "backend"),
    [(hooks_of_saved_tensors_in_autocast, INDUCTOR), (compiled_autograd, AOT)]
    + [
        pytest.param(p, b, marks=pytest.mark.exhaustive) for p in PROGRAMS for b in (INDUCTOR, AOT) if (p, b) not in NOT
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_programs_compile_and_compute_the_same_with_a_compiler(program, backend, tmp_path):
    if backend == INDUCTOR and shutil.which("g++") is None:
        pytest.fail("inductor needs a C++ compiler on a CPU, and there is no g++ here: install it")
    in_a_process_of_its_own(program, backend, tmp_path)


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
            assert len(graphs) == 1
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


@needs_results
def test_nothing_is_claimed_of_what_is_inside(fresh_dynamo):
    """Operands of two dtypes come in, and a result in one of them out: the captured graph says which call decided that,
    and what its values were, nobody saw."""

    @torch.compile(backend=EAGER)
    def summed(x, w):
        return (x * w).sum(-1)

    with dtypetrace.trace(precision="values") as trace:
        model = Around()
        head = nn.Linear(64, 1).half()
        loss = torch.compile(lambda p, t: F.mse_loss(p.float(), t), backend=EAGER)
        loss(head(torch.randn(8, 64).half()), torch.rand(8, 1)).backward()
        for _ in range(3):
            summed(torch.randn(64, 64).bfloat16(), torch.randn(64, 64))
        step = torch.compile(model, backend=EAGER)
        step(torch.randn(4, 8))
    whole(trace)
    assert trace.findings == ()
    events = trace.recording.events
    assert not [e for e in events if e.op == "compiled summed"]
    (made,) = [e for e in events if e.how == "promotion"]
    assert (made.op, made.to, [events[n].op for n in made.parents]) == ("mul", "float32", ["randn"])
    assert {op.module for op in trace.recording.ops if op.op == "compiled Around"} == {"step"}


def test_a_compiled_step_is_a_step(fresh_dynamo):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    optimizer.step = torch.compile(optimizer.step, backend=EAGER)
    with dtypetrace.trace(model, precision="values") as trace:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 8)).sum().backward()
            optimizer.step()
    whole(trace)
    assert trace.recording.meta["steps"] == 3
    assert {(op.op, op.count) for op in trace.recording.ops if op.phase == "optimizer"} == {("compiled SGD.step", 3)}
    assert all(update.steps == 3 for update in trace.recording.updates)


def on_its_own(optimizer, loss):
    @torch.compile(backend=AOT)
    def step():
        optimizer.step()

    return step


def with_a_schedule(optimizer, loss):
    later = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 0.5**n)

    @torch.compile(backend=AOT)
    def step(one):
        one.step()
        later.step()

    return lambda: step(optimizer)


def of_an_object(optimizer, loss):
    class Trainer:
        def __init__(self):
            self.optimizer = optimizer

        @torch.compile(backend=AOT)
        def advance(self):
            self.optimizer.step()
            self.optimizer.zero_grad()

    return Trainer().advance


def each_second_time(optimizer, loss):
    calls = [0]

    @torch.compile(backend=AOT)
    def step():
        calls[0] += 1
        if calls[0] % 2 == 0:
            optimizer.step()

    return step


def with_its_own_gradients(optimizer, loss):
    @torch.compile(backend=AOT)
    def step():
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def left_to_python(optimizer, loss):
    @torch.compile(backend=AOT)
    def step():
        inner()

    @torch.compiler.disable
    def inner():
        optimizer.step()

    return step


@pytest.mark.parametrize(
    ("make", "steps"),
    [(on_its_own, 4), (with_a_schedule, 4), (of_an_object, 4), (each_second_time, 2)]
    + [pytest.param(left_to_python, 4, marks=needs_results)]
    + [(with_its_own_gradients, 0)],
)
@pytest.mark.filterwarnings("ignore")
def test_a_step_inside_of_a_compiled_function_is_a_step(make, steps, fresh_dynamo):
    """With the gradients that were there before the call; where others were used, what it did is not judged."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loss = lambda: model(torch.ones(2, 8)).sum()
    step = make(optimizer, loss)
    with dtypetrace.trace(model, precision="values") as trace:
        for _ in range(4):
            optimizer.zero_grad()
            loss().backward()
            step()
    whole(trace)
    assert trace.findings == ()
    assert trace.recording.meta["steps"] == steps
    assert {update.steps for update in trace.recording.updates if update.steps} == ({steps} if steps else set())


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
