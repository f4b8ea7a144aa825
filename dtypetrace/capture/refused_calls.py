"""The facts about a refused call: its operands, their names and origins, and the parameters around it.

Runs only after something raised. Everything kept becomes plain data at once: raw arguments would keep activations
alive, and an exception's traceback keeps the model alive.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from types import CodeType, FrameType, MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import nn

from ..records import Refused, Witness
from ..tables import refusals
from ..tables.refusals import Refusal
from . import private
from .calls import dtype_name, op_name, shape_of
from .coded import holds_codes
from .holders import (
    Names,
    holder_of,
    live_parameters,
    memory,
    mismatched_gradients,
    names_around,
    numbers_by_dtype,
    parameters_of,
    root_of,
)
from .running import Thread
from .searched_frames import (
    Gone,
    Named,
    Stack,
    array_name,
    frames_of,
    held,
    hook_result,
    is_array,
    mentioned,
    named_dtype,
    passed_to_module,
    public_name,
)
from .session import Session
from .settings import gathered, plan_of
from .signatures import arguments_of, flatten, operator_name
from .stacks import variables

Tensor = torch.Tensor
_BACKWARDS = frozenset({"backward", "grad"})
_MOST_WITNESSES = 40
"""Distinct operands of a call that are recorded: more than the arguments of any torch function."""
_MOST_CALLERS = 9
"""Frames outside of torch whose variables are looked at."""
_NOTHING_PASSED: Mapping[Hashable, tuple[str, int]] = MappingProxyType({})


class Raised(NamedTuple):
    """A call that raised; ``frame`` made it."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    error: Exception
    frame: FrameType | None


@dataclass(frozen=True)
class Scene:
    """What raised, and where."""

    op: str
    aten: str | None
    phase: str
    module: int
    place: int
    forward_op: int = -1
    derived: bool = False
    """Whether the autograd engine ran it."""


def guarded(recorder: Session, thread: Thread, raised: Raised) -> None:
    """:func:`from_call` for callers that must not fail."""
    try:
        from_call(recorder, thread, raised)
    except Exception:
        recorder.fail("a refusal")


def from_call(recorder: Session, thread: Thread, raised: Raised) -> None:
    """Records the refusal of a torch function or operator, if a dtype was the reason."""
    func, args, kwargs, error, frame = raised
    if recorder.refusals.knows(error):
        return
    op = op_name(func)
    aten = operator_name(func)
    if thread.kernel is not None and thread.kernel[:2] == (id(error), str(error)):
        aten = operator_name(thread.kernel[2])
    meaning = refusals.recognise(str(error), type(error).__name__, op)
    if meaning is None:
        return
    with private.DisableTorchFunction():
        scene = _scene_of_call(recorder, thread, op, aten, frame)
        arguments = list(arguments_of(func, args, kwargs))
        if op in _BACKWARDS and getattr(func, "__name__", "") == op:
            scene = replace(scene, phase="backward", derived=True)
            arguments = _in_backward(recorder, meaning, error) or arguments
        passed = passed_to_module(recorder, frame) if not _by_engine(frame) else _NOTHING_PASSED
        record(recorder, thread, meaning, scene, arguments, error, passed=passed)


def _by_engine(frame: FrameType | None) -> bool:
    """Whether the autograd engine runs a call, on the calling thread or on one of its own."""
    return frame is None or frame.f_code is private.ENGINE_CODE


def _scene_of_call(recorder: Session, thread: Thread, op: str, aten: str | None, frame: FrameType | None) -> Scene:
    forward_op = recorder.nodes.forward_op() if private.current_graph_task_id() != -1 else -1
    if not _by_engine(frame):
        place = recorder.place(thread, frame)
        return Scene(op, aten, recorder.phase(thread, place), thread.module, place, forward_op)
    if forward_op >= 0:
        known = recorder.ops[forward_op]
        return Scene(op, aten, "backward", known.module, known.place, forward_op, derived=True)
    place = recorder.backward_place
    return Scene(op, aten, recorder.phase(thread, place), recorder.owner(), place, forward_op, derived=True)


