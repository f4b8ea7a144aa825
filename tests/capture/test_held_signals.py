"""Ctrl-C and other signals at any moment of a trace leave nothing installed, and none is lost."""

import contextlib
import gc
import os
import signal
import sys
import threading
import timeit

import pytest
import torch
from conftest import installed
from torch import nn, overrides

import dtypetrace
from dtypetrace.capture.held_signals import held
from dtypetrace.hooks import Watch

INTERRUPTS = 120


class Ended(BaseException):
    """What the handler raises: Ctrl-C itself would end the tests."""


@pytest.fixture
def alarm():
    """SIGALRM raises in the main thread, as Ctrl-C does."""

    def ends(number, frame):
        raise Ended

    before = signal.signal(signal.SIGALRM, ends)
    yield ends
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def state():
    return (
        torch._C._is_torch_function_enabled(), torch.is_grad_enabled(), torch.is_inference_mode_enabled(),
        torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack(),
        torch._C._dispatch_tls_local_exclude_set().raw_repr(), torch._C._dispatch_tls_local_include_set().raw_repr(),
    )  # fmt: skip


# ---------------------------------------------------------------- held


def test_what_comes_in_a_held_block_runs_at_its_end(alarm):
    seen = []
    with pytest.raises(Ended), held():
        signal.raise_signal(signal.SIGALRM)
        seen.append("the rest of the block")
    assert seen and signal.getsignal(signal.SIGALRM) is alarm


def test_each_handler_runs_once_even_if_another_raises(alarm):
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        with pytest.raises(Ended), held():
            signal.raise_signal(signal.SIGALRM)
            signal.raise_signal(signal.SIGUSR1)
            assert not seen
        assert seen == [signal.SIGUSR1] and callable(signal.getsignal(signal.SIGUSR1))
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_other_threads_hold_nothing(alarm):
    handlers = []
    thread = threading.Thread(target=lambda: [held().__enter__(), handlers.append(signal.getsignal(signal.SIGALRM))])
    thread.start()
    thread.join()
    assert handlers == [alarm]


# ---------------------------------------------------------------- opening and closing


