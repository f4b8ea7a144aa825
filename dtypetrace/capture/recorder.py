"""What the hooks write into: distinct ops, the steps that decided dtypes, the calls that were refused.

Called by ``hooks`` for every operator, so what runs each time is kept short: one walk over the
frames since the last module call, one table look-up, one mark an output. Everything else is done
once per distinct op, or when the recording is read (``capture.snapshot``).
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from dataclasses import replace
from threading import get_ident
from types import FrameType
from typing import Any

import torch
from torch import nn

from ..records import Input, Plan, Refused
from . import private, refused_calls, schemas
from .births import LIFT_FRESH, LIKE, TO_COPY, TO_DTYPE, Births, autocast_of, dtype_name, op_name, shape_of, tensors_in
from .marks import Mark, Origins, RawStep
from .modules import Modules, clean_name
from .places import Places, UserCode
from .steps import Steps
from .updates import Updates
from .values import Values

Tensor, _Parameter = torch.Tensor, nn.Parameter
_ENGINE = private.ENGINE_CODE
_current_node = private.current_autograd_node
_current_graph_task = private.current_graph_task_id
_next_sequence = private.next_sequence_number
_SLOTS = (1 << 18) - 1
_BITS = 24
_NUMBERS = (1 << _BITS) - 1
_ACCUMULATES = -3
_CASTS = (TO_COPY, TO_DTYPE)
_MOST_INPUTS = 64
"""An op's operands are recorded up to this number: enough for any but the lists of foreach operators."""
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

    # the short way of Recorder.saw: the one dtype of its tensors, the types of its arguments, which are tensors, the type of its result
    __slots__ = (
        "number", "count", "steady", "kinds", "tensors", "makes",
        "func", "op", "aten", "phase", "module", "place", "inputs", "outputs", "autocast", "root", "of", "shape", "device", "peak", "uncached",
        "effect", "written",
    )  # fmt: skip


