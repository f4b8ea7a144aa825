"""Generators, threads, modes and interrupts across the edges of a block."""

from __future__ import annotations

import gc
import signal
import threading
from contextlib import nullcontext

import pytest
import torch
import torch.nn.utils.prune
import warm
from harmless import mlp, process, quick, whole  # noqa: F401 - fixtures
from harmless_programs import Functions, Operators
from torch import nn

import dtypetrace


def held(context):
    with context:
        yield


def test_a_mode_that_a_generator_still_holds_when_the_block_ends():
    before = process()
    mode = Functions()
    with dtypetrace.trace() as trace:
        generator = held(mode)
        next(generator)
    assert torch.overrides._get_current_function_mode_stack() == [mode]
    generator.close()
    assert process() == before
    whole(trace)


def test_a_mode_from_before_that_a_generator_lets_go_inside():
    """torch pops the innermost mode then, whichever that is; here it is the trace's."""
    before = process()
    for mode in (Functions(), Operators()):
        generator = held(mode)
        next(generator)
        with dtypetrace.trace() as trace:
            del generator
            torch.ones(2) * 2
        assert process() == before
        whole(trace)


def test_a_default_device_that_is_set_inside_stays_until_it_is_taken_back():
    before = process()
    with dtypetrace.trace() as trace:
        torch.set_default_device("meta")
        assert torch.ones(2).device.type == "meta"
    assert torch.ones(2).device.type == "meta"
    with dtypetrace.trace() as second:
        assert torch.ones(2).device.type == "meta"
        torch.set_default_device(None)
        assert torch.ones(2).device.type == "cpu"
    assert process() == before
    whole(trace)
    whole(second)


def test_grad_mode_and_autocast_held_across_the_block():
    before = process()
    contexts = [torch.no_grad(), torch.autocast("cpu", torch.bfloat16)]
    with dtypetrace.trace():
        generators = [held(c) for c in contexts]
        for g in generators:
            next(g)
    assert not torch.is_grad_enabled() and torch.is_autocast_enabled("cpu")
    for g in reversed(generators):
        g.close()
    assert process() == before


def test_threads_started_inside_are_noted_and_may_outlive_the_block():
    go, done = threading.Event(), []

    def worker():
        model = mlp()
        model(torch.ones(2, 8)).sum().backward()
        go.wait(200)
        done.append(model(torch.ones(2, 8)))

    with dtypetrace.trace() as trace:
        thread = threading.Thread(target=worker)
        thread.start()
        mlp()(torch.ones(2, 8))
        while not trace._watch.recorder.not_seen:
            assert thread.is_alive()
    go.set()
    thread.join()
    assert done
    whole(trace)
    assert any("thread" in reason for reason in trace.recording.not_seen)


def test_traces_in_two_threads_at_once():
    """Each watches its own thread."""
    before = process()
    barrier, found = threading.Barrier(2, timeout=200), {}

    def worker(name, dtype):
        with dtypetrace.trace() as trace:
            barrier.wait()
            nn.Linear(2, 2).to(dtype)(torch.ones(2, 2, dtype=dtype))
            barrier.wait()
        found[name] = trace

    threads = [threading.Thread(target=worker, args=(str(d), d)) for d in (torch.float16, torch.float64)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert process() == before
    for name, trace in found.items():
        whole(trace)
        assert {d for op in trace.recording.ops if op.op == "linear" for d in op.outputs} == {
            name.removeprefix("torch.")
        }


def test_no_interrupt_is_lost_while_tensors_die():
    """A Ctrl-C that arrives in a weak reference's callback would be printed as ignored, and the program would go on."""

    came = lost = 0

    def interrupt(*_):
        nonlocal came
        came += 1
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    # What others hang on the collector (hypothesis does) loses interrupts, too: only ours are counted.
    others, gc.callbacks[:] = gc.callbacks[:], []
    x = torch.ones(4)
    try:
        with dtypetrace.trace():
            for attempt in range(300):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-4 + attempt * 3e-6)
                    while came == attempt:
                        [x + 1 for _ in range(20)]
                    lost += 1
                except KeyboardInterrupt:
                    pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.callbacks[:] = others
    assert lost == 0


# ---------------------------------------------------------------- what only looks like a tensor, and deep stacks


class Answers:
    """No tensor, and asked for torch functions all the same."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return "answered", func.__name__


@pytest.mark.parametrize("options", [{}, {"autofix": True}], ids=str)
def test_what_is_no_tensor_but_answers_torch_functions_is_asked(options):
    from torch.nn import functional

    with dtypetrace.trace(**options) as t:
        assert torch.autograd.backward([Answers()]) == ("answered", "backward")
        assert torch.autograd.grad([Answers()], [Answers()]) == ("answered", "grad")
        weights = [Answers()] * 2
        given = functional.multi_head_attention_forward(
            *[Answers()] * 3, 4, 2, *weights, None, None, False, 0.0, *weights
        )
        assert given == ("answered", "multi_head_attention_forward")
    assert any("Answers, which has a __torch_function__ of its own" in s for s in t.recording.not_seen)


@pytest.mark.parametrize("options", [{}, {"autofix": True}, {"numerics": True}], ids=str)
def test_a_recursion_error_that_the_program_handles_ends_no_recording(options):
    class Endless(torch.nn.Module):
        def forward(self, x):
            return self(x + 1)

    def deeper(frames):
        """Which hooks run at the end of Python's stack depends on how deep the stack was before."""
        if frames:
            deeper(frames - 1)
        else:
            Endless()(torch.ones(1))

    layer = torch.nn.Linear(2, 2)
    with dtypetrace.trace(**options) as t:
        for frames in range(6):
            with pytest.raises(RecursionError):
                deeper(frames)
        layer(torch.ones(1, 2)).sum().backward()
    assert [o.module for o in t.recording.ops if o.op == "linear"][-1] == "layer"
    assert {o.phase for o in t.recording.ops} >= {"forward", "backward"}
    assert any("at Python's recursion limit" in s for s in t.recording.not_seen)


@pytest.mark.parametrize("fails", [False, True])
def test_calls_whose_end_was_not_seen_end_with_the_call_around_them(fails):
    """At the end of Python's stack torch leaves out the hooks of the innermost calls: here an entry without an end."""

    class Lost(torch.nn.Module):
        def forward(self, x):
            [thread] = t._watch.recorder.threads.values()
            thread.modules.append(thread.modules[-1]._replace(frame=-1, outer=-1))
            if fails:
                raise RecursionError
            return x

    module, layer = Lost(), torch.nn.Linear(2, 2)
    with dtypetrace.trace() as t:
        with pytest.raises(RecursionError) if fails else nullcontext():
            module(torch.ones(1))
        layer(torch.ones(1, 2))
    assert {o.module for o in t.recording.ops if o.op == "linear"} == {"layer"}


IMPORTS = """
import sys
import torch
import dtypetrace
dtypetrace.trace
before = set(sys.modules)
for options in ({}, {"numerics": True}, {"reference": True}):
    model = torch.nn.Linear(2, 2).bfloat16()
    with dtypetrace.trace(model, **options):
        model(torch.ones(1, 2).bfloat16()).sum().backward()
    print([name for name in set(sys.modules) - before if name.startswith("dtypetrace")])
"""


@pytest.mark.slow
def test_nothing_of_ours_is_imported_while_a_trace_opens_or_closes(tmp_path):
    """A profiler around it keeps the names of an import's code, which nobody owns, and fails to read them later."""
    (tmp_path / "program.py").write_text(IMPORTS)
    ended = warm.run(["program.py"], tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "[]\n" * 3), ended.stdout + ended.stderr