@pytest.mark.parametrize("part", ["start", "stop"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupt_while_a_trace_opens_or_closes(alarm, monkeypatch, part, when):
    original, came = getattr(Watch, part), []

    def interrupted(self, *args):
        if when == "before" and not came:
            came.append(signal.raise_signal(signal.SIGALRM))
        original(self, *args)
        if not came:
            came.append(signal.raise_signal(signal.SIGALRM))

    monkeypatch.setattr(Watch, part, interrupted)
    with pytest.raises(Ended), dtypetrace.trace():
        torch.ones(2)
    assert came and installed() == []


def test_an_exit_that_never_began_closes_the_trace():
    """What an interrupt at the call of ``__exit__`` leaves: the with statement drops the context and calls nothing."""
    trace = dtypetrace.trace()
    leave = trace.__exit__
    trace.__enter__()
    assert trace.is_open and torch._C._len_torch_function_stack() == 1
    del leave
    assert not trace.is_open and installed() == []


def test_looking_at_the_exit_closes_nothing():
    trace = dtypetrace.trace()
    assert hasattr(trace, "__exit__")
    with contextlib.ExitStack() as stack:
        stack.enter_context(trace)
        assert callable(trace.__exit__) and trace.is_open
        trace.__exit__(None, None, None)
        assert not trace.is_open


def test_nothing_of_a_closed_trace_is_kept_by_its_exit():
    import weakref

    with dtypetrace.trace() as trace:
        torch.ones(2)
    gone = weakref.ref(trace)
    gc.disable()
    try:
        del trace
        assert gone() is None
    finally:
        gc.enable()


# ---------------------------------------------------------------- modes that torch has put aside


def test_a_mode_that_torch_set_aside_does_not_come_back_when_the_exception_is_freed():
    """torch's Python functions put our mode aside by a generator; an interrupt in its exit leaves that suspended."""
    leaves = contextlib._GeneratorContextManager.__exit__.__code__
    aside = overrides._pop_mode_temporarily.__wrapped__.__code__

    def strikes(frame, event, arg):
        if frame.f_code is leaves and getattr(frame.f_locals["self"].gen, "gi_code", None) is aside:
            sys.settrace(None)
            raise Ended
        return None

    caught = None
    try:
        with dtypetrace.trace():
            sys.settrace(strikes)
            nn.functional.relu(torch.ones(2))
    except Ended as error:
        caught = error
    finally:
        sys.settrace(None)
    assert caught is not None and installed() == []
    caught.__traceback__ = None
    del caught
    gc.collect()
    assert installed() == []


def test_a_mode_of_the_program_survives_an_interrupt_that_cost_ours():
    class Mode(overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Mode() as mode:
        with pytest.raises(Ended), dtypetrace.trace():
            torch._C._pop_torch_function_stack()  # what an interrupt between torch's own lines leaves
            raise Ended
        assert torch._C._get_function_stack_at(0) is mode and torch._C._len_torch_function_stack() == 1


def test_an_interrupt_just_after_an_op_was_added_leaves_a_whole_recording(monkeypatch):
    def interrupted(*operands):
        raise Ended

    monkeypatch.setattr("dtypetrace.capture.recorder.written", interrupted)
    with pytest.raises(Ended), dtypetrace.trace() as trace:
        torch.ones(2).mul_(2)
    assert [op.op for op in trace.recording.ops] == ["ones", "mul_"]
    assert not trace.recording.not_seen


@pytest.mark.parametrize("options", [{}, {"numerics": True}, {"autofix": True}], ids=str)
def test_interrupts_at_random_moments_leave_nothing(alarm, options):
    model, x, before, struck = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), torch.ones(4, 8), state(), 0

    def block():
        with dtypetrace.trace(**options):
            for _ in range(2):
                model(x).pow(2).sum().backward()

    block()
    span = timeit.timeit(block, number=1)
    for number in range(INTERRUPTS):
        try:
            # by the golden ratio: everywhere in the block, which takes longer or shorter as the machine is busy
            signal.setitimer(signal.ITIMER_REAL, max(1e-5, span * (number * 0.618034 % 1)))
            block()
            signal.setitimer(signal.ITIMER_REAL, 0)
            span *= 0.8
        except Ended:
            struck += 1
            span *= 1.1
            assert (state(), installed()) == (before, []), f"interrupt {number}"
    signal.setitimer(signal.ITIMER_REAL, 0)
    gc.collect()
    assert (state(), installed()) == (before, []) and struck > INTERRUPTS // 3


def test_nothing_of_ours_runs_between_no_grad_and_its_block():
    """An interrupt there leaves gradients off for good: torch has a few such lines of its own, a trace adds none."""
    ran = []

    def look(frame, what, _):
        if what == "call" and not torch.is_grad_enabled():
            ran.append(frame.f_code.co_filename)

    with dtypetrace.trace():
        guard = torch.no_grad()
        sys.setprofile(look)
        guard.__enter__()
        looked = list(ran)
        torch.ones(2) * 2
        sys.setprofile(None)
        guard.__exit__(None, None, None)
    ours = os.path.dirname(dtypetrace.__file__)
    assert not [file for file in looked if file.startswith(ours)]
    assert [file for file in ran if file.startswith(ours)]


@pytest.mark.parametrize("options", [{}, {"numerics": True}, {"autofix": True}], ids=str)
def test_no_function_of_ours_returns_with_a_guard_entered(options):
    """An interrupt at its end would leave torch functions or the dispatcher's modes off for good."""
    entered, returned = {}, []
    ours = os.path.dirname(dtypetrace.__file__)

    def guards():
        return torch._C._is_torch_function_enabled(), torch._C._dispatch_tls_local_exclude_set().raw_repr()

    def look(frame, what, _):
        if not frame.f_code.co_filename.startswith(ours):
            return
        if what == "call":
            entered[frame] = guards()
        elif what == "return" and entered.pop(frame, guards()) != guards():
            returned.append(f"{frame.f_code.co_qualname} in {frame.f_code.co_filename}")

    model = nn.Linear(8, 8).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    with dtypetrace.trace(**options):
        sys.setprofile(look)
        for _ in range(3):
            model(torch.ones(4, 8).bfloat16()).pow(2).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    sys.setprofile(None)
    assert not entered and sorted(set(returned)) == []


# ---------------------------------------------------------------- another thread


def test_a_trace_that_another_thread_closes_lets_calls_pass():
    trace = dtypetrace.trace()
    trace.start()
    thread = threading.Thread(target=trace.stop)
    thread.start()
    thread.join()
    assert not trace.is_open and any("another thread closed the trace" in s for s in trace.recording.not_seen)
    assert torch.equal(torch.ones(2) * 2, torch.full((2,), 2.0))  # its modes are still here
    with dtypetrace.trace() as following:
        torch.ones(2)
    assert installed() == [] and following.recording.ops
