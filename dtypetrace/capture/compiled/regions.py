"""Regions of compiled code run as they do alone: nothing of ours is on while they are compiled and run.

A region is a call of a function that ``torch.compile`` returned. Dynamo traces through a function mode, makes guards
about torch's tables of global hooks, and inlines whatever replaces a function of torch's. So the function mode, the
hooks and the replaced functions are away from the region's beginning to its end. The dispatch mode says that it ignores
compiled code, and torch then compiles as without one; it is away only while a compiled graph runs. So the operators
between two graphs (a graph break) are still seen. In a function that Dynamo leaves alone (``torch.compiler.disable``)
everything is on.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import Any, NamedTuple

import torch

from .. import global_hooks, mode_stacks, private, replaced, threads, warning_places
from ..calls import version_of
from ..dispatch_mode import DispatchMode, WatchingFunctionMode
from ..marks import Ref
from ..session import Session
from . import calls, refusals, torch_private

ON, BETWEEN, AWAY = 0, 1, 2
"""What is on in a thread: everything; the dispatch mode only, between compiled graphs; nothing."""


class _Here(threading.local):
    """What is on in one thread."""

    def __init__(self) -> None:
        self.state = ON
        self.outer: list[tuple[int, int, Callable[[], None], _Step | None]] = []
        """For each region and function that runs, outermost first: the state around it, the sequence number of the next
        autograd node when it began, what to call after it, and the step that it may be."""
        self.functions: tuple[list[Any], list[Any]] | None = None
        """The function modes before ours were taken off, and after; None where there were none of ours."""
        self.dispatch: tuple[list[Any], list[Any]] | None = None
        self.nodes: list[tuple[int, int]] = []
        """The autograd nodes that graphs of the region made: ranges of their sequence numbers."""
        self.unsettled = False
        """Whether modes were put on or taken off for good inside the region."""


_here = _Here()
_bare = 0
"""How many threads run compiled code now."""


def _go(state: int) -> None:
    """Puts on and takes off what differs."""
    global _bare
    was = _here.state
    if was == state:
        return
    if was == ON:
        _here.functions = _taken(mode_stacks.functions.modes(), WatchingFunctionMode, mode_stacks.functions.replace)
        with threads.lock():
            _bare += 1
            if _bare == 1:
                replaced.put_aside()
                global_hooks.put_aside(True)
    if state == AWAY:
        _here.dispatch = _taken(mode_stacks.dispatch.modes(), DispatchMode, mode_stacks.dispatch.replace)
    elif was == AWAY:
        _give_back(_here.dispatch, mode_stacks.dispatch.modes(), mode_stacks.dispatch.replace)
        _here.dispatch = None
    if state == ON:
        with threads.lock():
            _bare -= 1
            if _bare == 0:
                replaced.put_back()
                global_hooks.put_aside(False)
        _give_back(_here.functions, mode_stacks.functions.modes(), mode_stacks.functions.replace)
        _here.functions = None
    _here.state = state


def _taken(modes: list[Any], kind: type, put: Callable[[list[Any]], None]) -> tuple[list[Any], list[Any]] | None:
    """Takes the modes of a kind off, and returns the stack before and after; None where there were none."""
    others = [mode for mode in modes if not isinstance(mode, kind)]
    if len(others) == len(modes):
        return None
    put(others)
    return modes, others


def _give_back(taken: tuple[list[Any], list[Any]] | None, now: list[Any], put: Callable[[list[Any]], None]) -> None:
    """Puts back what was taken; modes that the program has put on since stay where they are."""
    if taken is None:
        return
    before, others = taken
    if now == others:
        put(before)
        return
    for depth, mode in enumerate(before):
        if mode not in others:
            now.insert(depth, mode)
    put(now)


def _begins(frame: FrameType, region: bool) -> bool:
    """Returns whether everything stays away until the end."""
    state = _here.state
    after: Callable[[], None] = _nothing
    step = None
    if region and state == ON:
        asleep = threads.asleep()
        if asleep is not None:
            asleep.compiled(torch_private.call_in(frame), frame)
        watch = threads.here()
        if asleep is not None or watch is not None:
            step = _step_in(torch_private.call_in(frame))
        if watch is not None:
            if step is not None:
                watch.hooks.step_begins(step.optimizer, (step.optimizer, *step.args), step.kwargs, frame)
            if (reference := watch.recorder.reference) is not None:  # the region may write to tensors that have one
                look = lambda: reference.unseen(calls.reached(frame))
                after = _safely(watch.recorder, "a compiled call", look, _nothing)
    _here.outer.append((state, private.next_sequence_number(), after, step))
    if region:
        _go(max(state, BETWEEN if _skipped and not torch_private.compiled_autograd() else AWAY))
    elif torch_private.runs_graph(frame):
        _go(AWAY)
    elif state == BETWEEN and _is_programs(frame):
        _go(ON)
    return _here.state == AWAY


def _ends(frame: FrameType, region: bool) -> None:
    before = _here.state
    state, first, after, step = _here.outer.pop()
    _go(state)
    after()
    watch = threads.here()
    if before == AWAY and state != AWAY and watch is not None:
        # the next operator that is seen did not make the nodes of this graph
        end = watch.recorder.thread_state().sequence = private.next_sequence_number()
        _here.nodes.append((first, end))
    if state != ON:
        return
    if _here.unsettled:
        _here.unsettled = False
        mode_stacks.settle()
    if region:
        nodes, _here.nodes = _here.nodes, []
        error = sys.exc_info()[1]
        # an exception that the program handles while it calls the region was raised in another frame
        raised = error is not None and error.__traceback__ is not None and error.__traceback__.tb_frame is frame
        if watch is not None and raised:
            watch.recorder.ledger.fresh()  # no op stands for this call
        if watch is not None and not watch.recorder.broken and not raised:
            _safely(watch.recorder, "a compiled call", lambda: calls.returned(watch.recorder, frame, nodes))
            if step is not None:
                ends = watch.hooks.step_ends if step.ran() else watch.hooks.step_was_none
                ends(step.optimizer, (step.optimizer,), {})
        elif watch is None and not raised and (asleep := threads.asleep()) is not None:
            if step is not None and step.ran():
                asleep.step_ends(step.optimizer)
        elif watch is not None and not watch.recorder.broken and error is not None:
            refused = lambda: refusals.compiling(watch.recorder, frame, error)
            _safely(watch.recorder, "a refusal while compiling", refused)


def _nothing() -> None: ...


def _safely(recorder: Session, what: str, work: Callable[[], Any], instead: Any = None) -> Any:
    """What some work of ours gives, with no function mode on; ``instead`` where it fails."""
    try:
        with private.DisableTorchFunction():
            return work()
    except Exception:
        recorder.fail(what)
        return instead


class _Step(NamedTuple):
    """A compiled call that is an optimizer's step, whose hooks are away with all others, or may have one inside."""

    optimizer: torch.optim.Optimizer
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    before: list[tuple[int, Ref | None, int]] | None
    """Where the step is inside: of each weight its version, its gradient, and the version of that, before the call."""

    def ran(self) -> bool:
        """Whether the step was taken, with the gradients that were there before."""
        if self.before is None:
            return True
        moved = False
        for weight, (version, gradient, since) in zip(_weights(self.optimizer), self.before):
            moved |= version_of(weight) != version
            now = weight.grad
            if now is not None and (gradient is None or gradient() is not now or version_of(now) != since):
                return False
        return moved


