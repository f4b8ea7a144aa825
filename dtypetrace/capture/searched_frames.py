"""The arguments of a refused call, found among the locals of the frames that its exception passed through.

Used where no mode saw the call: a check written in Python has the values that it checks among its locals, and the
innermost Python frame around C++ code usually has them, too.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import ChainMap
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any

import torch
from torch import nn

from ..source import expressions
from ..tables.refusals import Refusal
from . import private
from .calls import dtype_name
from .cast_arrays import Wider
from .holders import memory
from .marks import RawEvent, RawRead
from .running import RunningCall, Thread
from .session import Session
from .signatures import flatten, python_signature
from .stacks import variables

Tensor = torch.Tensor
Named = list[tuple[str, Any]]
"""Values with their names in a frame or a signature."""
Stack = list[tuple[FrameType, int]]
"""Frames with their instructions, innermost first."""
_CALLED_WRONG = ("found", "got", "recomputed")
"""Parts of a message after which the wrong dtype is named."""
_OBJECT_DEPTH = 3
"""Dictionaries that are followed into an object of torch's: a gradient bucket or a parameter group is this deep."""
_LONGEST_MAPPING = 200
"""Entries of a dictionary that are examined: enough for a parameter group, and quick."""


@dataclass(frozen=True)
class Gone:
    """A refused value that is not a tensor, or no longer exists: a dtype that was passed, a hook's result."""

    dtype: str
    event: int

    @classmethod
    def named(cls, recorder: Session, dtype: torch.dtype, op: str, place: int, reads: tuple[RawRead, ...]) -> Gone:
        """A dtype that the program named."""
        event = recorder.origins.event(RawEvent("cast", op, place, -1, (), dtype, reads=reads, explicit=True))
        return cls(dtype_name(dtype), event)


def frames_of(error: BaseException) -> Stack:
    """The frames of a traceback, innermost first."""
    found: Stack = []
    tb: TracebackType | None = error.__traceback__
    while tb is not None:
        found.append((tb.tb_frame, tb.tb_lasti))
        tb = tb.tb_next
    return found[::-1]


def public_name(frames: list[FrameType]) -> str:
    """The innermost function that a program can call: no decorator's wrapper and no name that begins with _."""
    return next(
        (f.f_code.co_name for f in frames if f.f_code.co_name[0] != "_" and "<locals>" not in f.f_code.co_qualname), ""
    )


def passed_to_module(recorder: Session, frame: FrameType | None) -> dict[Hashable, tuple[str, int]]:
    """The arguments that the program passed to the torch module in which a call was refused: name and position, by
    memory.

    The frames are torch's own; the exception is about to leave them.
    """
    call = between = None
    while frame is not None and recorder.places.hidden(frame.f_code.co_filename):
        if frame.f_code is private.MODULE_CALL:
            call = frame
        between = frame
        frame = frame.f_back
    if call is None or between is None or between.f_code.co_filename != private.module_internals.__file__:
        return {}  # called by checkpoint, by functional_call
    given = call.f_locals
    found: dict[Hashable, tuple[str, int]] = {}
    forward = inspect.getattr_static(type(given["self"]), "forward", None)
    names = python_signature(forward)[1:] if hasattr(forward, "__code__") else ()
    for position, value in enumerate(given["args"]):
        _note_passed(found, names[position] if position < len(names) else "", position, value)
    for name, value in given["kwargs"].items():
        _note_passed(found, name, -1, value)
    return found


def _note_passed(found: dict[Hashable, tuple[str, int]], name: str, position: int, value: Any) -> None:
    flat: Named = []
    flatten(flat, name, value)
    for name, tensor in flat:
        if isinstance(tensor, Tensor):
            found.setdefault(memory(tensor) or id(tensor), (name, position))


def held(recorder: Session, frames: list[FrameType], meaning: Refusal, text: str) -> Named:
    """The values that the text is about, among the locals of the innermost frame that holds any of them.

    Where the text names the argument: the innermost frame with a local of that name. Where it names a dtype: a frame
    that holds a tensor of that dtype.
    """
    for frame in frames:
        known = variables(frame)
        if meaning.argument in known and isinstance(known[meaning.argument], Tensor):
            return [(name, v) for name, v in known.items() if isinstance(v, Tensor)]
    for frame in frames:
        for deeper in (False, True):
            found = _spoken_of(_locals_of(frame, deeper), meaning, text)
            if found:
                return found
            if not recorder.places.hidden(frame.f_code.co_filename):
                break  # the program's own objects hold anything
    return []


def mentioned(recorder: Session, frame: FrameType, instruction: int, meaning: Refusal, text: str) -> Named:
    """The values that the text is about, among those that the running expression of the program's own frame reads from
    its names: ``self.hits`` in ``self.hits.mean()``. Nothing where it does not read all dtypes that the text names."""
    expression = recorder.places.expression(frame.f_code, instruction)
    known = ChainMap(variables(frame), frame.f_globals)
    found: Named = []
    for node in ast.walk(expression) if expression is not None else ():
        name = expressions.dotted(node)
        value = read(node, known) if name else None
        if isinstance(value, (Tensor, list, tuple)):
            flatten(found, name or "", value)
    found = _spoken_of(found, meaning, text)
    return found if {dtype_name(v.dtype) for _, v in found} >= set(meaning.dtypes.values()) else []