def _in_backward(recorder: Session, meaning: Refusal, error: Exception) -> Named:
    """The values that a call of ``backward`` was refused for: a hook's result, locals of Python code in it, a gradient;
    else none."""
    frames = [f for f, _ in frames_of(error)]
    inside = list(takewhile(lambda f: f.f_code is not private.ENGINE_CODE, frames))
    inside = inside if len(inside) < len(frames) else []
    return (
        hook_result(recorder, meaning, str(error))
        or held(recorder, inside, meaning, str(error))
        or mismatched_gradients(recorder, set(meaning.dtypes.values()))
    )


def from_module(
    recorder: Session, thread: Thread, module: nn.Module, args: tuple[Any, ...], error: Exception, frame: FrameType
) -> None:
    """Records a refusal that a module's Python raised outside any torch function: LSTM, GRU, a check in a forward."""
    meaning = refusals.recognise(str(error), type(error).__name__, type(module).__name__)
    if meaning is None:
        return
    with private.DisableTorchFunction():
        entry = next((e for e in reversed(thread.modules) if e.module is module), None)
        own = recorder.places.own
        stack = [(f, i) for f, i in frames_of(error)[:-1] if not own(f.f_code.co_filename)]  # the last still runs
        place = recorder.places.of_frames(
            [(f.f_code, i) for f, i in stack], entry.place if entry else recorder.place(thread, frame)
        )
        phase = recorder.phase(thread, place)
        inside = InModule(module, args, entry.number if entry else -1, stack, place, phase)
        _record_in_module(recorder, thread, meaning, inside, error)


def from_unseen_module(recorder: Session, error: Exception) -> None:
    """Records a refusal that was raised in the forward of a module whose hooks did not run."""
    stack = [(f, i) for f, i in frames_of(error) if not recorder.places.own(f.f_code.co_filename)]
    depth = next((n for n, (f, _) in enumerate(stack) if f.f_code.co_name == "forward" and _module_of(f)), -1)
    if depth < 0 or recorder.refusals.knows(error):
        return
    module = _module_of(stack[depth][0])
    assert module is not None
    meaning = refusals.recognise(str(error), type(error).__name__, type(module).__name__)
    if meaning is None:
        return
    with private.DisableTorchFunction():
        outermost = next(m for f, _ in reversed(stack) if f.f_code.co_name == "forward" and (m := _module_of(f)))
        root = recorder.modules.above(module) or recorder.modules.root(outermost, -1)
        code, given = stack[depth][0].f_code, stack[depth][0].f_locals
        args = tuple(given.get(name) for name in code.co_varnames[1 : code.co_argcount])
        place = recorder.places.of_frames(whole_stack(stack))
        number = recorder.modules.number(module, root)
        inside = InModule(module, args, number, stack[: depth + 1], place, "forward")
        _record_in_module(recorder, recorder.thread_state(), meaning, inside, error)


def _module_of(frame: FrameType) -> nn.Module | None:
    """The module of which a method runs."""
    owner = frame.f_locals.get("self")
    return owner if isinstance(owner, nn.Module) else None


class InModule(NamedTuple):
    """A module that refused its input, its number, and the frames inside its call."""

    module: nn.Module
    args: tuple[Any, ...]
    number: int
    stack: Stack
    place: int
    phase: str


def _record_in_module(recorder: Session, thread: Thread, meaning: Refusal, inside: InModule, error: Exception) -> None:
    module, args, number, stack, place, phase = inside
    op, arguments = _raised_in(recorder, thread, stack, meaning, error, place)
    if not arguments:
        flatten(arguments, "input", args if len(args) != 1 else args[0])
    arguments += _own_parameters(module, meaning, bool(stack), {id(v) for _, v in arguments})
    if all(recorder.places.hidden(f.f_code.co_filename) for f, _ in stack):
        op = type(module).__name__  # what the program called is the module
    scene = Scene(op, None, phase, number, place)
    record(recorder, thread, meaning, scene, arguments, error)


def _own_parameters(module: nn.Module, meaning: Refusal, deep: bool, known: set[int]) -> Named:
    """A module's own parameters. A container (``deep``) has none; its check is about the modules inside it."""
    own: Named = list(module.named_parameters(recurse=False))
    if not own and deep:
        said = set(meaning.dtypes.values())
        own = [(n, p) for n, p in module.named_parameters() if dtype_name(p.dtype) in said]
    return [(name, p) for name, p in own if id(p) not in known]


