"""Steps that are not watched: what a recorder keeps over them, and what is known of a refusal in one of them.

No hook saw such a refusal. Its operands are found in the traceback, as those of a refusal by plain Python are; its
function, module and phase are those that the same line had in watched steps.
"""

from __future__ import annotations

from dataclasses import replace
from types import CodeType
from typing import Any

import torch
from torch import nn

from ..tables.refusals import Refusal
from . import private, refused_calls
from .calls import dtype_name
from .ops import GrowingOp
from .running import ModuleCall, Thread
from .searched_frames import Named, Stack
from .session import Session


def rest(recorder: Session) -> torch.dtype:
    """Watching ends for some steps: drops every reference to a tensor, and keeps what is known. Returns what
    :func:`resume` needs."""
    with private.DisableTorchFunction():
        recorder.origins.rest()
    recorder.updates.rest()
    if recorder.values is not None:
        recorder.values.rest()
    recorder.threads.clear()
    recorder.running_steps.clear()
    return torch.get_default_dtype()


def resume(recorder: Session, default: torch.dtype) -> None:
    """Watching goes on. ``default``: the default dtype when it ended; a new one was set where nobody saw the line."""
    recorder.begin()
    if torch.get_default_dtype() is not default:
        recorder.default_place = -1


def leaves(recorder: Session, error: BaseException, step: int) -> None:
    """An exception that left the block ended a step that was not watched."""
    recorder.refusals.ended_by(error, lambda unknown: _from_traceback(recorder, unknown, step))


def _from_traceback(recorder: Session, raised: BaseException, step: int) -> None:
    found = refused_calls.recognised(recorder, raised)
    if found is None:
        return
    error, meaning, stack = found
    thread = recorder.thread_state()
    with private.DisableTorchFunction():
        modules = [frame.f_locals["self"] for frame, _ in stack if frame.f_code is private.MODULE_CALL]
        place = _enter(recorder, thread, modules, refused_calls.whole_stack(stack))
        known = _ran_here(recorder, place, stack)
        scene, arguments = refused_calls.scene_of_traceback(recorder, thread, stack, meaning, error, place)
        same = [op for op in known if op.op in {scene.op, *_called(recorder, stack)}]
        if same:
            scene = replace(scene, op=same[0].op, phase=same[0].phase, module=same[0].module)
        elif modules:
            phase = "forward" if scene.phase == "other" else scene.phase
            scene = replace(scene, phase=phase, module=thread.module)
        if modules:
            arguments = arguments + _parameters(modules[0], meaning, {id(v) for _, v in arguments})
        before = max((tuple(map(dtype_name, _floating(op))) for op in same), key=len, default=())
        refused_calls.record(recorder, thread, meaning, scene, arguments, error, holders=modules)
    number = recorder.refusals.number_of(error)
    if number is not None:
        recorder.refusals.update(number, unwatched=step, before=before)


def _floating(op: GrowingOp) -> list[torch.dtype]:
    return [i.dtype for i in op.inputs if i.dtype.is_floating_point or i.dtype.is_complex]


def _enter(recorder: Session, thread: Thread, modules: list[nn.Module], stack: list[tuple[CodeType, int]]) -> int:
    """Makes the modules of the traceback the running ones, as the module hooks do, and returns the number of the place
    of the whole stack: a module's ops have places that continue that of its call."""
    calls = [n for n, (code, _) in enumerate(stack) if code is private.MODULE_CALL]
    place, above = -1, len(stack)
    root = None
    for module, call in zip(reversed(modules), reversed(calls[: len(modules)])):
        place, above = recorder.places.of_frames(stack[call:above], place), call
        root = root or recorder.modules.home(module, place, lambda: [code for code, _ in stack])
        number = recorder.modules.number(module, root, thread.module)
        thread.modules.append(ModuleCall(module, number, 0, place, False, root, 0))
    return recorder.places.of_frames(stack[:above], place)


def _ran_here(recorder: Session, place: int, stack: Stack) -> list[GrowingOp]:
    """The ops that ran at this place in watched steps; where none did, those that the same line called in another
    way."""
    exact = [op for op in recorder.ops if op.place == place]
    if exact or not stack:
        return exact
    hidden = recorder.places.hidden
    caller = next(((f, i) for f, i in stack if not hidden(f.f_code.co_filename)), None)
    if caller is None:
        return []
    at = {n for n in {op.place for op in recorder.ops} if recorder.places.is_at(n, caller[0].f_code, caller[1])}
    return [op for op in recorder.ops if op.place in at]


def _called(recorder: Session, stack: Stack) -> set[str]:
    """The functions that the frames from the innermost out to the program's own were calling."""
    names: set[str] = set()
    for frame, instruction in stack:
        names.add(recorder.places.callee(frame.f_code, instruction))
        if not recorder.places.hidden(frame.f_code.co_filename):
            break
        names.add(frame.f_code.co_name)
    return names


def _parameters(module: nn.Module, meaning: Refusal, known: set[int]) -> Named:
    """The innermost module's own parameters of the dtypes that the message mentions."""
    said = set(meaning.dtypes.values())
    own: list[tuple[str, Any]] = list(module.named_parameters(recurse=False))
    return [(name, p) for name, p in own if id(p) not in known and (not said or dtype_name(p.dtype) in said)]