def _peak(integers: Tensor, cast: Tensor) -> Tensor | None:
    """The largest of some integers that were cast to a half dtype, on their device; it is read when the run is over."""
    if (
        integers.dtype.is_floating_point
        or integers.dtype.is_complex
        or cast.dtype not in _HALVES
        or type(cast) is not Tensor
    ):
        return None
    if (
        cast.device.type not in ("cpu", "cuda")
        or not cast.numel()
        or cast.is_cuda
        and torch.cuda.is_current_stream_capturing()
    ):
        return None
    with private.unseen():
        return cast.amax()


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
        self._op_of: dict[tuple, _Op] = {}
        self._steady: dict[tuple, _Op] = {}  # by where alone: the op last met there, where it leaves its dtype as it is
        self._shared: dict[tuple, tuple] = {}
        self.refused: list[Refused] = []
        self._refused_numbers: dict[tuple, int] = {}
        self._left: dict[
            int, tuple[int, str, int]
        ] = {}  # id of an exception -> number of its refusal, its text, its depth
        self.not_seen: dict[str, None] = {}
        self.steps_done = 0
        self.trains = False  # whether the run has an optimizer
        self.stepping = Steps(self.places)
        self.running_steps = self.stepping.running
        self.backward_place = -1
        self.default_place = -1
        self.replaced: dict[int, set[int]] = {}  # step given to a live tensor by `.data =` -> the steps it had before
        self.broken = False
        self.values = Values() if numerics else None
        self.updates = Updates(self, numerics)
        self.reference: Any = None  # what carries values in higher precision, where that is asked for
        self.plans: list[Plan] = []
        self.threads: dict[int, Thread] = {}
        self._nodes = array(
            "q", b"\xff" * (8 * (_SLOTS + 1))
        )  # sequence number of an autograd node << _BITS | number of its op

    def begin(self) -> None:
        self.thread = get_ident()
        thread = self.threads[self.thread] = Thread()
        thread.sequence = self.first_sequence = private.next_sequence_number()

    def forget(self) -> None:
        """Lets go of every tensor and module; what was recorded stays."""
        self.origins.clear()
        self.threads.clear()
        self.running_steps.clear()
        self.reference = self.values = None  # what they measured has been read, and lay where the tensors are
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

    def phase(self, thread: Thread, place: int) -> str:
        """The phase outside an engine-run op: recompute, backward (Python code in it), optimizer, forward or other."""
        modules = thread.modules
        if _current_graph_task() != -1:
            return "recompute" if modules and modules[-1][4] else "backward"
        if self.running_steps and self.stepping.own_work(len(modules), place):
            return "optimizer"
        return "forward" if modules else "other"

    def mark_of(self, tensor: Tensor, place: int = -1, name: str = ""):
        """The tensor's mark; one that was never seen gets an ``input`` origin, at the place of its first use."""
        mark = self.origins.of(tensor)
        if mark is None:
            inner = self._inner_mark(tensor)
            number = (
                inner.step if inner else self.origins.step(RawStep("input", "", place, -1, (), tensor.dtype, name=name))
            )
            mark = self.origins.mark(tensor, number, inner.op if inner else -1)
        return mark

    def became(self, tensor: Tensor, step: int) -> None:
        """The dtype of a live tensor is owed to another step from now on: its data were replaced under the same object."""
        mark = self.origins.of(tensor)
        if mark is None:
            self.origins.mark(tensor, step, -1)
        elif self.origins.steps[step].to is tensor.dtype:
            self.replaced.setdefault(step, set()).add(mark.step)
            mark.was, mark.step = mark.step, step

    def swapped(self, first: Tensor, second: Tensor) -> None:
        """Two tensors exchanged their contents, as a module's conversion does with each weight and what it became."""
        before = [mark.step if mark is not None else -1 for mark in (self.origins.of(first), self.origins.of(second))]
        for mark, step in zip(self.origins.swap(first, second), before):
            if mark is not None and step >= 0 and step != mark.step:
                self.replaced.setdefault(mark.step, set()).add(step)
                mark.was = step

    def _inner_mark(self, wrapper: Tensor):
        """The mark of what a tensor merely stands for, in the same dtype: inside a wrapper (a DTensor, what vmap and grad
        hand in), or below a view that nobody saw made (``as_subclass``). None where it stands for itself."""
        if private.of_functorch(wrapper):
            inner = [private.functorch_inner(wrapper)]
        elif hasattr(wrapper, "__tensor_flatten__"):
            inner = [getattr(wrapper, name) for name in wrapper.__tensor_flatten__()[0]]
        else:
            with (
                private.DisableTorchFunction()
            ):  # a subclass would hand out another object than the one that was marked
                inner = [wrapper._base] if wrapper._base is not None else []
        for tensor in inner:
            mark = self.origins.of(tensor) or private.of_functorch(tensor) and self._inner_mark(tensor)
            if mark and tensor.dtype is wrapper.dtype:
                return mark
        return None

    # ------------------------------------------------------------ dispatch: every operator

    def saw(self, func, args: tuple, kwargs: dict, out: Any, frame: FrameType | None) -> None:
        """Records one operator call that ran.

        Most calls were met before, at the same place, and leave the one floating dtype of all their tensors as it is. Those
        take a short way: they are counted, and their output's dtype comes from where the first operand's came from.
        """
        # ---- where: in backward the forward op tells; else place, module and phase
        if frame is None or frame.f_code is _ENGINE:
            thread = call = None
            forward_op, aside = self.forward_op(), False
            key = (id(func), forward_op) if forward_op >= 0 else (id(func), forward_op, self.backward_place)
        else:
            thread = self.threads.get(get_ident()) or self.thread_state()
            forward_op, aside = -1, func is TO_COPY and self._aside(frame)
            modules = thread.modules
            if thread.calls and not aside:
                call = thread.calls[-1]
                place = call[3]
                if place is None:
                    place = call[3] = self.place(thread, frame)
            else:
                call = None
                place = self.place(thread, frame)
            if _current_graph_task() != -1:
                phase = "recompute" if modules and modules[-1][4] else "backward"
            elif self.running_steps and self.stepping.own_work(len(modules), place):
                phase = "optimizer"
            else:
                phase = "forward" if modules else "other"
            key = (
                id(func),
                place,
                modules[-1][1] if modules else -1,
                phase,
            )  # the id: an operator's hash is computed in Python

        op = self._steady.get(key)
        if op is not None and self._again(op, args, kwargs, out, forward_op):
            number = op.number
        else:
            number = self._look(key, func, args, kwargs, out, thread, call, forward_op)
        if self.reference is not None:
            self.reference.after(number, func, args, kwargs, out)

        # ---- link the autograd node just made, so that backward finds its way here
        if forward_op < 0 and not aside:  # what runs inside a call leaves the call's own node to the call
            thread = thread or self.thread_state()
            risen = _next_sequence()
            sequence = thread.sequence
            if risen != sequence:
                if risen - sequence > 8:
                    sequence = risen - 8
                while sequence < risen:  # one operator may make several nodes (CopySlices, a custom Function around it)
                    self._nodes[sequence & _SLOTS] = sequence << _BITS | number
                    sequence += 1
                thread.sequence = risen

    def _again(self, op: _Op, args: tuple, kwargs: dict, out: Any, forward_op: int) -> bool:
        """The short way: counts a call that is like the one of ``op`` that was looked at, and marks what it made. False if it is not."""
        if (
            type(out) is not op.makes
            or ((*map(type, args), *map(type, kwargs.values())) if kwargs else (*map(type, args),)) != op.kinds
        ):
            return False
        dtype = op.steady
        for i in op.tensors:
            if args[i].dtype is not dtype:
                return False
        made = (out,) if type(out) is Tensor else out
        for o in made:
            if o is not None and o.dtype is not dtype:
                return False
        owner = args[op.tensors[0]] if forward_op != _ACCUMULATES else _current_node().variable
        marks = self.origins.marks
        mark = marks.get(id(owner))
        if mark is None or mark() is not owner or owner.dtype is not dtype:
            return False
        op.count += 1
        number = op.number
        if out is owner:  # written in place
            mark.op = number
            return True
        step = mark.step
        for o in made:
            if o is not None:
                marks[id(o)] = mark = Mark(o)  # as Origins.mark does it
                mark.step = step
                mark.op = number
        if len(marks) > self.origins.room:
            self.origins.sweep()
        return True

    def _look(self, key, func, args, kwargs, out, thread, call, forward_op) -> int:
        """Number of the op of a call that is looked at whole."""
        inputs = tensors_in(args, kwargs)
        told = thread is not None or forward_op != -1  # the key tells the place and the module
        if thread is not None:
            _, place, module, phase = key
        else:
            thread, phase = self.thread_state(), "backward"
            if forward_op >= 0:
                known = self.ops[forward_op]
                place, module = known.place, known.module
            else:
                place, module = self.backward_place, self.owner() if forward_op == -1 else -1

        # ---- which distinct op
        outputs = (out,) if type(out) is Tensor else tensors_in((out,))
        made = outputs[0].dtype if outputs else None
        dtypes = tuple([t.dtype for t in inputs])
        name = (id(func), place, module, phase, made, dtypes if len(dtypes) < 8 else tuple(dict.fromkeys(dtypes)))
        uncached = ""
        if (
            (func is TO_COPY or func is TO_DTYPE)
            and call is not None
            and call[4]
            and isinstance(inputs[0], nn.Parameter)
        ):
            # one weight's casts are counted by themselves, apart from those that autocast keeps; it turns gradients on to make these
            uncached = (
                ""
                if torch.is_grad_enabled() and inputs[0].requires_grad
                else "frozen"
                if not inputs[0].requires_grad
                else "inference"
            )
            name = (*name, uncached, id(inputs[0]))
        op = self._op_of.get(name)
        if op is None:
            if phase == "optimizer" and self.stepping.forget_left():
                return self._look(
                    (*key[:3], self.phase(thread, place)), func, args, kwargs, out, thread, call, forward_op
                )
            op = self._new_op(name, func, place, module, phase, inputs, out, call, thread, forward_op)
            op.uncached = uncached
            op.effect, op.written = schemas.effect(func), schemas.written(func, args, kwargs, inputs[:_MOST_INPUTS])
        else:
            op.count += 1
        number = op.number

        # ---- what the outputs' dtypes come from: O(1), no history
        origins = self.origins
        for o in outputs:
            known = origins.of(o)
            if known is not None:  # written in place: the destination keeps its dtype
                known.op = number
                continue
            if o is not out:
                made = o.dtype
            parent = origins.of(inputs[0]) if inputs and dtypes.count(made) == len(dtypes) else None
            if parent is not None and made.is_floating_point and forward_op != _ACCUMULATES:
                step = parent.step
            else:
                step = self._settle(func, inputs, dtypes, o, made, place, module, call, forward_op, thread)
            origins.mark(o, step, number)

        if self.values is not None:
            self._measure(number, func, args, kwargs, inputs, outputs, phase)
        elif told and outputs and {*dtypes} == {made} and made.is_floating_point:
            self._shorten(key, op, func, args, kwargs, out, made, len(inputs))
        return number

    def _shorten(self, key, op: _Op, func, args, kwargs, out, dtype: torch.dtype, inputs: int) -> None:
        """Lets calls that are like this one go the short way: all their tensors have one floating dtype.

        Not casts, which are told apart by more than where they are made, nor what is handed lists of tensors.
        """
        kinds = (*map(type, args), *map(type, kwargs.values() if kwargs else ()))
        tensors = tuple(i for i, a in enumerate(args) if type(a) in (Tensor, _Parameter))
        made = (out,) if type(out) is Tensor else out if type(out) is tuple else ()
        if not tensors or len(tensors) != inputs or func in _CASTS or type(func) is not private.OpOverload:
            return
        if func._schema.is_mutable and (out is not args[tensors[0]] or key[1] == _ACCUMULATES):
            return
        if made and all(o is None or type(o) is Tensor and o.dtype is dtype for o in made):
            # equal ones are one: what is read for each call should be near
            op.kinds, op.tensors = self._shared.setdefault(kinds, kinds), self._shared.setdefault(tensors, tensors)
            op.steady, op.makes = dtype, type(out)
            self._steady[key] = op

    def _aside(self, frame: FrameType) -> bool:
        """Whether the program's own code runs inside a call of torch's, as a hook on saved tensors does: its casts are its own."""
        return not self.places.hidden(frame.f_code.co_filename)

    def before(self, func, args: tuple, kwargs: dict, frame: FrameType | None) -> None:
        """What a call that changes a tensor in place is about to change."""
        thread = self.thread_state()
        if not self.running_steps or not self.stepping.own_work(len(thread.modules), self.place(thread, frame)):
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
            self.values.saw(number, func, args, kwargs or {}, inputs, outputs, self.origins, phase)
            if phase == "optimizer" and args and func._schema.is_mutable:
                written = args[0] if isinstance(args[0], (list, tuple)) else args[:1]
                self.updates.written.update(t.data_ptr() for t in written if isinstance(t, Tensor))
        except Exception as error:
            self._without_values(error)

    def _settle(self, func, inputs, dtypes, out, made, place, module, call, forward_op, thread) -> int:
        """The step that decided an output's dtype, where that is not simply its first operand's."""
        if forward_op == _ACCUMULATES:  # the engine hands a parameter its gradient in the parameter's dtype
            variable = _current_node().variable
            owner = self.origins.of(variable)
            if owner is not None and variable.dtype is made:
                return owner.step
        if dtypes.count(made) != len(dtypes):
            return self.births.decide(func, inputs, dtypes, out, made, place, module, call, forward_op)
        if inputs:
            mark = self.origins.of(inputs[0])
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
        if sequence == private.ACCUMULATE_SEQUENCE:
            return _ACCUMULATES
        known = self._nodes[sequence & _SLOTS]
        return known & _NUMBERS if known >> _BITS == sequence else -1

    def owner(self) -> int:
        """Number of the module whose forward was not watched and whose backward runs: the one that holds a
        parameter which the autograd node leads to."""
        node = private.current_autograd_node()
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

    def _new_op(self, key, func, place, module, phase, inputs, out, call, thread, forward_op) -> _Op:
        op = _Op()
        op.func = func  # alive as long as its id is a key
        op.aten = str(func).removeprefix("aten.")
        op.op = op_name(call[0]) if call else op_name(func)
        op.phase, op.module, op.place = phase, module, place
        if phase == "other" and any(t.requires_grad for t in inputs):
            seeds = _on_stack(lambda frame: frame.f_code is private.SEEDS_CODE)
            op.phase = "backward" if seeds else "forward"
        op.autocast = autocast_of(inputs, on=True) if call is not None and call[4] else ""
        op.root = thread.modules[0][5].ref if thread.modules else self.ops[forward_op].root if forward_op >= 0 else None
        seen = []
        for t in inputs[:_MOST_INPUTS]:
            mark = self.origins.of(t)
            if mark is None:
                if func is LIFT_FRESH:
                    continue
                mark = self.adopt(t, place, forward_op)
            step = self.origins.steps[mark.step]
            holder = "parameter" if isinstance(t, nn.Parameter) else None
            seen.append(
                Input(dtype_name(t.dtype), mark.step, mark.op, step.name if holder else "", holder, shape_of(t))
            )
        op.inputs = tuple(seen)
        outs = [o for o in (out if type(out) in (tuple, list) else (out,)) if isinstance(o, Tensor)]
        op.outputs = tuple(dtype_name(o.dtype) for o in outs)
        op.of = max(forward_op, -1)
        op.peak = _peak(inputs[0], out) if func is TO_COPY and inputs else None
        op.shape = shape_of(outs[0]) if outs else ()
        op.device = str(outs[0].device if outs else inputs[0].device if inputs else "")
        op.number, op.count = len(self.ops), 1
        self._op_of[key] = op
        self.ops.append(op)
        return op

    # ------------------------------------------------------------ refusals

    op_name = staticmethod(op_name)
    dtype_name = staticmethod(dtype_name)

    def autocast_of(self, tensors: list[Tensor]) -> str:
        return autocast_of(tensors) if private.any_autocast_enabled() else ""

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
                refused_calls.from_traceback(self, chain)
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

    def parameter_names(self) -> dict[int, str]:
        """id of each parameter of a model that was called -> its name in the largest model that holds it."""
        with private.DisableTorchFunction():
            models = sorted(
                ((list(root.named_parameters()), root) for root in self.modules.live_roots()), key=lambda m: len(m[0])
            )
            return {id(p): clean_name(n, root) for named, root in models for n, p in named}