def recognised(recorder: Session, error: BaseException) -> tuple[Exception, Refusal, Stack] | None:
    """What an exception says of a refusal, and its frames without our own; None where it is none."""
    meaning = refusals.recognise(str(error), type(error).__name__) if isinstance(error, Exception) else None
    if meaning is None or not isinstance(error, Exception):
        return None
    return error, meaning, [(f, i) for f, i in frames_of(error) if not recorder.places.own(f.f_code.co_filename)]


def from_traceback(recorder: Session, raised: BaseException) -> None:
    """Records a refusal that no hook saw, from its text and the locals of the frame that raised."""
    found = recognised(recorder, raised)
    if found is None:
        return
    error, meaning, stack = found
    place = recorder.places.of_frames(whole_stack(stack))
    thread = recorder.thread_state()
    with private.DisableTorchFunction():
        scene, arguments = scene_of_traceback(recorder, thread, stack, meaning, error, place)
        holders = [m for f, _ in stack for m in variables(f).values() if isinstance(m, nn.Module)]
        record(recorder, thread, meaning, scene, arguments, error, holders)


def scene_of_traceback(
    recorder: Session, thread: Thread, stack: Stack, meaning: Refusal, error: Exception, place: int
) -> tuple[Scene, Named]:
    """What raised, and the values that were refused, by the frames that the exception left."""
    op, arguments = _raised_in(recorder, thread, stack, meaning, error, place)
    arguments = arguments or list(mismatched_gradients(recorder, set(meaning.dtypes.values())))
    stepping = recorder.stepping.raised_in([f for f, _ in stack])
    phase = "optimizer" if stepping or meaning.code == "DT116" else "backward" if op in _BACKWARDS else "other"
    return Scene(op, None, phase, -1, place), arguments


def whole_stack(stack: Stack) -> list[tuple[CodeType, int]]:
    """A traceback's stack, continued from where the exception was caught up to the program's first frame."""
    return [(f.f_code, i) for f, i in _with_callers(stack)]


def _with_callers(stack: Stack) -> Stack:
    """A stack with the frames that called its last one."""
    found = list(stack)
    above = stack[-1][0].f_back if stack else None
    while above is not None:
        found.append((above, above.f_lasti))
        above = above.f_back
    return found


def from_prediction(
    recorder: Session,
    thread: Thread,
    error: Exception,
    code: str,
    phase: str,
    arguments: Named,
    frame: FrameType | None,
) -> int:
    """Records a refusal that is found before the call that would raise; returns its number."""
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    inside = list(takewhile(lambda f: recorder.places.hidden(f.f_code.co_filename), frames))
    place = recorder.places.of_frames([(f.f_code, f.f_lasti) for f in frames])
    meaning = Refusal("ahead", code, "agree", {name: dtype_name(v.dtype) for name, v in arguments}, None)
    op = "backward" if phase == "backward" else public_name(inside)
    record(recorder, thread, meaning, Scene(op, None, phase, -1, place), arguments, error)
    number = recorder.refusals.number_of(error)
    assert number is not None, "it was recorded just now"
    if error.__traceback__ is None:  # it was never raised
        recorder.refusals.update(number, predicted=True)
    return number


def _raised_in(
    recorder: Session, thread: Thread, stack: Stack, meaning: Refusal, error: Exception, place: int
) -> tuple[str, Named]:
    """The function that the innermost program frame of a stack called, and the values that were refused there."""
    hidden = recorder.places.hidden
    text = str(error)
    within = list(takewhile(lambda f: hidden(f.f_code.co_filename), (f for f, _ in stack)))
    caller, instruction = next(((f, i) for f, i in stack if not hidden(f.f_code.co_filename)), (None, 0))
    op = public_name(within) or (recorder.places.callee(caller.f_code, instruction) if caller else "")
    arguments = held(recorder, within, meaning, text)
    if caller and not within and op in (type(error).__name__, caller.f_code.co_name):  # the program's own check
        op = caller.f_code.co_name
        arguments = held(recorder, [caller], meaning, text)
    if not arguments and caller:
        arguments = named_dtype(recorder, thread, within, caller, meaning, op, place)
        exact = [] if within else mentioned(recorder, caller, instruction, meaning, text)
        arguments = arguments or exact or held(recorder, [caller], meaning, text)
    return op, arguments