def _weights(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _noted(weight: torch.Tensor) -> tuple[int, Ref | None, int]:
    gradient = weight.grad
    return version_of(weight), *((None, 0) if gradient is None else (Ref(gradient), version_of(gradient)))


def _step_in(call: torch_private.Call) -> _Step | None:
    """The optimizer whose step is compiled, or the only one that a compiled function names, beside a ``step``."""
    owner = getattr(call.function, "__self__", None)
    if isinstance(owner, torch.optim.Optimizer):
        return _Step(owner, call.args, call.kwargs, None)
    code = getattr(call.function, "__code__", None)
    if code is None or "step" not in code.co_names:
        return None
    try:
        scope = inspect.getclosurevars(call.function)
        objects = owner, *call.args, *call.kwargs.values()
        own = [vars(one).get(name) for one in objects if hasattr(one, "__dict__") for name in code.co_names]
        held = *scope.globals.values(), *scope.nonlocals.values(), *objects, *own
        found = {id(one): one for one in held if isinstance(one, torch.optim.Optimizer)}
    except Exception:  # objects of the program's own are asked; a variable may not be set yet
        return None
    if len(found) != 1:
        return None
    (one,) = found.values()
    return _Step(one, (), {}, [_noted(weight) for weight in _weights(one)])


def _is_programs(frame: FrameType) -> bool:
    """Whether a function that Dynamo leaves alone is not torch's own."""
    code, watch = getattr(torch_private.function_in(frame), "__code__", None), threads.here()
    return code is not None and watch is not None and not watch.recorder.places.hidden(code.co_filename)


_door = torch_private.Door(_begins, _ends)
_users = 0
_skipped = False
"""Whether Dynamo passes over our dispatch handler, so that it may be on between compiled graphs."""
_backward: list[tuple[str, Any, Any]] = []
"""What is replaced in ``torch_private.BackwardNode``: the name, torch's own function, ours."""


def watch() -> Callable[[], None]:
    """Takes off what is ours round compiled code, until the returned function is called. For a program that has
    imported Dynamo."""
    global _users, _skipped
    with threads.lock():
        _users += 1
        if _users == 1:
            skip = torch_private.skip
            _skipped = torch_private.leaves_modes_on() and skip(DispatchMode.__torch_dispatch__, inside=True)
            if (shows := warning_places.ours()) is not None:  # a graph break may be a warning
                skip(shows)
                for inner in warning_places.CALLED:
                    skip(inner, inside=True)
            for function in torch_private.CALLED_ANYWHERE:
                skip(function)
            # not put aside in regions: a graph break may be a call of backward
            for name in torch_private.BACKWARD_CALLS:
                original = vars(torch_private.BackwardNode)[name]
                _backward.append((name, original, _away_in(original)))
                setattr(torch_private.BackwardNode, name, _backward[-1][2])
        _door.install()
    return _end


def _end() -> None:
    global _users
    with threads.lock():
        _users -= 1
        if not _users:
            _door.remove()
            for name, original, ours in _backward:
                if vars(torch_private.BackwardNode)[name] is ours:
                    setattr(torch_private.BackwardNode, name, original)
            _backward.clear()


def watch_captures() -> Callable[[], None]:
    """Takes off what is ours while Dynamo makes a graph of a function that does not run (``torch.export``), until the
    returned function is called."""
    ours = [replaced.Replaced(home, name, _captures(getattr(home, name))) for home, name in torch_private.captures()]

    def end() -> None:
        for one in ours:
            one.restore()

    return end


def _captures(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def capture_for(*args: Any, **kwargs: Any) -> Any:
        return without_ours(original(*args, **kwargs))

    return capture_for


def without_ours(original: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch's that makes a graph of what it runs, with everything of ours away while it does so."""

    @wraps(original)
    def capture(*args: Any, **kwargs: Any) -> Any:
        state = _here.state
        _go(AWAY)
        try:
            return original(*args, **kwargs)
        finally:
            _go(state)
            if state != AWAY and (watch := threads.here()) is not None:
                watch.recorder.thread_state().sequence = private.next_sequence_number()

    return capture


def _away_in(original: Callable[..., Any]) -> Callable[..., Any]:
    """The engine's call of a backward, with nothing of ours on while a compiled one is compiled and run."""

    def apply(self: Any, *args: Any) -> Any:
        if not hasattr(self._forward_cls, "_aot_id"):
            return original(self, *args)
        state, grads = _away_with(args)
        try:
            result = original(self, *args)
        finally:
            _go(state)
        _ran_backward(grads, result)
        return result

    torch_private.skip(apply)
    for inner in (_away_with, _go, _ran_backward):
        torch_private.skip(inner, inside=True)
    return apply


def _away_with(given: Any) -> tuple[int, list[Any]]:
    """Takes everything off; returns the state before, and what is to be recorded of some gradients."""
    state, watch, grads = _here.state, threads.here(), []
    if watch is not None and not watch.recorder.broken:
        grads = _safely(watch.recorder, "a compiled backward", lambda: calls.gradients(watch.recorder, given), [])
    _go(AWAY)
    return state, grads


def _ran_backward(grads: list[Any], result: Any) -> None:
    watch = threads.here()
    if watch is not None and not watch.recorder.broken:
        _safely(watch.recorder, "a compiled backward", lambda: calls.ran_backward(watch.recorder, grads, result))


@contextmanager
def surfaced() -> Iterator[None]:
    """Everything is on during a block, in which modes are put on or taken off for good."""
    state = _here.state
    _go(ON)
    try:
        yield
    finally:
        _go(state)
        _here.unsettled = state != ON
