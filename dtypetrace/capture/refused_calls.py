"""What a refused call looked like: its operands, their names and origins, and the parameters around it.

Runs only when something raised. Whatever is kept is turned into plain data at once, since raw
arguments would pin activations and an exception's traceback pins the model.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile
from types import FrameType, MappingProxyType
from typing import Any

import torch
from torch import nn
from torch.overrides import get_testing_overrides

from ..records import Parameter, Refused, Witness
from ..tables import refusals
from . import private
from .marks import RawStep
from .modules import gradients_of, state_names, tensor_names

Tensor = torch.Tensor
_BACKWARDS = frozenset({"backward", "grad"})
_MOST_WITNESSES = 40
_CALLED_WRONG = ("found", "got", "recomputed")


def guarded(recorder, thread, func, args, kwargs, error: Exception, frame: FrameType | None) -> None:
    """:func:`from_call` for callers that must not fail."""
    try:
        from_call(recorder, thread, func, args, kwargs, error, frame)
    except Exception:
        recorder.fail("a refusal")


def from_call(recorder, thread, func, args, kwargs, error: Exception, frame: FrameType | None) -> None:
    """Records the refusal of a torch function or operator, if a dtype was the reason."""
    if recorder.knows(error):
        return
    op = recorder.op_name(func)
    aten = _aten(func)
    if thread.kernel is not None and thread.kernel[0] == id(error) and thread.kernel[1] == str(error):
        aten = _aten(thread.kernel[2])
    meaning = refusals.recognise(str(error), type(error).__name__, op)
    if meaning is None:
        return
    with private.DisableTorchFunction():
        forward_op = -1
        engine = frame is None or frame.f_code is private.ENGINE_CODE
        if private.current_graph_task_id() != -1:
            forward_op = recorder.forward_op()
        if engine and forward_op >= 0:
            known = recorder.ops[forward_op]
            place, module, phase = known.place, known.module, "backward"
        else:
            place = recorder.backward_place if engine else recorder.place(thread, frame)
            module = recorder.owner() if engine else thread.modules[-1][1] if thread.modules else -1
            phase = recorder.phase(thread, place)
        arguments = list(arguments_of(func, args, kwargs))
        if op in _BACKWARDS and getattr(func, "__name__", "") == op:
            phase = "backward"
            frames = [f for f, _ in _frames(error)]
            inside = list(takewhile(lambda f: f.f_code is not private.ENGINE_CODE, frames))
            inside = inside if len(inside) < len(frames) else []
            arguments = (
                _hook_result(recorder, meaning, str(error))
                or _held(recorder, inside, meaning, str(error))
                or _mismatched_gradients(recorder, meaning)
                or arguments
            )
        passed = _passed(recorder, frame) if not engine else {}
        derived = engine or phase == "backward" and op in _BACKWARDS
        _record(
            recorder,
            thread,
            meaning,
            op,
            aten,
            phase,
            module,
            place,
            arguments,
            error,
            forward_op,
            passed=passed,
            derived=derived,
        )


def _passed(recorder, frame: FrameType | None) -> dict[Any, tuple[str, int]]:
    """What the program passed to the module of torch's in which a call was refused, by place in memory: name and position.

    The frames are torch's own, and about to be left by the exception.
    """
    call, between = None, None
    while frame is not None and recorder.places.hidden(frame.f_code.co_filename):
        if frame.f_code is private.MODULE_CALL:
            call = frame
        between = frame
        frame = frame.f_back
    if (
        call is None or between.f_code.co_filename != private.module_internals.__file__
    ):  # called by checkpoint, by functional_call
        return {}
    given = call.f_locals
    forward, found = inspect.getattr_static(type(given["self"]), "forward", None), {}
    names = _python_signature(forward)[1:] if hasattr(forward, "__code__") else ()
    for position, value in enumerate(given["args"]):
        _note_passed(found, names[position] if position < len(names) else "", position, value)
    for name, value in given["kwargs"].items():
        _note_passed(found, name, -1, value)
    return found


def _note_passed(found: dict, name: str, position: int, value: Any) -> None:
    flat: list = []
    _flatten(flat, name, value)
    for name, tensor in flat:
        if isinstance(tensor, Tensor):
            found.setdefault(_memory(tensor) or id(tensor), (name, position))


def from_module(recorder, thread, module: nn.Module, args: tuple, error: Exception, frame: FrameType) -> None:
    """Records a refusal that a module's Python raised outside any torch function (LSTM, GRU, a check in a forward)."""
    meaning = refusals.recognise(str(error), type(error).__name__, type(module).__name__)
    if meaning is None:
        return
    with private.DisableTorchFunction():
        entry = next((e for e in reversed(thread.modules) if e[0] is module), None)
        number = entry[1] if entry else -1
        stack = [
            (f, i) for f, i in _frames(error)[:-1] if not recorder.places.own(f.f_code.co_filename)
        ]  # the last still runs
        place = recorder.places.of_frames(
            [(f.f_code, i) for f, i in stack], entry[3] if entry else recorder.place(thread, frame)
        )
        op, arguments = _raised_in(recorder, thread, stack, meaning, error, place)
        if not arguments:
            _flatten(arguments, "input", args if len(args) != 1 else args[0])
        known = {id(v) for _, v in arguments}
        own = list(module.named_parameters(recurse=False))
        if not own and stack:  # a container's check is of what is below it
            own = [
                (n, p) for n, p in module.named_parameters() if recorder.dtype_name(p.dtype) in meaning.dtypes.values()
            ]
        arguments += [(name, p) for name, p in own if id(p) not in known]
        if all(recorder.places.hidden(f.f_code.co_filename) for f, _ in stack):
            op = type(module).__name__  # what the program called is the module
        _record(recorder, thread, meaning, op, None, recorder.phase(thread, place), number, place, arguments, error, -1)