# ---------------------------------------------------------------- the record


def record(
    recorder: Session,
    thread: Thread,
    meaning: Refusal,
    scene: Scene,
    arguments: Named,
    error: Exception,
    holders: Iterable[nn.Module] = (),
    passed: Mapping[Hashable, tuple[str, int]] = _NOTHING_PASSED,
) -> None:
    dtypes = tuple((name, str(v.dtype) if isinstance(v, Tensor) else "") for name, v in arguments)
    where = (scene.op, scene.aten, scene.place, scene.module, scene.phase)
    key = (*where, dtypes, type(error).__name__, meaning.pattern)

    def make() -> Refused:
        stack = _with_callers(frames_of(error) or [(sys._getframe(), 0)])
        root = root_of(recorder, thread, scene.forward_op, (f for f, _ in stack))
        _keep_policy(recorder, root, scene.place)
        names = names_around(recorder, root, holders)
        witnesses = tuple(_witnesses(recorder, arguments, names, scene, meaning, str(error), passed))
        model = parameters_of(recorder, root, names) if root is not None else ()
        if root is not None:  # what is trained has another dtype, and was made elsewhere
            is_copy = gathered(root)
            copies = [w for w in witnesses if w.holder == "parameter" and is_copy(w.name, w.dtype)]
            witnesses = tuple(replace(w, trained=False, event=-1) if w in copies else w for w in witnesses)
            model = tuple(replace(p, trained=False) if is_copy(p.name, p.dtype) else p for p in model)
        return Refused(
            op=scene.op,
            aten=scene.aten,
            phase=scene.phase,
            module=scene.module,  # type: ignore[arg-type]  # a number until the recording is read
            place=scene.place,
            witnesses=tuple(replace(w, changed=_changed(recorder, w, witnesses, scene.phase)) for w in witnesses),
            exception=type(error).__name__,
            message=str(error),
            pattern=meaning.pattern,
            code=meaning.code,
            wants=meaning.wants,
            dtypes=tuple(meaning.dtypes.items()),
            argument=meaning.argument,
            autocast=recorder.autocast_of([v for _, v in arguments if isinstance(v, Tensor)]),
            model=model,
            run=numbers_by_dtype(recorder),
            after=len(recorder.ops),
            derived=scene.derived,
            backward=recorder.backward_place if scene.derived and scene.forward_op >= 0 else -1,
            predicted=recorder.predicts,
            beside=() if scene.derived else tuple(_beside(recorder, (f for f, _ in stack))),
        )

    number = recorder.refusals.add(key, error, make)
    tensors = ((n, memory(v)) for n, (_, v) in enumerate(arguments) if isinstance(v, Tensor))
    recorder.refusals.memories.setdefault(number, dict(tensors))


def note_callers(recorder: Session, error: BaseException, number: int) -> None:
    """Adds to a refusal whose exception left the block which local variables of its callers are its operands."""
    frames = dict.fromkeys(f for f, _ in frames_of(error) if not recorder.places.hidden(f.f_code.co_filename))
    held = [
        (index, level, name)
        for level, caller in enumerate(islice(frames, 1, _MOST_CALLERS), 1)
        for name, value in variables(caller).items()
        if issubclass(type(value), Tensor) and (where := memory(value)) is not None
        for index, was in recorder.refusals.memories[number].items()
        if was == where
    ]
    recorder.refusals.update(number, held=tuple(held))


def _beside(recorder: Session, frames: Iterable[FrameType]) -> Iterator[tuple[str, str]]:
    """The tensors that the function has which made a call, and their dtypes."""
    frame = next((f for f in frames if not recorder.places.hidden(f.f_code.co_filename)), None)
    known = variables(frame) if frame is not None else {}
    own = getattr(known.get("self"), "__dict__", {})
    kept = [own, *(own[name] for name in ("_parameters", "_buffers") if isinstance(own.get(name), dict))]
    attributes = ((f"self.{name}", value) for held in kept for name, value in held.items())
    for name, value in (*known.items(), *attributes):
        if issubclass(type(value), Tensor):
            yield name, dtype_name(value.dtype)


