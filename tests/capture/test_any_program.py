"""Random programs of threads, traces, exceptions, interrupts, modes, closures and forks leave the interpreter as it was.

Hypothesis chooses what happens next and in which of three threads. Each thread keeps the contexts that it entered, traces among
them, and leaves them in their order, or lets the trace go first. Whatever was done: afterwards torch's state is as before, in
every thread, and nothing that took part is alive. What a step of training gives is the same, watched or not.
"""

from __future__ import annotations

import gc
import os
import queue
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import pytest
import torch
from harmless import process
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from outcomes import OPTIONS, EmptyPair, Functions, Operators, bits
from torch import nn
from torch.utils import _python_dispatch
from torch.utils.checkpoint import checkpoint

import dtypetrace

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    # exceptions leave C++ by other threads on purpose; a fork is made while they wait
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module", autouse=True)
def flags_as_before():
    """Dispatch modes of several threads leave torch's three flags, which Dynamo guards on, wrong for what runs later."""
    before = {name: value for name, value in vars(_python_dispatch).items() if name.startswith("_is_in_")}
    yield
    for name, value in before.items():
        setattr(_python_dispatch, name, value)


class Stop(Exception):
    """What the programs raise."""


def of_this_thread() -> tuple[Any, ...]:
    """What torch keeps for each thread."""
    return (
        len(torch.overrides._get_current_function_mode_stack()),
        len(_python_dispatch._get_current_dispatch_mode_stack()),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch._C._autograd._saved_tensors_hooks_is_enabled(),
        torch._C._is_torch_function_enabled(),
        torch._C._current_graph_task_id(),
    )


def of_the_process() -> dict[str, Any]:
    """What torch and Python keep for all threads.

    Less three flags that every dispatch mode, torch's own too, saves and restores as if there were one thread.
    """
    return {name: value for name, value in process().items() if name != "flags of the dispatch modes"}


class Fiber:
    """One thread that runs what it is given: the main one at once, another by a queue."""

    def __init__(self, own_thread: bool) -> None:
        self.entered: list[tuple[str, Any]] = []
        self.asked: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._serve, daemon=True) if own_thread else None
        if self.thread is not None:
            self.thread.start()
        self.before = self.do(of_this_thread)

    def _serve(self) -> None:
        while (work := self.asked.get()) is not None:
            self.answers.put(_tried(work))
            del work

    def do(self, work: Callable[[], Any]) -> Any:
        if self.thread is None:
            answer, error = _tried(work)
        else:
            self.asked.put(work)
            answer, error = self.answers.get(timeout=60)
        if error is not None:
            raise error
        return answer

    @property
    def traced(self) -> bool:
        return any(kind == "trace" for kind, _ in self.entered)

    def end(self) -> None:
        if self.thread is not None:
            self.asked.put(None)
            self.thread.join()


def _tried(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return work(), None
    except BaseException as error:
        return None, error.with_traceback(None)


@contextmanager
def held_by_a_generator():
    with torch.no_grad():
        yield


CONTEXTS: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "inference": torch.inference_mode,
    "functions": Functions,
    "operators": Operators,
    "device": lambda: torch.device("cpu"),
    # a hook that gives the tensor itself makes a circle that no collector sees: torch's own
    "saved": lambda: torch.autograd.graph.saved_tensors_hooks(torch.Tensor.detach, lambda t: t),
    "generator": held_by_a_generator,
    "anomaly": lambda: torch.autograd.set_detect_anomaly(False),
}
MODES = {"functions", "operators", "device"}
"""torch keeps these on stacks, from which only the last one may be taken."""


# ---------------------------------------------------------------- programs