def from_traceback(recorder, error: BaseException) -> None:
    """Records a refusal that nothing saw raised: from its text, and what the raising frame holds.

    The principle: a check written in Python has what it checks among its locals, and so has the
    innermost Python frame around C++ code that no mode sees.
    """
    if not isinstance(error, Exception):
        return
    meaning = refusals.recognise(str(error), type(error).__name__)
    if meaning is None:
        return
    stack = [(f, i) for f, i in _frames(error) if not recorder.places.own(f.f_code.co_filename)]
    above = stack[-1][0].f_back if stack else None
    codes = [(f.f_code, i) for f, i in stack]
    while above is not None:  # from where the exception was caught up to the program's first frame
        codes.append((above.f_code, above.f_lasti))
        above = above.f_back
    place = recorder.places.of_frames(codes)
    thread = recorder.thread_state()
    with private.DisableTorchFunction():
        op, arguments = _raised_in(recorder, thread, stack, meaning, error, place)
        arguments = arguments or _mismatched_gradients(recorder, meaning)
        stepping = recorder.stepping.raised_in([f for f, _ in stack])
        phase = "optimizer" if stepping or meaning.code == "DT116" else "backward" if op in _BACKWARDS else "other"
        holders = [m for f, _ in stack for m in f.f_locals.values() if isinstance(m, nn.Module)]
        _record(recorder, thread, meaning, op, None, phase, -1, place, arguments, error, -1, holders)


def ahead(
    recorder, thread, error: Exception, code: str, phase: str, arguments: list[tuple[str, Any]], frame: FrameType | None
) -> int:
    """Records a refusal that is found before the call that would raise, and gives its number."""
    frames = []
    while frame is not None:
        frames.append((frame, frame.f_lasti))
        frame = frame.f_back
    inside = list(takewhile(lambda f: recorder.places.hidden(f.f_code.co_filename), (f for f, _ in frames)))
    place = recorder.places.of_frames([(f.f_code, i) for f, i in frames])
    meaning = refusals.Refusal(
        "ahead", code, "agree", {name: recorder.dtype_name(v.dtype) for name, v in arguments}, None
    )
    op = "backward" if phase == "backward" else _public_name(inside)
    _record(recorder, thread, meaning, op, None, phase, -1, place, arguments, error, -1)
    number = recorder.number_of(error)
    if error.__traceback__ is None:  # nobody raised it
        recorder.refused[number] = replace(recorder.refused[number], predicted=True)
    return number


