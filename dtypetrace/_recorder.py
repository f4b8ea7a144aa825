"""What the hooks write into: distinct ops, the steps that decided dtypes, the calls that were refused.

Called by ``hooks`` for every operator, so what runs each time is kept short: one walk over the
frames since the last module call, one table look-up, one mark an output. Everything else is done
once per distinct op, or when the recording is read.
"""

from __future__ import annotations

import sys
import weakref
from array import array
from dataclasses import replace
from itertools import takewhile
from threading import get_ident
from types import FrameType
from typing import Any, Callable, Sequence

import torch
from torch import nn

from . import _compat, _source, _witness
from ._births import LIFT_FRESH, LIKE, TO_COPY, TO_DTYPE, Births, autocast_of, dtype_name, op_name, shape_of, tensors_in
from ._modules import Modules, clean_name
from ._origins import Origins, RawStep
from ._places import Places, UserCode
from ._updates import Updates
from ._values import Values
from .records import Input, Op, Parameter, Place, Plan, Read, Recording, Refused, Step

Tensor = torch.Tensor
_ENGINE = _compat.ENGINE_CODE
_current_node = _compat.current_autograd_node
_current_graph_task = _compat.current_graph_task_id
_next_sequence = _compat.next_sequence_number
_RING = 1 << 18
_ACCUMULATES = -3
_HALVES = (torch.float16, torch.bfloat16)


class Thread:
    """What is going on in one thread."""

    __slots__ = ("calls", "modules", "sequence", "reads", "inside", "kernel")

    def __init__(self) -> None:
        self.calls: list[list] = []  # [function, args, kwargs or None, place or None] of each torch function being run
        self.modules: list[tuple] = []  # (module, number, id of its _call_impl frame, place of the call, in backward)
        self.sequence = 0
        self.reads: list[tuple] = []
        self.inside: tuple | None = None  # (id of the frame, dtype, step) of the last dtype that torch's own code read
        self.kernel: tuple | None = None  # (exception, operator, tensors) of the operator that just raised


class _Op:
    """The growing form of :class:`records.Op`."""

    __slots__ = ("func", "op", "aten", "phase", "module", "place", "inputs", "outputs", "autocast", "root", "of", "shape", "device", "peak", "uncached")


def _peak(integers: Tensor, cast: Tensor) -> Tensor | None:
    """The largest of some integers that were cast to a half dtype, on their device; it is read when the run is over."""
    if integers.dtype.is_floating_point or integers.dtype.is_complex or cast.dtype not in _HALVES or type(cast) is not Tensor:
        return None
    if cast.device.type not in ("cpu", "cuda") or not cast.numel() or cast.is_cuda and torch.cuda.is_current_stream_capturing():
        return None
    with _compat.unseen():
        return cast.amax()


def _read(op: _Op) -> float | None:
    """An op's peak, as a number from now on: a trace that is still open would see the reading, and wait for the device twice."""
    if isinstance(op.peak, Tensor):
        with _compat.unseen():
            op.peak = float(op.peak.item())
    return op.peak


_MADE = frozenset({"factory", "cast", "conversion", "parameter", "reinterpret", "load"})


def _loaded(places: Sequence[Place], step: Step) -> Step:
    """However a library's ``from_pretrained`` makes a tensor, it loads it: the checkpoint and the user's call decided its dtype."""
    stack = places[step.place].stack if step.how in _MADE and not step.parents and 0 <= step.place < len(places) else ()
    if not any(f.function.endswith("from_pretrained") for f in takewhile(lambda f: not f.user, stack)):
        return step
    user = next((f for f in stack if f.user), None)
    named = user is not None and _source.names_dtype(user)
    return replace(step, how="load", op="from_pretrained", reads=(), default=-1, explicit=named)


def _on_stack(wanted: Callable[[FrameType], bool]) -> bool:
    frame = sys._getframe(1)
    while frame is not None and not wanted(frame):
        frame = frame.f_back
    return frame is not None