class Fails(torch.autograd.Function):
    """Raises in its backward."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        raise Stop


class Net(nn.Module):
    """Parameters that draw no random numbers, so that a step is the same in whichever thread."""

    def __init__(self, fails: str = "") -> None:
        super().__init__()
        self.inner, self.fails = torch.nn.utils.skip_init(nn.Linear, 4, 4), fails
        with torch.no_grad():
            self.inner.weight.copy_(torch.linspace(-1, 1, 16).view(4, 4))
            self.inner.bias.fill_(0.5)

    def forward(self, x):
        y = self.inner(x).tanh()
        if self.fails == "forward":
            raise Stop
        if self.fails == "dtype":
            y = y @ torch.ones(4, 4, dtype=torch.float64)
        return Fails.apply(y) if self.fails == "backward" else y


def train(net: Net, alive: list[weakref.ref]) -> list[torch.Tensor]:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    alive += [weakref.ref(v) for v in (net, net.inner, *net.parameters(), optimizer)]
    for _ in range(2):
        loss = net(torch.ones(2, 4)).square().sum()
        alive.append(weakref.ref(loss))
        if loss.requires_grad:
            loss.backward()
        optimizer.step()
    return [p.detach().clone() for p in net.parameters()]


def with_closure(net: Net, alive: list[weakref.ref]) -> list[torch.Tensor]:
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=2)
    alive += [weakref.ref(v) for v in (net, *net.parameters(), optimizer)]

    def closure():
        optimizer.zero_grad()
        loss = net(torch.ones(2, 4)).square().sum()
        if loss.requires_grad:
            loss.backward()
        return loss.detach()

    with torch.enable_grad():
        optimizer.step(closure)
    return [p.detach().clone() for p in net.parameters()]


def recomputed(net: Net, alive: list[weakref.ref]) -> list[torch.Tensor]:
    alive += [weakref.ref(v) for v in (net, *net.parameters())]
    loss = checkpoint(net, torch.ones(2, 4), use_reentrant=False, preserve_rng_state=False).sum()
    if loss.requires_grad:
        loss.backward()
    return [p.grad.clone() for p in net.parameters() if p.grad is not None]


PROGRAMS = {"train": train, "closure": with_closure, "checkpoint": recomputed}
FAILURES = ("", "forward", "backward", "dtype")


def perform(program: str, fails: str, alive: list[weakref.ref]) -> list[bytes] | None:
    """The result of one program; None where it failed, on purpose or because of inference mode."""
    try:
        return [bits(t) for t in PROGRAMS[program](Net(fails), alive)]
    except (Stop, RuntimeError):
        return None


# ---------------------------------------------------------------- interrupts

HANDLERS = {"__torch_function__", "__torch_dispatch__"}
"""An empty mode's frames have these names, where a trace has its own."""
OURS = os.path.dirname(dtypetrace.__file__) + os.sep
DEEPEST = 2
"""As many frames of ours may lie between torch's own lines that change the grad mode: the handler, and what makes the call."""

Moment = tuple[str, ...]


