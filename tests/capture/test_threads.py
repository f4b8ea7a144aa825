"""Other threads train while a trace opens, watches and closes: they are left alone, and their tensors are not looked at."""

from __future__ import annotations

import sys
import textwrap
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

import pytest
import torch
import torch.nn.modules.module as modules
import torch.optim.optimizer as optimizers
import warm
from torch import nn

import dtypetrace

PACKAGE = str(Path(dtypetrace.__file__).parent)
TABLES = [
    (modules, name)
    for name in vars(modules)
    if name.startswith("_global_") and isinstance(getattr(modules, name), dict)
]
TABLES += [(optimizers, "_global_optimizer_pre_hooks"), (optimizers, "_global_optimizer_post_hooks")]


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))


def in_another_thread(work) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()


class Guarded(nn.Parameter):
    """A parameter that writes down which dtypetrace code reads its gradient."""

    readers: list[str] = []

    @property
    def grad(self):
        caller = sys._getframe(1)
        while caller is not None and "dtypetrace" not in Path(caller.f_code.co_filename).parts[:-1]:
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename.startswith(PACKAGE):
            Guarded.readers.append(f"{Path(caller.f_code.co_filename).name}:{caller.f_lineno}")
        return torch.Tensor.grad.__get__(self)

    @grad.setter
    def grad(self, value):
        torch.Tensor.grad.__set__(self, value)


def guarded() -> nn.Sequential:
    model = mlp()
    for module in model:
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, torch.Tensor._make_subclass(Guarded, parameter.detach(), True))
    Guarded.readers = []
    return model


@pytest.mark.parametrize("options", [{}, {"numerics": True}, {"autofix": True}], ids=["plain", "numerics", "autofix"])
def test_gradients_of_a_model_that_another_thread_trains_are_not_read(options):
    """Its backward writes them without the GIL; reading one at the same time corrupts the heap."""
    model = guarded()
    with dtypetrace.trace(**options) as trace:
        thread = in_another_thread(lambda: step(model, torch.optim.SGD(model.parameters(), lr=0.1)))
        thread.join(200)
        mine = mlp()
        step(mine, torch.optim.AdamW(mine.parameters()))
        with suppress(RuntimeError):  # refused, or healed
            mine.half()(torch.ones(2, 4))
    assert trace.findings
    assert Guarded.readers == []


@pytest.mark.parametrize("options", [{}, {"numerics": True}, {"autofix": True}], ids=["plain", "numerics", "autofix"])
def test_gradients_of_a_model_that_is_only_called_here_are_not_read(options):
    """A target network: another thread trains it, this one calls it, and trains another."""
    model, mine = guarded(), mlp()
    optimizer = torch.optim.SGD(mine.parameters(), lr=0.1)
    with dtypetrace.trace(**options) as trace:
        with torch.no_grad():
            model(torch.ones(2, 4))
        step(mine, optimizer)
        with suppress(RuntimeError):
            model(torch.ones(2, 4).half())
    assert trace.findings
    assert Guarded.readers == []


# ---------------------------------------------------------------- torch's tables of global hooks


@pytest.mark.parametrize("moment", ["opens", "closes"])
@pytest.mark.parametrize(
    "register, act",
    [
        (optimizers.register_optimizer_step_pre_hook, lambda m, o: o.step()),
        (optimizers.register_optimizer_step_post_hook, lambda m, o: o.step()),
        (modules.register_module_forward_hook, lambda m, o: m(torch.ones(1, 4))),
        (lambda hook: modules.register_module_forward_hook(hook, always_call=True), lambda m, o: m(torch.ones(1, 3))),
        (
            modules.register_module_parameter_registration_hook,
            lambda m, o: setattr(m, "p", nn.Parameter(torch.ones(1))),
        ),
        (modules.register_module_buffer_registration_hook, lambda m, o: m.register_buffer("b", torch.ones(1))),
    ],
    ids=["step begins", "step ends", "module ends", "module raises", "parameter", "buffer"],
)
def test_a_trace_may_open_and_close_while_another_thread_walks_through_hooks(register, act, moment):
    inside, go, errors = threading.Event(), threading.Event(), []

    def hook(*_args):
        if threading.current_thread() is thread:
            inside.set()
            go.wait(200)

    def work():
        try:
            act(model, optimizer)
        except RuntimeError as error:
            if "mat1 and mat2" not in str(error):
                errors.append(error)

    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = register(hook)
    trace = dtypetrace.trace()
    if moment == "closes":
        trace.start()
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert inside.wait(200)
    if moment == "opens":
        trace.start()
    else:
        trace.stop()
    go.set()
    thread.join(200)
    trace.stop()
    handle.remove()
    assert errors == []