def read(node: ast.AST, known: Mapping[str, Any]) -> Any:
    """What a name has, or an attribute or entry of it, where reading that runs none of the program's code; else
    None."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    owner = read(node.value, known) if isinstance(node, (ast.Attribute, ast.Subscript)) else None
    if isinstance(node, ast.Subscript):
        key: Any = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if type(owner) is list or type(owner) is tuple:
            owner = dict(enumerate(owner))
        return owner.get(key) if type(owner) is dict else None
    if not isinstance(node, ast.Attribute) or owner is None or isinstance(owner, Tensor):
        return None
    try:
        own = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return None
    holders = (own, own.get("_parameters"), own.get("_buffers"))
    return next((h[node.attr] for h in holders if type(h) is dict and node.attr in h), None)


def constructed_from(recorder: Session, frame: FrameType | None) -> Any:
    """What the program passes to a constructor such as ``torch.FloatTensor``, which is no torch function, where that is
    a name or a part of one; None for all else."""
    if frame is None:
        return None
    call = recorder.places.expression(frame.f_code, frame.f_lasti)
    if not isinstance(call, ast.Call) or len(call.args) != 1 or call.keywords:
        return None
    known = ChainMap(variables(frame), frame.f_globals)
    made = read(call.func, known)
    return read(call.args[0], known) if made is Tensor or type(made) is type(torch.FloatTensor) else None


def wider_than(
    recorder: Session, number: int, made: Tensor, running: RunningCall | None, frame: FrameType | None
) -> Wider | None:
    """The numbers of a tensor that op ``number`` made, before NumPy cast them (``CastArrays.wider``). A constructor
    such as ``torch.FloatTensor`` casts a list by itself."""
    if running is None and type(constructed_from(recorder, frame)) in (list, tuple):
        return None
    return recorder.arrays.wider(number, made, running, frame)


def _locals_of(frame: FrameType, deeper: bool) -> Named:
    """Tensors and arrays among a frame's locals; with ``deeper``, also those of the object whose method runs."""
    found: Named = []
    for name, value in variables(frame).items():
        if isinstance(value, (Tensor, list, tuple)) or is_array(value):
            flatten(found, name, value)
        elif deeper and name == "self" and not isinstance(value, nn.Module):
            _dig(found, name, getattr(value, "__dict__", None), _OBJECT_DEPTH)
    return found


def _spoken_of(found: Named, meaning: Refusal, text: str) -> Named:
    """Those values whose dtype the text mentions."""
    said = set(meaning.dtypes.values())
    wrong = {meaning.dtypes[key] for key in _CALLED_WRONG if key in meaning.dtypes} or said
    first = {id(v): n for n, v in reversed(found)}  # a loop's variable is also an element of the list
    tensors = [(n, v) for n, v in found if isinstance(v, Tensor) and first[id(v)] == n]
    if said:
        tensors = [(n, v) for n, v in tensors if dtype_name(v.dtype) in said]
        if not any(dtype_name(v.dtype) in wrong for _, v in tensors):
            tensors = []
    return tensors + [(n, v) for n, v in found if is_array(v) and array_name(v) in text]


def _dig(found: Named, name: str, value: Any, depth: int) -> None:
    """Tensors in the dictionaries of an object of torch's own."""
    if isinstance(value, Mapping) and depth:
        for key, item in list(value.items())[:_LONGEST_MAPPING]:
            _dig(found, f"{name}.{key}" if isinstance(key, str) else name, item, depth - 1)
    elif isinstance(value, (list, tuple)) or isinstance(value, Tensor) and value.numel():
        flatten(found, name, value)


def named_dtype(
    recorder: Session,
    thread: Thread,
    frames: list[FrameType],
    caller: FrameType,
    meaning: Refusal,
    op: str,
    place: int,
) -> Named:
    """The refused value is a dtype, not a tensor: ``module.to(torch.int64)``, ``torch.finfo(x.dtype)``."""
    said = set(meaning.dtypes.values())
    for frame in frames:
        for name, value in variables(frame).items():
            if isinstance(value, torch.dtype) and (not said or dtype_name(value) in said):
                reads = recorder.births.reads_for(thread, value, caller)
                return [(name, Gone.named(recorder, value, op, place, reads))]
    if meaning.wants in ("float", "integer"):  # C++ was called here, with the dtype that was read last
        for dtype, *_ in reversed(thread.reads):
            refused = (dtype.is_floating_point or dtype.is_complex) is (meaning.wants == "integer")
            if refused and (reads := recorder.births.reads_for(thread, dtype, caller)):
                return [("dtype", Gone.named(recorder, dtype, op, place, reads))]
    return []


def hook_result(recorder: Session, meaning: Refusal, text: str) -> Named:
    """The result of a gradient's hook no longer exists. Its event is one that was recorded inside backward, in that
    hook."""
    hook = re.search(r"hook '(.+?)' has changed", text)
    if hook is None:
        return []
    found = None
    for number in range(len(recorder.origins.events) - 1, -1, -1):
        event = recorder.origins.events[number]
        inside = recorder.places.inside(event.place, recorder.backward_place)
        if inside and dtype_name(event.to) == meaning.dtypes.get("got"):
            if hook[1] in inside:
                found = number
                break
            found = number if found is None else found  # called by a wrapper of torch's (a module's hook)
    return [(f"{hook[1]}()", Gone(meaning.dtypes["got"], found))] if found is not None else []


def is_array(value: Any) -> bool:
    """Whether it is a numpy array; works without importing numpy."""
    return type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"


def array_name(value: Any) -> str:
    """``numpy.float64``, as messages write it."""
    return f"numpy.{value.dtype.type.__name__}"