def moment(frame: FrameType | None) -> Moment:
    """Where an interrupt strikes: the two innermost lines outside the modes' handlers, and how deep inside ours."""
    lines: list[str] = []
    deep = 0
    while frame is not None and len(lines) < 2:
        file = frame.f_code.co_filename
        if file.startswith(OURS):
            deep += not lines
        elif frame.f_code.co_name not in HANDLERS:
            lines.append(f"{file}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return (*lines, "inside dtypetrace") if deep > DEEPEST else tuple(lines)


class Strike:
    """Ctrl-C at the call or return of so many functions, to be the same each time."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.moment: Moment = ()

    def at(self, work: Callable[[], Any]) -> Moment:
        """Runs something to its end or to the interrupt; where that came."""
        # pytest's hook keeps the exceptions that it receives, with all their frames
        lost, sys.unraisablehook = sys.unraisablehook, lambda _: None
        sys.setprofile(self._count)
        try:
            work()
        except KeyboardInterrupt:
            pass
        finally:
            self.after = 0  # what comes now is not the program's
            sys.setprofile(None)
            sys.unraisablehook = lost
        return self.moment

    def _count(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "c_call":  # the interpreter handles a signal after a call of C, and never before it
            return
        self.after -= 1
        if self.after == 0:
            self.moment = moment(frame)
            raise KeyboardInterrupt


@contextmanager
def on(modes: Any) -> Iterator[None]:
    """Modes during a block that an interrupt may end; torch itself may then have lost one, or put one back twice."""
    modes.__enter__()
    try:
        yield
    finally:
        with suppress(RuntimeError):
            modes.__exit__(None, None, None)
        while torch._C._len_torch_function_stack():
            torch._C._pop_torch_function_stack()
        while torch._C._len_torch_dispatch_stack():
            _python_dispatch._pop_mode()


def events(work: Callable[[], Any], which: Callable[[FrameType], bool]) -> list[int]:
    """The numbers of some calls and returns of a program, as :class:`Strike` counts them."""
    numbers: list[int] = []
    number = 0

    def look(frame: FrameType, event: str, _: Any) -> None:
        nonlocal number
        if event == "c_call":
            return
        number += 1
        if which(frame):
            numbers.append(number)

    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
    return numbers


def is_lost(modes: Any, work: Callable[[], Any], gradients: bool, wanted: Moment) -> bool:
    """Whether an interrupt at a moment of a program leaves the grad mode changed. Each time that it comes by is tried."""
    with torch.set_grad_enabled(gradients):
        with on(modes()):
            numbers = events(work, lambda frame: moment(frame) == wanted)
        for after in numbers:
            with on(modes()):
                Strike(after).at(work)
            if torch.is_grad_enabled() != gradients:
                return True
    return False


def torch_loses_it(work: Callable[[], Any], gradients: bool, inference: bool, struck: Moment) -> bool:
    """Whether the same interrupt has the same effect under an empty pair of modes, in a thread that nothing watches."""

    def beside() -> bool:
        with torch.inference_mode(inference):
            return is_lost(EmptyPair, work, gradients, struck)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(beside).result(timeout=60)


class Loses(Functions):
    """Changes the grad mode between two calls, and does not set it back where an interrupt comes."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.tanh:
            with torch._C.DisableTorchFunction():
                torch._C._set_grad_enabled(not torch.is_grad_enabled())
                len(args)
                torch._C._set_grad_enabled(not torch.is_grad_enabled())
        return super().__torch_function__(func, types, args, kwargs)


def small() -> None:
    with torch.no_grad():
        torch.ones(2)
    torch.ones(2).tanh()


def losses(watch: Callable[[], Any]) -> dict[Moment, bool]:
    """The moments at which an interrupt under a watch changes the grad mode, and whether torch alone loses it there."""
    by_torch: dict[Moment, bool] = {}
    seen = set()

    def once_a_line(frame: FrameType) -> bool:
        where = moment(frame), frame.f_code, frame.f_lineno
        return not torch.is_grad_enabled() and not (where in seen or seen.add(where))

    with watch():
        numbers = events(small, once_a_line)
    for after in numbers:
        with watch():
            struck = Strike(after).at(small)
        if not torch.is_grad_enabled():
            torch.set_grad_enabled(True)
            if struck not in by_torch:
                by_torch[struck] = torch_loses_it(small, True, False, struck)
    return by_torch


def test_an_interrupt_at_any_moment_loses_the_grad_mode_only_where_torch_alone_loses_it():
    small()
    lost = losses(dtypetrace.trace)
    assert lost and all(lost.values()), lost


def test_a_mode_that_loses_the_grad_mode_is_distinguished_from_torch():
    by_torch = losses(lambda: on(Loses()))
    assert set(by_torch.values()) == {True, False}
    assert all(" small" in struck[0] for struck, loses in by_torch.items() if not loses)


# ---------------------------------------------------------------- the machine

GIVEN: dict[str, list[bytes]] = {}
"""What each program gives outside all contexts."""


class AnyProgram(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        for name in PROGRAMS:
            GIVEN.setdefault(name, perform(name, "", []) or [])
        with dtypetrace.trace():
            Net()(torch.ones(1, 4))  # what is made once for all traces
        gc.collect()
        self.before = of_the_process()
        self.fibers = [Fiber(own_thread=number > 0) for number in range(3)]
        self.alive: list[weakref.ref] = []

    @rule(number=st.integers(0, 2), kind=st.sampled_from(sorted(CONTEXTS)))
    def enter(self, number: int, kind: str) -> None:
        fiber = self.fibers[number]
        context = CONTEXTS[kind]()
        fiber.do(context.__enter__)
        fiber.entered.append((kind, context))

    @rule(number=st.integers(0, 2), option=st.sampled_from(sorted(OPTIONS)))
    def open(self, number: int, option: str) -> None:
        fiber = self.fibers[number]
        trace = dtypetrace.trace(**OPTIONS[option])
        if fiber.traced:
            with pytest.raises(RuntimeError, match="already open"):
                fiber.do(trace.__enter__)
            return
        fiber.do(trace.__enter__)
        self.alive.append(weakref.ref(trace))
        fiber.entered.append(("trace", trace))

    @rule(number=st.integers(0, 2), raised=st.sampled_from([None, Stop, KeyboardInterrupt]))
    def leave(self, number: int, raised: type[BaseException] | None) -> None:
        """The innermost context is left, with an exception or without."""
        fiber = self.fibers[number]
        if not fiber.entered:
            return
        _, context = fiber.entered.pop()
        error = raised() if raised else None
        try:
            fiber.do(lambda: context.__exit__(raised, error, None))
        except BaseException as again:  # a generator raises it once more
            assert again is error

    @rule(number=st.integers(0, 2))
    def close_under_others(self, number: int) -> None:
        """The trace ends while contexts that were entered after it go on."""
        fiber = self.fibers[number]
        at = next((n for n, (kind, _) in enumerate(fiber.entered) if kind == "trace"), None)
        if at is None or any(kind in MODES for kind, _ in fiber.entered[at + 1 :]):
            return
        _, trace = fiber.entered.pop(at)
        fiber.do(lambda: trace.__exit__(None, None, None))

    @rule(number=st.integers(0, 2), program=st.sampled_from(sorted(PROGRAMS)), fails=st.sampled_from(FAILURES))
    def run(self, number: int, program: str, fails: str) -> None:
        fiber = self.fibers[number]
        given = fiber.do(lambda: perform(program, fails, self.alive))
        if not fails and {kind for kind, _ in fiber.entered} <= {"trace", *MODES}:
            assert given == GIVEN[program]

    @rule(programs=st.lists(st.sampled_from(sorted(PROGRAMS)), min_size=3, max_size=3))
    def run_at_once(self, programs: list[str]) -> None:
        """All threads train at the same time."""
        for fiber, program in zip(self.fibers[1:], programs[1:]):
            fiber.asked.put(lambda program=program: perform(program, "", self.alive))
        perform(programs[0], "", self.alive)
        for fiber in self.fibers[1:]:
            _, error = fiber.answers.get(timeout=60)
            assert error is None

    @rule(after=st.integers(1, 3000), program=st.sampled_from(sorted(PROGRAMS)))
    def interrupt(self, after: int, program: str) -> None:
        """Ctrl-C somewhere in a program of the main thread: at the call or return of so many functions, to be the same each time."""

        gradients = torch.is_grad_enabled()
        struck = Strike(after).at(lambda: perform(program, "", self.alive))
        if torch.is_grad_enabled() != gradients:
            inference = torch.is_inference_mode_enabled()
            assert torch_loses_it(lambda: perform(program, "", []), gradients, inference, struck), (
                f"not {gradients} after {struck}"
            )
            torch.set_grad_enabled(gradients)

    @precondition(lambda self: not self.fibers[0].traced)
    @rule(
        option=st.sampled_from(sorted(OPTIONS)),
        program=st.sampled_from(sorted(PROGRAMS)),
        fails=st.sampled_from(FAILURES),
    )
    def whole_block(self, option: str, program: str, fails: str) -> None:
        """A trace from its beginning to its end, and what it says."""
        with dtypetrace.trace(**OPTIONS[option]) as trace:
            perform(program, fails, self.alive)
        assert trace.findings is not None and repr(trace)

    @rule()
    def fork(self) -> None:
        """A child of the main thread computes, opens or goes on with a trace, and ends well."""
        child = os.fork()
        if not child:
            status = 1
            try:
                # autograd's threads do not outlive a fork; a fork computes without gradients
                with torch.no_grad():
                    if not self.fibers[0].traced:
                        with dtypetrace.trace():
                            Net()(torch.ones(2, 4))
                    Net()(torch.ones(2, 4))
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0

    @rule()
    def collect(self) -> None:
        gc.collect()

    @invariant()
    def no_thread_has_a_mode_of_anothers(self) -> None:
        for fiber in getattr(self, "fibers", ()):
            if not fiber.entered:
                assert fiber.do(of_this_thread) == fiber.before

    def teardown(self) -> None:
        for fiber in getattr(self, "fibers", ()):
            while fiber.entered:
                _, context = fiber.entered.pop()
                fiber.do(lambda context=context: context.__exit__(None, None, None))
                del context
            assert fiber.do(of_this_thread) == fiber.before
            fiber.end()
        if hasattr(self, "before"):
            assert of_the_process() == self.before
            gc.collect()
            left = [r() for r in self.alive if r() is not None]
            assert not left, [
                (type(v).__name__, [str(q)[:300] for q in gc.get_referrers(v) if q is not left]) for v in left
            ]


AnyProgram.TestCase.settings = settings(
    max_examples=int(os.environ.get("DTYPETRACE_PROGRAMS", "8")),
    stateful_step_count=25,
    deadline=None,
    derandomize="DTYPETRACE_PROGRAMS" not in os.environ,
    database=None,
    phases=[Phase.generate, *([Phase.shrink] if "DTYPETRACE_PROGRAMS" in os.environ else [])],
    suppress_health_check=list(HealthCheck),
)


class TestAnyProgram(AnyProgram.TestCase):
    def setUp(self) -> None:
        self.threads = torch.get_num_threads()
        torch.set_num_threads(1)
        gc.collect()
        gc.freeze()

    def tearDown(self) -> None:
        torch.set_num_threads(self.threads)