def _raised_in(recorder, thread, stack, meaning, error: Exception, place: int) -> tuple[str, list[tuple[str, Any]]]:
    """What the innermost program frame of a stack called, and what was refused there."""
    hidden = recorder.places.hidden
    within = list(takewhile(lambda f: hidden(f.f_code.co_filename), (f for f, _ in stack)))
    caller, instruction = next(((f, i) for f, i in stack if not hidden(f.f_code.co_filename)), (None, 0))
    op = _public_name(within) or (recorder.places.callee(caller.f_code, instruction) if caller else "")
    arguments = _held(recorder, within, meaning, str(error))
    if (
        caller and not within and op in (type(error).__name__, caller.f_code.co_name)
    ):  # raised by the program's own check
        op = caller.f_code.co_name
        arguments = _held(recorder, [caller], meaning, str(error))
    if not arguments and caller:
        arguments = _named_dtype(recorder, thread, within, caller, meaning, op, place)
        arguments = arguments or _held(recorder, [caller], meaning, str(error))
    return op, arguments


def _frames(error: BaseException) -> list[tuple[FrameType, int]]:
    """The frames of a traceback with their instructions, innermost first."""
    found = []
    tb = error.__traceback__
    while tb is not None:
        found.append((tb.tb_frame, tb.tb_lasti))
        tb = tb.tb_next
    return found[::-1]


def _public_name(frames: list[FrameType]) -> str:
    """The innermost function that a program can call; a decorator's wrapper and what begins with _ are none."""
    return next(
        (f.f_code.co_name for f in frames if f.f_code.co_name[0] != "_" and "<locals>" not in f.f_code.co_qualname), ""
    )


def _held(recorder, frames: list[FrameType], meaning, text: str) -> list[tuple[str, Any]]:
    """What the text speaks of among the locals of a frame: the innermost that holds any of it.

    Where the text names the argument, the innermost frame that has it by that name; where it names a
    dtype that was found, a frame that holds a tensor of it.
    """
    said = set(meaning.dtypes.values())
    wrong = {meaning.dtypes[key] for key in _CALLED_WRONG if key in meaning.dtypes} or said
    for frame in frames:
        held = frame.f_locals
        if meaning.argument in held and isinstance(held[meaning.argument], Tensor):
            return [(name, v) for name, v in held.items() if isinstance(v, Tensor)]
    for frame in frames:
        for deeper in (False, True):
            found: list[tuple[str, Any]] = []
            for name, value in frame.f_locals.items():
                if isinstance(value, (Tensor, list, tuple)) or _is_array(value):
                    _flatten(found, name, value)
                elif deeper and name == "self" and not isinstance(value, nn.Module):
                    _dig(found, name, getattr(value, "__dict__", None), 3)
            first = {id(v): n for n, v in reversed(found)}  # a loop's variable is one of the list's
            tensors = [(n, v) for n, v in found if isinstance(v, Tensor) and first[id(v)] == n]
            if said:
                tensors = [(n, v) for n, v in tensors if recorder.dtype_name(v.dtype) in said]
                if not any(recorder.dtype_name(v.dtype) in wrong for _, v in tensors):
                    tensors = []
            arrays = [(n, v) for n, v in found if _is_array(v) and array_name(v) in text]
            if tensors or arrays:
                return tensors + arrays
            if not recorder.places.hidden(frame.f_code.co_filename):
                break  # the program's own objects hold anything
    return []


def _dig(found: list, name: str, value: Any, depth: int) -> None:
    """Tensors in the dictionaries of an object of torch's own."""
    if isinstance(value, Mapping) and depth:
        for key, item in list(value.items())[:200]:
            _dig(found, f"{name}.{key}" if isinstance(key, str) else name, item, depth - 1)
    elif isinstance(value, (list, tuple)) or isinstance(value, Tensor) and value.numel():
        _flatten(found, name, value)


def _named_dtype(recorder, thread, frames, caller: FrameType, meaning, op: str, place: int) -> list[tuple[str, Any]]:
    """A dtype, not a tensor, was refused: ``module.to(torch.int64)``, ``torch.finfo(x.dtype)``."""
    said = set(meaning.dtypes.values())
    for frame in frames:
        for name, value in frame.f_locals.items():
            if isinstance(value, torch.dtype) and (not said or recorder.dtype_name(value) in said):
                return [
                    (name, _Gone.named(recorder, value, op, place, recorder.births.reads_for(thread, value, caller)))
                ]
    if meaning.wants in ("float", "integer"):  # C++ was called right here, and what was read for it last is what it got
        for dtype, *_ in reversed(thread.reads):
            refused = (dtype.is_floating_point or dtype.is_complex) is (meaning.wants == "integer")
            if refused and (reads := recorder.births.reads_for(thread, dtype, caller)):
                return [("dtype", _Gone.named(recorder, dtype, op, place, reads))]
    return []