def test_what_a_thread_that_is_not_watched_does_is_not_recorded():
    with dtypetrace.trace() as trace:
        model = mlp()
        in_another_thread(lambda: step(mlp(), torch.optim.SGD(mlp().parameters(), lr=0.1))).join(200)
        model(torch.ones(1, 4))
    assert trace.recording.modules and all(
        name == "model" or name.startswith("model.") for name in trace.recording.modules
    )
    assert trace._watch.recorder.steps_done == 0 and not trace._watch.recorder.trains
    assert trace._watch.recorder.broken is False


def test_each_of_two_traces_is_called_for_its_own_thread_only():
    barrier, traces = threading.Barrier(2, timeout=200), []

    def work():
        with dtypetrace.trace() as trace:
            barrier.wait()
            model = mlp()
            step(model, torch.optim.SGD(model.parameters(), lr=0.1))
            barrier.wait()
        traces.append(trace)

    threads = [in_another_thread(work) for _ in range(2)]
    for thread in threads:
        thread.join(200)
    assert [trace._watch.recorder.steps_done for trace in traces] == [1, 1]
    assert [len(trace.recording.modules) for trace in traces] == [4, 4]


def test_hooks_of_the_program_can_be_registered_and_removed_at_any_time():
    calls = []
    before = {name: dict(getattr(module, name)) for module, name in TABLES}
    earlier = modules.register_module_forward_hook(lambda *a: calls.append("earlier"))
    with dtypetrace.trace():
        inside = modules.register_module_forward_hook(lambda *a: calls.append("inside"), always_call=True)
        nn.ReLU()(torch.ones(1))
        earlier.remove()
        nn.ReLU()(torch.ones(1))
    nn.ReLU()(torch.ones(1))
    with dtypetrace.trace():
        inside.remove()
        nn.ReLU()(torch.ones(1))
    assert calls == ["earlier", "inside", "inside", "inside"]
    assert {name: getattr(module, name) for module, name in TABLES} == before
    assert all(type(getattr(module, name)) is OrderedDict for module, name in TABLES)


def test_a_table_of_hooks_reads_as_the_programs_with_one_more():
    handle = modules.register_module_forward_pre_hook(print)
    try:
        with dtypetrace.trace():
            table = modules._global_forward_pre_hooks
            assert table and list(table)[0] == handle.id and len(list(table)) == 2
            assert table[handle.id] is print and table.get(-1) is None and handle.id in table
            assert [*table.items()] == [*zip(table.keys(), table.values())]
            assert table.pop(handle.id) is print and handle.id not in table
    finally:
        handle.remove()


def test_compiled_modules_do_not_warn_of_hooks_that_are_not_the_programs():
    with dtypetrace.trace():
        assert not modules._has_any_global_hook()
        handle = modules.register_module_forward_pre_hook(lambda *a: None)
        assert modules._has_any_global_hook()
        handle.remove()


@pytest.mark.slow
def test_threads_that_train_untraced_outlive_traces(tmp_path):
    """With the hooks looking at every live model, the process died within seconds."""
    program = """
        import sys, threading, torch, dtypetrace
        from torch import nn
        torch.set_num_threads(1); sys.setswitchinterval(1e-5)
        stop, errors, steps = False, [], 0
        def train():
            global steps
            model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            while not stop:
                try:
                    optimizer.zero_grad(); model(torch.ones(2, 4)).sum().backward(); optimizer.step(); steps += 1
                except Exception as error:
                    errors.append(error)
        threads = [threading.Thread(target=train) for _ in range(2)]
        [t.start() for t in threads]
        traces = 0
        while traces < 300 or steps < 300:
            with dtypetrace.trace(): torch.ones(2) * 2
            traces += 1
        stop = True
        [t.join() for t in threads]
        print(len(errors))
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    done = warm.run(["program.py"], tmp_path)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
