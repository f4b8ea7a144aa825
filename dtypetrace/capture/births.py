"""Which event decided a tensor's dtype: the decisions behind every step.

Asked only where an operator's output does not simply share its operands' dtype, and where the
function mode knows more than the dispatch mode: a dtype that the call names, the tensor that it was
read from, autocast, a parameter's registration.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from ..tables.operators import CONVERSIONS, LIKES, NAMED_CASTS
from . import private
from .marks import RawRead, RawStep

if TYPE_CHECKING:
    from .recorder import Thread

Tensor = torch.Tensor
_KEPT_READS = 16
_READ_DEPTH = 6
_CANDIDATES = 4

# the calls whose very meaning is a change of dtype; a cast inside any other call is torch's own doing
CAST_CALLS = frozenset({Tensor.to, Tensor.type, Tensor.type_as})
# isinstance takes three times as long to say no as to look a type up
_HOLDS_NONE = frozenset(
    {int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
)
_NUMBERS = frozenset({int, float, bool})
LIFT_FRESH = torch.ops.aten.lift_fresh.default
LIKE = frozenset(getattr(torch.ops.aten, n).default for n in LIKES if hasattr(torch.ops.aten, n))
TO_COPY = torch.ops.aten._to_copy.default
TO_DTYPE = torch.ops.aten.to.dtype
_VIEW_DTYPE = torch.ops.aten.view.dtype
_SET_STORAGE = torch.ops.aten.set_.source_Storage_storage_offset


def dtype_name(dtype: torch.dtype) -> str:
    return _NAMES.get(dtype) or _NAMES.setdefault(dtype, str(dtype).removeprefix("torch."))


_NAMES: dict[torch.dtype, str] = {}


def op_name(function: Any) -> str:
    """The name that users know a torch function by: ``linear``, ``matmul``, ``setitem``, ``dtype``.

    >>> op_name(torch.Tensor.__matmul__)
    'matmul'
    """
    name = getattr(function, "__name__", None) or str(function)
    if name in ("__get__", "__set__", "__delete__"):
        return getattr(getattr(function, "__self__", None), "__name__", name)
    packet = getattr(function, "overloadpacket", None)
    if packet is not None:
        name = packet.__name__
    return name[2:-2] if name.startswith("__") and name.endswith("__") else name


class Births:
    """Decides steps for one recorder."""

    def __init__(self, recorder) -> None:
        self.recorder = recorder
        self.origins = recorder.origins
        self.places = recorder.places

    def decide(self, func, inputs, dtypes, out, made, place, module, call, forward_op) -> int:
        """The step of an output whose operands do not all have its dtype."""
        origins = self.origins
        floating = [(t, d) for t, d in zip(inputs, dtypes) if d.is_floating_point or d.is_complex]
        same = [t for t, d in zip(inputs, dtypes) if d is made]
        source = tuple(dict.fromkeys(d for _, d in floating))
        name = op_name(call[0]) if call else op_name(func)
        if (
            call is not None and name in NAMED_CASTS and func is not TO_COPY
        ):  # inference mode leaves `to` and `type_as` whole
            return origins.step(RawStep("cast", name, place, module, source or (dtypes[0],), made, explicit=True))
        if same:
            parent = next((t for t in same if t.dim()), same[0])
            mark = self.recorder.adopt(parent, place, forward_op)
            if made.is_floating_point or made.is_complex:
                dims = any(t.dim() for t in same)
                narrower = [
                    d for t, d in floating if d is not made and d.itemsize <= made.itemsize and (t.dim() or not dims)
                ]
                if narrower:
                    return origins.step(RawStep("promotion", name, place, module, source, made, (mark.step,)))
            return mark.step
        if func is TO_COPY:
            how = "cast"
            if call is not None and name not in NAMED_CASTS and named_dtype(call[1], call[2]) is None and call[4]:
                # autocast's own cast: to its dtype, or to the widest operand of an op on its promote list
                how = "autocast"
                for other in tensors_in(call[1], call[2]):
                    if other.dtype is made:
                        mark = self.recorder.mark_of(other, place)
                        return origins.step(
                            RawStep("promotion", name, place, module, (*source, made), made, (mark.step,))
                        )
            return origins.step(RawStep(how, name, place, module, source or (dtypes[0],), made, explicit=how == "cast"))
        if func is _VIEW_DTYPE:
            return origins.step(RawStep(_birth_kind("reinterpret"), name, place, module, tuple(dtypes), made))
        if made.is_floating_point or made.is_complex:
            explicit = call is not None and named_dtype(call[1], call[2]) is not None
            if explicit:
                return origins.step(
                    RawStep("cast", name, place, module, source or tuple(dict.fromkeys(dtypes)), made, explicit=True)
                )
            if not floating:
                default = self.recorder.default_place if made is torch.get_default_dtype() else -1
                return origins.step(
                    RawStep("promotion", name, place, module, tuple(dict.fromkeys(dtypes)), made, default=default)
                )
            parents = tuple(dict.fromkeys(self.recorder.adopt(t, place, forward_op).step for t, _ in floating))
            if len(source) == 1 and source[0].is_complex != made.is_complex:
                # abs, view_as_real, fft: the same precision in another form
                return origins.step(RawStep("form", name, place, module, source, made, parents))
            if made.itemsize >= max(d.itemsize for d in source):
                return origins.step(RawStep("promotion", name, place, module, source, made, parents))
            return origins.step(RawStep("cast", name, place, module, source, made))
        return origins.step(RawStep("factory", name, place, module, source, made))

    def birth(self, func, made, place, module, call, thread) -> int:
        """The step of a tensor made from no tensor."""
        name = op_name(call[0]) if call else op_name(func)
        explicit = call is not None and named_dtype(call[1], call[2]) is not None
        if explicit and thread.inside is not None and thread.inside[1] is made and self._inside(thread.inside[0]):
            return thread.inside[2]  # torch.eye(n, dtype=x.dtype) in torch's own code: x decided
        if call is not None and not explicit and func is not LIFT_FRESH:
            like = next((t for t in tensors_in(call[1], call[2]) if t.dtype is made), None)
            if like is not None:  # pad_sequence: a blank made inside the call, in the dtype of what was passed
                return self.recorder.mark_of(like, place).step
        default = self.recorder.default_place if not explicit and made is torch.get_default_dtype() else -1
        how = "factory"
        if func is LIFT_FRESH or name in CONVERSIONS or func is _SET_STORAGE:
            how = "conversion"
            if name == "lift_fresh":
                name = "from_numpy"
        step = RawStep(how, name, place, module, (), made, default=default, explicit=explicit)
        number = self.origins._numbers.get(step)
        if number is None:
            how = _birth_kind(how)
            number = self.origins.step(step._replace(how=how))
            if how != step.how:
                self.origins._numbers[step] = number
        return number

    def like(self, func, like, made, place, module, call) -> int:
        """The step of integers or booleans made like others. ``ones_like(tokens)`` decides for itself that its ones are
        integers; a blank made inside another call does not."""
        name = op_name(func)
        if call is None or op_name(call[0]) != name:
            return self.recorder.mark_of(like, place).step
        explicit = named_dtype(call[1], call[2]) is not None
        return self.origins.step(RawStep("factory", name, place, module, (), made, explicit=explicit))

    def _inside(self, frame_id: int) -> bool:
        """Whether it is torch's own code that makes the call, in the frame of that id."""
        frame = sys._getframe(2)
        while frame is not None and self.places.own(frame.f_code.co_filename):
            frame = frame.f_back
        return frame is not None and id(frame) == frame_id and self.places.hidden(frame.f_code.co_filename)

    # ------------------------------------------------------------ what only the function mode knows

    def read_dtype(self, thread: Thread, tensor: Tensor, dtype: torch.dtype, frame: FrameType | None) -> None:
        """Remembers a read of ``tensor.dtype``: the value may decide another tensor's dtype."""
        if frame is None:
            return
        if self.places.hidden(frame.f_code.co_filename):
            known = self.origins.of(tensor)
            thread.inside = (id(frame), dtype, known.step) if known is not None else None
            return
        mark = self.origins.of(tensor)
        if mark is None:
            mark = self.recorder.mark_of(tensor, self.recorder.place(thread, frame))
        place = self.recorder.place(thread, frame)
        reads = thread.reads
        reads.append((dtype, place, mark.step, self._stack(frame), len(thread.modules)))
        if len(reads) > _KEPT_READS:
            del reads[0]

    def _stack(self, frame: FrameType | None) -> list[tuple[int, int]]:
        """The nearest frames outside torch, each as ids of the frame and its code: enough to know a live frame again."""
        frames = []
        while frame is not None and len(frames) < _READ_DEPTH:
            if not self.places.hidden(frame.f_code.co_filename):
                frames.append((id(frame), id(frame.f_code)))
            frame = frame.f_back
        return frames

    def reads_for(self, thread: Thread, dtype: torch.dtype, frame: FrameType | None) -> tuple[RawRead, ...]:
        """The reads that may have given a call its dtype argument: made by the same live frame, or else by a caller on
        the way to it, nearest first. Which one it was is told from the text at report time."""
        here = self._stack(frame)
        found: dict[int, tuple[int, RawRead]] = {}
        for value, place, step, frames, _depth in reversed(thread.reads):
            if value is not dtype or place in found:
                continue
            up = next((i for i, f in enumerate(frames) if f in here), -1)
            if up >= 0:
                down = here.index(frames[up])
                # an id may be a dead frame's, used again; two live frames that are one have the same callers
                if all(a == b for a, b in zip(frames[up:], here[down:])):
                    found[place] = (down, RawRead(value, place, step, up))
        nearest = sorted(found.values(), key=lambda entry: entry[0])[:_CANDIDATES]
        return tuple(read for _, read in nearest)

    def called(self, thread: Thread, func, args, kwargs, out, frame: FrameType | None) -> None:
        """After a torch function: what only the function mode knows of its output's dtype."""
        if not isinstance(out, Tensor):
            return
        origins = self.origins
        mark = origins.of(out)
        place = -1
        if mark is None:
            place = self.recorder.place(thread, frame)
            operand = next((t for t in tensors_in(args, kwargs) if t.dtype is out.dtype), None)
            if operand is not None:
                mark = origins.mark(
                    out, self.recorder.mark_of(operand, place).step, self.recorder.mark_of(operand, place).op
                )
            else:
                made = self.birth(func, out.dtype, place, -1, [func, args, kwargs, place, False], thread)
                mark = origins.mark(out, made, -1)
        name = op_name(func)
        other = named_dtype(args, kwargs)
        if other is None and name in NAMED_CASTS:
            other = _named_tensor(args, kwargs)
        if other is not None:
            self._attribute(thread, mark, out, other, args, frame, name)
        elif private.any_autocast_enabled() and out.dtype is _autocast_dtype(out):
            operands = {t.dtype for t in tensors_in(args, kwargs) if t.dtype.is_floating_point}
            if (
                operands - {out.dtype}
                and name not in NAMED_CASTS
                and not any(out is t for t in tensors_in(args, kwargs))
            ):
                place = self.recorder.place(thread, frame) if place < 0 else place
                module = thread.modules[-1][1] if thread.modules else -1
                source = tuple(sorted(operands, key=str))
                mark.step = origins.step(RawStep("autocast", name, place, module, source, out.dtype))

    def _attribute(self, thread, mark, out, other, args, frame, name) -> None:
        """The call named a dtype. Where the name was read from a tensor, that tensor's origin comes into play."""
        origins = self.origins
        place = self.recorder.place(thread, frame)
        if isinstance(other, Tensor):  # x.to(other), type_as: the other tensor's dtype, beyond doubt
            reads = (RawRead(other.dtype, place, self.recorder.mark_of(other, place).step, -1),)
        else:
            reads = self.reads_for(thread, out.dtype, frame) if thread.reads else ()
        if not reads:
            return
        step = origins.steps[mark.step]
        unchanged = bool(args) and out is args[0]
        if unchanged:
            own = origins.root(mark.step)
            reads = tuple(r for r in reads if origins.root(r.step) != own)
            if reads and not (step.how == "attribute" and step.place == place and step.reads == reads):
                module = thread.modules[-1][1] if thread.modules else -1
                new = RawStep("attribute", name, place, module, (out.dtype,), out.dtype, (mark.step,), reads)
                mark.step = origins.step(new)
        elif step.how in ("cast", "factory", "promotion", "conversion") and step.place == place and not step.parents:
            mark.step = origins.step(step._replace(reads=reads))

    def given(self, args: tuple, place: int) -> None:
        """What an outermost module is called with: tensors from before are named by their argument there."""
        for index, value in enumerate(args):
            if isinstance(value, Tensor):
                parts = ((f"#{index}", value),)
            elif isinstance(value, dict):
                parts = tuple((f"#{index}[{key!r}]", v) for key, v in value.items() if isinstance(v, Tensor))
            else:
                continue
            for name, tensor in parts:
                with private.DisableTorchFunction():
                    self.recorder.mark_of(tensor, place, name)

    def registered(self, name: str, tensor: Tensor, frame: FrameType | None) -> None:
        """A parameter or buffer was set on a module; one that its constructor has just made is a ``parameter``."""
        place = self.recorder.place(self.recorder.thread_state(), frame)
        mark = self.origins.of(tensor)
        if mark is None:
            step = RawStep("parameter", "", place, -1, (), tensor.dtype, name=name)
            self.origins.mark(tensor, self.origins.step(step), -1)
        else:
            step = self.origins.steps[mark.step]
            if step.how == "factory" and (step.place == place or self._in_constructor(step.place, place)):
                mark.step = self.origins.step(step._replace(how="parameter", name=name))

    def _in_constructor(self, made: int, registered: int) -> bool:
        """Whether a library's constructor made a tensor and has it registered: ``self.weight = nn.Parameter(torch.ones(size))``."""
        code = self.places.same_call(made, registered)
        return code is not None and code.co_name == "__init__" and not self.recorder.user(code.co_filename)