def _hook_result(recorder, meaning, text: str) -> list[tuple[str, Any]]:
    """What a gradient's hook returned is gone by now. The step that made it was taken inside backward, in that hook."""
    hook = re.search(r"hook '(.+?)' has changed", text)
    if hook is None:
        return []
    found = None
    for number in range(len(recorder.origins.steps) - 1, -1, -1):
        step = recorder.origins.steps[number]
        inside = recorder.places.inside(step.place, recorder.backward_place)
        if inside and recorder.dtype_name(step.to) == meaning.dtypes.get("got"):
            if hook[1] in inside:
                found = number
                break
            found = number if found is None else found  # called by a wrapper of torch's (a module's hook)
    return [(f"{hook[1]}()", _Gone(meaning.dtypes["got"], found))] if found is not None else []


@dataclass(frozen=True)
class _Gone:
    """What was refused and is no tensor, or none any more: a dtype that was passed, a hook's result."""

    dtype: str
    step: int

    @classmethod
    def named(cls, recorder, dtype: torch.dtype, op: str, place: int, reads) -> _Gone:
        step = recorder.origins.step(RawStep("cast", op, place, -1, (), dtype, reads=reads, explicit=True))
        return cls(recorder.dtype_name(dtype), step)


def _is_array(value: Any) -> bool:
    """Whether it is a numpy array, told without importing numpy."""
    return type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"


def array_name(value: Any) -> str:
    return f"numpy.{value.dtype.type.__name__}"


# ---------------------------------------------------------------- operands


def _record(
    recorder,
    thread,
    meaning,
    op,
    aten,
    phase,
    module,
    place,
    arguments,
    error,
    forward_op,
    holders=(),
    passed: Mapping = MappingProxyType({}),
    derived=False,
) -> None:
    dtypes = tuple((name, str(v.dtype) if isinstance(v, Tensor) else "") for name, v in arguments)
    key = (op, aten, place, module, phase, dtypes, type(error).__name__, meaning.pattern)

    def make() -> Refused:
        root = _root(recorder, thread, forward_op)
        names = _names(recorder, root, holders)
        witnesses = tuple(_witnesses(recorder, arguments, names, place, forward_op, meaning, str(error), passed))
        witnesses = tuple(replace(w, changed=_changed(recorder, w, witnesses, phase)) for w in witnesses)
        return Refused(
            op=op,
            aten=aten,
            phase=phase,
            module=module,
            place=place,
            witnesses=witnesses,
            exception=type(error).__name__,
            message=str(error),
            pattern=meaning.pattern,
            code=meaning.code,
            wants=meaning.wants,
            dtypes=tuple(meaning.dtypes.items()),
            argument=meaning.argument,
            autocast=recorder.autocast_of([v for _, v in arguments if isinstance(v, Tensor)]),
            model=_census(recorder, root, names) if root is not None else (),
            run=_run_census(recorder),
            after=len(recorder.ops),
            derived=derived,
        )

    recorder.add_refusal(key, error, make)


def _witnesses(recorder, arguments, names, place, forward_op, meaning, text, passed) -> Iterator[Witness]:
    seen = set()
    for index, (argument, value) in enumerate(arguments):
        if isinstance(value, Tensor):
            name, holder = names.get(id(value)) or _alias(value, names)
            # of a list of hundreds of tensors one for each dtype tells enough
            group = (argument.partition("[")[0], value.dtype)
            if "[" in argument and group in seen or len(seen) >= _MOST_WITNESSES:
                continue
            seen.add(group)
            mark = recorder.adopt(value, place, forward_op)
            if holder is None and isinstance(value, nn.Parameter):
                holder = "parameter"
            called, position = passed.get(_memory(value) or id(value), ("", -1))
            trained = holder == "parameter" and value.requires_grad and recorder.trains
            yield Witness(
                index, argument, recorder.dtype_name(value.dtype), tuple(value.shape), str(value.device), mark.step, mark.op, name, holder,
                passed=called, position=position, trained=trained,
            )  # fmt: skip
        elif meaning.wants == "fits" and isinstance(value, (int, float, complex)) and not isinstance(value, bool):
            yield Witness(index, argument, f"python {type(value).__name__}", (), "", name=repr(value))
        elif isinstance(value, _Gone):
            yield Witness(index, argument, value.dtype, (), "", value.step)
        elif _is_array(value) and array_name(value) in text:
            yield Witness(index, argument, array_name(value), value.shape, "")