def _depth(error: BaseException) -> int:
    """How many frames an exception has come through."""
    depth, tb = 0, error.__traceback__
    while tb is not None:
        depth, tb = depth + 1, tb.tb_next
    return depth


class Recorder:
    """The growing recording of one run. ``user`` tells the user's own files from a library's."""

    def __init__(self, user: UserCode | None = None, numerics: bool = False) -> None:
        self.places = Places()
        self.origins = Origins()
        self.modules = Modules()
        self.births = Births(self)
        self.user = user or UserCode()
        self.ops: list[_Op] = []
        self._op_numbers: dict[tuple, int] = {}
        self._counts: list[int] = []  # how often each op ran, apart from the rest of what is known of it
        self.refused: list[Refused] = []
        self._refused_numbers: dict[tuple, int] = {}
        self._left: dict[int, tuple[int, str, int]] = {}  # id of an exception -> number of its refusal, its text, its depth
        self.not_seen: dict[str, None] = {}
        self.steps_done = 0
        self.trains = False  # whether the run has an optimizer
        self.optimizer: weakref.ref | None = None
        self.optimizer_frame: tuple | None = None  # id of the step's frame, and its code, since ids are used again
        self.backward_place = -1
        self.default_place = -1
        self.replaced: dict[int, set[int]] = {}  # step given to a live tensor by `.data =` -> the steps it had before
        self.broken = False
        self.values = Values() if numerics else None
        self.updates = Updates(self, numerics)
        self.plans: list[Plan] = []
        self.threads: dict[int, Thread] = {}
        self._sequences = array("q", b"\xff" * (8 * _RING))
        self._sequence_ops = array("i", bytes(array("i").itemsize * _RING))

    def begin(self) -> None:
        self.thread = get_ident()
        thread = self.threads[self.thread] = Thread()
        thread.sequence = self.first_sequence = _compat.next_sequence_number()

    def forget(self) -> None:
        """Lets go of every tensor and module; what was recorded stays."""
        self.origins.clear()
        self.threads.clear()
        self.optimizer = None
        self.values = None  # what they measured has been read, and lay where the tensors are
        self.updates = Updates(self, False)

    def fail(self, where: str) -> None:
        """An error of our own must not reach the program: stop recording and say so in the report."""
        if not self.broken:
            self.broken = True
            kind, error, tb = sys.exc_info()
            while tb is not None and tb.tb_next is not None:
                tb = tb.tb_next
            line = f" (line {tb.tb_lineno} of {tb.tb_frame.f_code.co_name})" if tb else ""
            told = f"everything after an internal error in {where}: {kind.__name__ if kind else ''}: {error}{line}"
            self.not_seen[told] = None

    # ------------------------------------------------------------ where we are

    def thread_state(self) -> Thread:
        ident = get_ident()
        thread = self.threads.get(ident)
        if thread is None:
            thread = self.threads[ident] = Thread()
        return thread

    def place(self, thread: Thread, frame: FrameType | None) -> int:
        """Number of the place that ``frame`` is running, continued in the enclosing module's call."""
        modules = thread.modules
        while modules:
            top = modules[-1]
            place = self.places.here(frame, top[2], top[3])
            if place != -2:
                return place
            modules.pop()  # left by an exception that no hook saw (KeyboardInterrupt)
        return self.places.here(frame)

    def phase(self, thread: Thread) -> str:
        """The phase outside an engine-run op: recompute, backward (Python code in it), optimizer, forward or other."""
        if _compat.current_graph_task_id() != -1:
            return "recompute" if thread.modules and thread.modules[-1][4] else "backward"
        if self.optimizer is not None:
            return "optimizer"
        return "forward" if thread.modules else "other"

    def step_was_left(self) -> bool:
        """Whether an exception left the optimizer's step, which no hook sees; then it is over."""
        if self.optimizer is None or _on_stack(lambda frame: (id(frame), frame.f_code) == self.optimizer_frame):
            return False
        self.optimizer = None
        return True

    def mark_of(self, tensor: Tensor, place: int = -1, name: str = ""):
        """The tensor's mark; one that was never seen gets an ``input`` origin, at the place of its first use."""
        mark = self.origins.of(tensor)
        if mark is None:
            inner = self._inner_mark(tensor)
            number = inner.step if inner else self.origins.step(RawStep("input", "", place, -1, (), tensor.dtype, name=name))
            mark = self.origins.mark(tensor, number, inner.op if inner else -1)
        return mark

    def _inner_mark(self, wrapper: Tensor):
        """The mark of what a tensor merely stands for, in the same dtype: inside a wrapper (a DTensor, what vmap and grad
        hand in), or below a view that nobody saw made (``as_subclass``). None where it stands for itself."""
        if _compat.of_functorch(wrapper):
            inner = [_compat.functorch_inner(wrapper)]
        elif hasattr(wrapper, "__tensor_flatten__"):
            inner = [getattr(wrapper, name) for name in wrapper.__tensor_flatten__()[0]]
        else:
            with _compat.DisableTorchFunction():  # a subclass would hand out another object than the one that was marked
                inner = [wrapper._base] if wrapper._base is not None else []
        for tensor in inner:
            mark = self.origins.of(tensor) or _compat.of_functorch(tensor) and self._inner_mark(tensor)
            if mark and tensor.dtype is wrapper.dtype:
                return mark
        return None

    # ------------------------------------------------------------ dispatch: every operator

    def saw(self, func, args: tuple, kwargs: dict, out: Any, frame: FrameType | None) -> None:
        """Records one operator call that ran."""
        if self.origins.dead:
            self.origins.sweep()
        thread = self.threads.get(get_ident()) or self.thread_state()
        inputs = tensors_in(args, kwargs)

        # ---- place, module, phase
        call = None
        forward_op, aside = -1, False
        if frame is None or frame.f_code is _ENGINE:
            phase = "backward"
            forward_op = self.forward_op()
            if forward_op >= 0:
                known = self.ops[forward_op]
                place, module = known.place, known.module
            else:
                place, module = self.backward_place, self.owner() if forward_op == -1 else -1
        else:
            modules = thread.modules
            calls = thread.calls
            if calls and not (aside := func is TO_COPY and self._aside(frame)):
                call = calls[-1]
                place = call[3]
                if place is None:
                    place = call[3] = self.place(thread, frame)
            else:
                place = self.place(thread, frame)
            module = modules[-1][1] if modules else -1
            if _current_graph_task() != -1:
                phase = "recompute" if modules and modules[-1][4] else "backward"
            elif self.optimizer is not None:
                phase = "optimizer"
            elif modules:
                phase = "forward"
            else:
                phase = "other"

        # ---- which distinct op
        outputs = (out,) if type(out) is Tensor else tensors_in((out,))
        made = outputs[0].dtype if outputs else None
        dtypes = tuple([t.dtype for t in inputs])
        # the id, for the hash of an operator is computed in Python
        key = (id(func), place, module, phase, made, dtypes if len(dtypes) < 8 else tuple(dict.fromkeys(dtypes)))
        uncached = ""
        if (func is TO_COPY or func is TO_DTYPE) and call is not None and call[4] and isinstance(inputs[0], nn.Parameter):
            # one weight's casts are counted by themselves, apart from those that autocast keeps; it turns gradients on to make these
            uncached = "" if torch.is_grad_enabled() and inputs[0].requires_grad else "frozen" if not inputs[0].requires_grad else "inference"
            key = (*key, uncached, id(inputs[0]))
        number = self._op_numbers.get(key)
        if number is None:
            if phase == "optimizer" and self.step_was_left():
                return self.saw(func, args, kwargs, out, frame)
            number = self._new_op(key, func, place, module, phase, inputs, out, call, thread, forward_op)
            self.ops[number].uncached = uncached
        else:
            self._counts[number] += 1

        # ---- what the outputs' dtypes come from: O(1), no history
        marks = self.origins.marks
        for o in outputs:
            known = marks.get(id(o))
            if known is not None:  # written in place: the destination keeps its dtype
                known.op = number
                continue
            if o is not out:
                made = o.dtype
            parent = marks.get(id(inputs[0])) if inputs and dtypes.count(made) == len(dtypes) else None
            if parent is not None and made.is_floating_point and forward_op != _ACCUMULATES:
                step = parent.step
            else:
                step = self._settle(func, inputs, dtypes, o, made, place, module, call, forward_op, thread)
            self.origins.mark(o, step, number)

        if self.values is not None:
            self._measure(number, func, args, kwargs, inputs, outputs, phase)

        # ---- link the autograd node just made, so that backward finds its way here
        if forward_op < 0 and not aside:  # what runs inside a call leaves the call's own node to the call
            risen = _next_sequence()
            sequence = thread.sequence
            if risen != sequence:
                # one operator may make several nodes (CopySlices, a custom Function around it)
                sequence = max(sequence, risen - 8)
                while sequence < risen:
                    slot = sequence & (_RING - 1)
                    self._sequences[slot] = sequence
                    self._sequence_ops[slot] = number
                    sequence += 1
                thread.sequence = risen

    def _aside(self, frame: FrameType) -> bool:
        """Whether the program's own code runs inside a call of torch's, as a hook on saved tensors does: its casts are its own."""
        return not self.places.hidden(frame.f_code.co_filename)

    def before(self, func, args: tuple, kwargs: dict) -> None:
        """What a call that changes a tensor in place is about to change."""
        if self.optimizer is None:
            try:
                self.values.increments.before(func, args, kwargs)
            except Exception as error:
                self._without_values(error)

    def _without_values(self, error: Exception) -> None:
        """The dtypes are worth having without the values."""
        self.values = None
        self.not_seen[f"values, after an internal error: {type(error).__name__}: {error}"] = None

    def _measure(self, number, func, args, kwargs, inputs, outputs, phase) -> None:
        try:
            self.values.saw(number, func, args, kwargs or {}, inputs, outputs, self.origins.marks, phase)
            if phase == "optimizer" and args and func._schema.is_mutable:
                written = args[0] if isinstance(args[0], (list, tuple)) else args[:1]
                self.updates.written.update(t.data_ptr() for t in written if isinstance(t, Tensor))
        except Exception as error:
            self._without_values(error)

    def _settle(self, func, inputs, dtypes, out, made, place, module, call, forward_op, thread) -> int:
        """The step that decided an output's dtype, where that is not simply its first operand's."""
        marks = self.origins.marks
        if forward_op == _ACCUMULATES:  # the engine hands a parameter its gradient in the parameter's dtype
            variable = _compat.current_autograd_node().variable
            owner = marks.get(id(variable))
            if owner is not None and variable.dtype is made:
                return owner.step
        if dtypes.count(made) != len(dtypes):
            return self.births.decide(func, inputs, dtypes, out, made, place, module, call, forward_op)
        if inputs:
            mark = marks.get(id(inputs[0]))
            if not made.is_floating_point and func in LIKE and not made.is_complex:
                return self.births.like(func, inputs[0], made, place, module, call)
            if mark is not None:
                return mark.step
            if func is not LIFT_FRESH:
                return self.adopt(inputs[0], place, forward_op).step
            # numpy or Python values: made below torch, lifted into it here
        return self.births.birth(func, made, place, module, call, thread)

    def adopt(self, tensor: Tensor, place: int, forward_op: int):
        """The tensor's mark. One saved by autograd comes back unmarked: it has its forward op's operand's."""
        mark = self.origins.of(tensor)
        if mark is not None:
            return mark
        if forward_op >= 0:
            name = dtype_name(tensor.dtype)
            for operand in self.ops[forward_op].inputs:
                if operand.dtype == name and operand.step >= 0:
                    return self.origins.mark(tensor, operand.step, operand.producer)
        return self.mark_of(tensor, place)

    def forward_op(self) -> int:
        """Number of the op whose backward the engine is running, -1 where its forward was not watched."""
        node = _current_node()
        if node is None:
            return -1
        sequence = node._sequence_nr()
        if sequence == _compat.ACCUMULATE_SEQUENCE:
            return _ACCUMULATES
        slot = sequence & (_RING - 1)
        return self._sequence_ops[slot] if self._sequences[slot] == sequence else -1

    def owner(self) -> int:
        """Number of the module whose forward was not watched and whose backward runs: the one that holds a
        parameter which the autograd node leads to."""
        node = _compat.current_autograd_node()
        if node is not None and node._sequence_nr() < self.first_sequence:
            self.not_seen["a forward pass that ran outside the block: its backward is named from autograd"] = None
        above = [n for n, _ in node.next_functions if n is not None] if node is not None else []
        # a weight is reached through one unary node (its transpose); beyond a node with more inputs lies another op
        above += [one.next_functions[0][0] for one in above if len(one.next_functions) == 1]
        for candidate in above:
            variable = getattr(candidate, "variable", None)
            if variable is not None:
                return self.modules.holder_of(variable)
        return -1

    def _new_op(self, key, func, place, module, phase, inputs, out, call, thread, forward_op) -> int:
        marks = self.origins.marks
        op = _Op()
        op.func = func  # alive as long as its id is a key
        op.aten = str(func).removeprefix("aten.")
        op.op = op_name(call[0]) if call else op_name(func)
        op.phase, op.module, op.place = phase, module, place
        if phase == "other" and any(t.requires_grad for t in inputs):
            seeds = _on_stack(lambda frame: frame.f_code is _compat.SEEDS_CODE)
            op.phase = "backward" if seeds else "forward"
        op.autocast = autocast_of(inputs, on=True) if call is not None and call[4] else ""
        op.root = thread.modules[0][5].ref if thread.modules else self.ops[forward_op].root if forward_op >= 0 else None
        seen = []
        for t in inputs[:64]:
            mark = marks.get(id(t))
            if mark is None:
                if func is LIFT_FRESH:
                    continue
                mark = self.adopt(t, place, forward_op)
            step = self.origins.steps[mark.step]
            holder = "parameter" if isinstance(t, nn.Parameter) else None
            seen.append(Input(dtype_name(t.dtype), mark.step, mark.op, step.name if holder else "", holder, shape_of(t)))
        op.inputs = tuple(seen)
        outs = [o for o in (out if type(out) in (tuple, list) else (out,)) if isinstance(o, Tensor)]
        op.outputs = tuple(dtype_name(o.dtype) for o in outs)
        op.of = max(forward_op, -1)
        op.peak = _peak(inputs[0], out) if func is TO_COPY and inputs else None
        op.shape = shape_of(outs[0]) if outs else ()
        op.device = str(outs[0].device if outs else inputs[0].device if inputs else "")
        number = self._op_numbers[key] = len(self.ops)
        self.ops.append(op)
        self._counts.append(1)
        return number

    # ------------------------------------------------------------ refusals

    op_name = staticmethod(op_name)
    dtype_name = staticmethod(dtype_name)

    def autocast_of(self, tensors: list[Tensor]) -> str:
        return autocast_of(tensors) if _compat.any_autocast_enabled() else ""

    def step_of(self, tensor: Tensor) -> int:
        mark = self.origins.of(tensor)
        return mark.step if mark is not None else -1

    def add_refusal(self, key: tuple, error: BaseException, make: Callable[[], Refused]) -> None:
        number = self._refused_numbers.get(key)
        if number is None:
            number = self._refused_numbers[key] = len(self.refused)
            self.refused.append(make())
        else:
            known = self.refused[number]
            self.refused[number] = replace(known, count=known.count + 1)
        # the exception itself is not kept: its traceback would pin the model
        self._left[id(error)] = (number, str(error), _depth(error))

    def number_of(self, error: BaseException) -> int | None:
        """Number of the refusal that an exception tells of, None where none was recorded."""
        entry = self._left.get(id(error))
        return entry[0] if entry is not None and entry[1] == str(error) else None

    def knows(self, error: BaseException) -> bool:
        """Whether an exception was recorded further in and is on its way out. A new one of the same text can have the id of
        one that is gone; raised at the same place, its traceback is no longer."""
        return self.number_of(error) is not None and _depth(error) > self._left[id(error)][2]

    def goes_on_as(self, error: BaseException, inner: int, text: str) -> None:
        """C++ raises another exception in place of one that was recorded, which is given by its id and text."""
        entry = self._left.get(inner)
        if entry is not None and entry[1] == text:
            self._left[id(error)] = entry[0], str(error), 0

    def leaves(self, error: BaseException) -> None:
        """The exception left the block: its refusal is the one that ended the run."""
        chain, seen = error, set()
        while chain is not None and id(chain) not in seen:
            seen.add(id(chain))
            if self.number_of(chain) is None:
                _witness.from_traceback(self, chain)
            number = self.number_of(chain)
            if number is not None:
                self.refused[number] = replace(self.refused[number], left=True)
                return
            chain = chain.__cause__ or chain.__context__
        # an interpreter in C++ (TorchScript) raises an exception of its own around the text, or without it
        text = str(error)
        for number, told, _ in reversed(self._left.values()):
            if told in text or "TorchScript interpreter" in text:
                self.refused[number] = replace(self.refused[number], left=True)
                return

    # ------------------------------------------------------------ the result

    def parameter_names(self) -> dict[int, str]:
        """id of each parameter of a model that was called -> its name in the largest model that holds it."""
        with _compat.DisableTorchFunction():
            models = sorted(((list(root.named_parameters()), root) for root in self.modules.live_roots()), key=lambda m: len(m[0]))
            return {id(p): clean_name(n, root) for named, root in models for n, p in named}

    def parameters(self, places) -> tuple[Parameter, ...]:
        """The floating parameters and buffers of every model that was called and is alive."""
        found: dict[int, Parameter] = {}
        prefixes = self.modules.prefixes(places)
        with _compat.DisableTorchFunction():
            for root, prefix in prefixes.items():
                module = root.ref()
                for name, tensor in (*module.named_parameters(), *module.named_buffers()) if module is not None else ():
                    if tensor.dtype.is_floating_point and id(tensor) not in found and not isinstance(tensor, nn.parameter.UninitializedTensorMixin):
                        full = f"{prefix}.{clean_name(name, module)}"
                        found[id(tensor)] = Parameter(full, dtype_name(tensor.dtype), tensor.numel(), self.step_of(tensor))
        return tuple(found.values())

    def snapshot(self, *, whole: bool = True, **meta: Any) -> Recording:
        """Everything recorded so far, as plain data; ``whole`` is False for a verdict on one refusal, which asks for less."""
        places = self.places.resolve(self.user)
        names = self.modules.names(places)

        def module(number: int) -> str:
            return names[number] if 0 <= number < len(names) else ""

        steps = tuple(
            _loaded(places, Step(
                s.how, s.op, s.place, module(s.module), tuple(map(dtype_name, s.source)), dtype_name(s.to), s.parents,
                tuple(Read(dtype_name(r.dtype), r.place, r.step, r.frames_up) for r in s.reads), s.name, s.default, s.explicit,
            ))
            for s in self.origins.steps
        )  # fmt: skip
        ops = tuple(
            Op(
                o.op, o.aten, o.phase, module(o.module), o.place, o.inputs, o.outputs, n, o.autocast, o.of, o.shape, o.device, _read(o), o.uncached,
                self.modules.model_of(o.module),
            )
            for o, n in zip(self.ops, self._counts)
        )  # fmt: skip
        refused = tuple(replace(r, module=module(r.module) if isinstance(r.module, int) else r.module) for r in self.refused)
        facts = {"torch": torch.__version__, "python": sys.version.split()[0], "ops": sum(self._counts), "steps": self.steps_done}
        if not whole:
            return Recording(places, steps, ops, refused, names, meta=facts)
        values = self.values.read() if self.values is not None else ()
        return Recording(
            places, steps, ops, refused, names, self.parameters(places), tuple(self.not_seen), {**facts, **meta}, values, self.updates.read(), tuple(self.plans)
        )