def _birth_kind(how: str) -> str:
    """Tells a checkpoint load and a worker's batch from other births by the frames that make the tensor."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.endswith(("torch/serialization.py", "safetensors/torch.py")):
            return "load"
        if name.endswith("torch/multiprocessing/reductions.py"):
            return "worker"
        frame = frame.f_back
    return how


def tensors_in(args, kwargs=None) -> list[Tensor]:
    """The tensors among a call's arguments, and in the lists and tuples among them."""
    found = []
    for a in (*args, *kwargs.values()) if kwargs else args:
        kind = type(a)
        if kind is Tensor:
            found.append(a)
        elif kind in _HOLDS_NONE:
            continue
        elif isinstance(a, Tensor):
            found.append(a)
        elif isinstance(a, (list, tuple)) and not (a and kind is list and type(a[0]) in _NUMBERS):  # no shape, no mask
            for b in a:
                if isinstance(b, Tensor):
                    found.append(b)
    return found


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """A tensor's shape; -1 for a symbolic size, nothing for a nested tensor."""
    try:
        return tuple([n if type(n) is int else -1 for n in tensor.shape])
    except RuntimeError:
        return ()


def named_dtype(args, kwargs) -> torch.dtype | None:
    """The dtype that a call names among its arguments."""
    if kwargs:
        dtype = kwargs.get("dtype")
        if isinstance(dtype, torch.dtype):
            return dtype
    return next((a for a in args if isinstance(a, torch.dtype)), None)


def _named_tensor(args, kwargs) -> Tensor | None:
    """The tensor whose dtype a cast takes: ``x.to(y)``, ``x.type_as(y)``."""
    if len(args) == 2 and isinstance(args[1], Tensor):
        return args[1]
    other = kwargs.get("other") if kwargs else None
    return other if isinstance(other, Tensor) else None


def _autocast_dtype(tensor: Tensor) -> torch.dtype | None:
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if device != "meta" and torch.is_autocast_enabled(device) else None


def autocast_of(tensors, on: bool = False) -> str:
    """``"cpu:bfloat16"`` where autocast is on for the tensors' device; ``on`` where the caller knows that it is."""
    for t in tensors:
        device = t.device.type
        dtype = torch.get_autocast_dtype(device) if on and device != "meta" else _autocast_dtype(t)
        if dtype is not None:
            return f"{device}:{dtype_name(dtype)}"
    return ""