def _changed(recorder, witness: Witness, witnesses, phase: str) -> bool:
    """Whether a cast changed the tensor's dtype while others that were made from it keep the one it had."""
    before = recorder.replaced.get(witness.step, ()) if phase in ("optimizer", "other") else ()
    return any(other.step in before and other.dtype != witness.dtype for other in witnesses)


def _alias(tensor: Tensor, names) -> tuple[str, str | None]:
    """A parameter that was transposed, expanded, sliced or detached is still that parameter."""
    base = tensor._base
    found = names.get(id(base)) if base is not None and base.dtype is tensor.dtype else None
    return found or names.get(_memory(tensor), ("", None))


def _memory(tensor: Tensor) -> tuple[int, torch.dtype] | None:
    """Where a tensor's numbers begin; None for one that has no memory of its own (meta, fake, sparse, other subclasses)."""
    plain = (
        type(tensor) in (Tensor, nn.Parameter, nn.Buffer)
        and tensor.layout is torch.strided
        and tensor.device.type != "meta"
    )
    try:
        return (tensor.data_ptr(), tensor.dtype) if plain and tensor.numel() and tensor.data_ptr() else None
    except RuntimeError:  # what vmap and grad hand in looks plain and has no storage
        return None


def arguments_of(func, args, kwargs) -> Iterator[tuple[str, Any]]:
    names = _signature(func, tuple(map(_kind, args)))
    last = len(names) - 1
    found: list[tuple[str, Any]] = []
    for i, value in enumerate(args):
        if names and names[last].startswith("*") and i >= last:
            listed = isinstance(value, (list, tuple))
            _flatten(found, names[last][1:] if listed else f"{names[last][1:]}[{i - last}]", value)
        else:
            _flatten(found, names[i] if i <= last else f"argument {i}", value)
    for name, value in kwargs.items():
        _flatten(found, name, value)
    yield from found


def _flatten(found: list, name: str, value: Any) -> None:
    if isinstance(value, tuple) and hasattr(value, "batch_sizes"):  # a PackedSequence
        found.append((name, value.data))
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            if isinstance(item, (list, tuple)) or isinstance(item, Tensor):
                _flatten(found, f"{name}[{i}]", item)
    else:
        found.append((name, value))


def _kind(value: Any) -> str:
    """What an argument is to a schema: a tensor, a list of tensors, or something else."""
    if isinstance(value, Tensor):
        return "Tensor"
    return "List" if isinstance(value, (list, tuple)) and any(isinstance(v, Tensor) for v in value) else ""