def _keep_policy(recorder: Session, root: nn.Module | None, place: int) -> None:
    """The plan of a model whose parameters a wrapper gathers in a dtype of its own, refused before an optimizer's first
    step: else nothing in the recording says who chose that dtype."""
    if isinstance(root, nn.Module) and not recorder.plans:
        plan = plan_of(root, place=place, event_of=recorder.event_of)
        if any(shared.computes for shared in plan.shared):
            recorder.plans.append(plan)


def _witnesses(
    recorder: Session,
    arguments: Named,
    names: Names,
    scene: Scene,
    meaning: Refusal,
    text: str,
    passed: Mapping[Hashable, tuple[str, int]],
) -> Iterator[Witness]:
    seen: set[tuple[str, torch.dtype]] = set()
    for index, (argument, value) in enumerate(arguments):
        if isinstance(value, Tensor):
            # for a list of hundreds of tensors, one for each dtype is enough; there is one index for a dimension
            group = (argument if argument.startswith("index[") else argument.partition("[")[0], value.dtype)
            if "[" in argument and group in seen or len(seen) >= _MOST_WITNESSES:
                continue
            seen.add(group)
            yield _tensor_witness(recorder, index, argument, value, names, scene, passed)
        elif meaning.wants == "fits" and isinstance(value, (int, float, complex)) and not isinstance(value, bool):
            yield Witness(index, argument, f"python {type(value).__name__}", (), "", name=repr(value))
        elif isinstance(value, Gone):
            yield Witness(index, argument, value.dtype, (), "", value.event)
        elif is_array(value) and array_name(value) in text:
            yield Witness(index, argument, array_name(value), tuple(map(int, value.shape)), "")


def _tensor_witness(
    recorder: Session,
    index: int,
    argument: str,
    value: Tensor,
    names: Names,
    scene: Scene,
    passed: Mapping[Hashable, tuple[str, int]],
) -> Witness:
    name, holder = holder_of(value, names)
    mark = recorder.origins.adopt(value, scene.place, scene.forward_op)
    if holder is None and (isinstance(value, nn.Parameter) or _is_given_to_train(recorder, value)):
        holder = "parameter"
    called, position = passed.get(memory(value) or id(value), ("", -1))
    return Witness(
        index,
        argument,
        dtype_name(value.dtype),
        shape_of(value),
        str(value.device),
        mark.event,
        mark.op,
        name,
        holder,
        passed=called,
        position=position,
        trained=holder == "parameter" and recorder.trains and _is_trained(recorder, value),
        codes=holds_codes(value, recorder.modules.live_roots()),
    )


def _is_given_to_train(recorder: Session, value: Tensor) -> bool:
    """Whether a tensor, or the one that it is a view of, is no module's and yet an optimizer's to train."""
    whole = value if value._base is None else value._base
    return whole.requires_grad and whole.is_leaf and any(p is whole for p in recorder.stepping.trained())


def _is_trained(recorder: Session, value: Tensor) -> bool:
    """Whether a tensor is a parameter that requires a gradient, or has the memory of one (``p.data``)."""
    place = None if value.requires_grad else memory(value)
    trained = (memory(p) for p in live_parameters(recorder).values() if p.requires_grad)
    return value.requires_grad or place is not None and place in trained


def _changed(recorder: Session, witness: Witness, witnesses: tuple[Witness, ...], phase: str) -> bool:
    """Whether a cast changed the tensor's dtype while others that were made from it, or an optimizer's state that was
    loaded for it before, still have the old one."""
    before = recorder.origins.replaced.get(witness.event, set()) if phase in ("optimizer", "other") else set()
    old = {dtype_name(recorder.origins.events[n].to) for n in before}

    def kept(other: Witness) -> bool:
        return other.event in before or other.holder == "state" and other.dtype in old and other.event < witness.event

    return any(kept(other) and other.dtype != witness.dtype for other in witnesses)