@lru_cache(maxsize=1024)
def _signature(func, kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Argument names of a torch function, as its documentation calls them; one for all the rest begins with ``*``.

    They come from its operator's schema (the overload that takes arguments of these kinds) or from its Python
    signature; where that is hidden behind ``*args``, or there is none, torch's own table of signatures knows.
    """
    schema = getattr(func, "_schema", None)
    if schema is not None:
        return tuple(a.name for a in schema.arguments)
    name = getattr(func, "__name__", "")
    if name == "__set__":
        return ("self", "value")
    if name in ("__setitem__", "__getitem__"):
        return ("self", "index", "value")
    plain = name[2:-2] if name.startswith("__") and name.endswith("__") else name
    if plain.startswith("r") and name.startswith("__"):
        return ("self", "other")
    if hasattr(func, "__code__"):
        names = _python_signature(func)
        return names if names != ("*args",) else _python_signature(get_testing_overrides().get(func, func))
    packet = getattr(torch.ops.aten, plain, None) or getattr(torch.ops.aten, name, None)
    schemas = (
        [getattr(packet, overload)._schema.arguments for overload in packet.overloads()] if packet is not None else []
    )
    schemas = [s for s in schemas if len(s) >= len(kinds)]
    if schemas:
        names = tuple(a.name for a in min(schemas, key=lambda s: sum(not _takes(a, kind) for a, kind in zip(s, kinds))))
        # torch.mm(input, mat2) and x.mm(mat2) share a schema, in which the first is self
        return (
            names if hasattr(func, "__objclass__") or plain != name or names[:1] != ("self",) else ("input", *names[1:])
        )
    return _python_signature(get_testing_overrides().get(func, func))


def _takes(argument, kind: str) -> bool:
    text = str(argument.type)  # Tensor, Optional[Tensor], List[Tensor], List[int], number ...
    if not kind:
        return "Tensor" not in text or text.startswith("Optional")
    return "Tensor" in text and ("List" in text) is (kind == "List")


def _python_signature(func) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(func).parameters.values()
    except (TypeError, ValueError):
        return ()
    kept = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]
    return tuple(f"*{p.name}" if p.kind == p.VAR_POSITIONAL else p.name for p in kept)


def _aten(func) -> str | None:
    return str(func).removeprefix("aten.") if hasattr(func, "_schema") else None


# ---------------------------------------------------------------- the parameters around it


def _root(recorder, thread, forward_op: int) -> nn.Module | None:
    if thread.modules:
        return thread.modules[0][5].ref()
    if forward_op >= 0 and recorder.ops[forward_op].root is not None:
        return recorder.ops[forward_op].root()
    return None


def _names(recorder, root: nn.Module | None, holders=()) -> dict[Any, tuple[str, str]]:
    """Names of parameters, buffers, gradients and optimizer state, by id and by place in memory; the running model's win."""
    names: dict[Any, tuple[str, str]] = {}
    gradients = {id(owner): gradient for gradient, owner in gradients_of(recorder)}
    for known in (*holders, *reversed(tuple(recorder.modules.live_roots())), *((root,) if root is not None else ())):
        own = tensor_names(known)
        held = {id(t): t for t in (*known.buffers(), *known.parameters())}
        found = {id(gradients[i]): (f"{name}.grad", "gradient") for i, (name, _) in own.items() if i in gradients}
        names.update(found | own)
        for tensor in (*held.values(), *(gradients[i] for i in held if i in gradients)):
            if id(tensor) in names and (memory := _memory(tensor)):
                names[memory] = names[id(tensor)]
    optimizer = recorder.stepping.optimizer()
    if optimizer is not None:
        names = {**state_names(optimizer, names), **names}
    return names


def _census(recorder, root: nn.Module, names) -> tuple[Parameter, ...]:
    return tuple(
        Parameter(names[id(p)][0], recorder.dtype_name(p.dtype), p.numel(), recorder.step_of(p), p.requires_grad)
        for p in root.parameters()
        if p.dtype.is_floating_point and not isinstance(p, nn.parameter.UninitializedParameter)
    )


def live_parameters(recorder) -> dict[int, nn.Parameter]:
    found = {id(p): p for root in recorder.modules.live_roots() for p in root.parameters()}
    for mark in list(recorder.origins.marks.values()):
        tensor = mark()
        if isinstance(tensor, nn.Parameter):
            found[id(tensor)] = tensor
    return {k: p for k, p in found.items() if not isinstance(p, nn.parameter.UninitializedParameter)}


def _run_census(recorder) -> tuple[tuple[str, int], ...]:
    """Numbers held per dtype by the parameters of every model that was called, else of all that are alive.

    A copy that never runs (an average of the weights, a checkpoint in memory) says little about the plan.
    """
    called = {id(p): p for root in recorder.modules.live_roots() for p in root.parameters()}
    sizes: dict[str, int] = {}
    for p in (called or live_parameters(recorder)).values():
        if p.dtype.is_floating_point:
            name = recorder.dtype_name(p.dtype)
            sizes[name] = sizes.get(name, 0) + p.numel()
    return tuple(sorted(sizes.items(), key=lambda item: -item[1]))


def _mismatched_gradients(recorder, meaning) -> list[tuple[str, Any]]:
    """Parameters whose gradient has another dtype, each with that gradient: what a reducer or bucket refuses."""
    speaks_of = set(meaning.dtypes.values())
    for grad, p in gradients_of(recorder):
        if grad.dtype is not p.dtype and (not speaks_of or recorder.dtype_name(grad.dtype) in speaks_of):
            return [("gradient", grad), ("parameter", p)]
    return []
