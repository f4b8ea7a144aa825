"""A call that Dynamo refused while it compiled: told like any other, with both operands and their births.

Dynamo tries each call with fake tensors before it compiles it. The exception's traceback holds the graph so far, with
the program's line of each call. So births are followed through it, by the same rules as through calls that ran.
"""

from __future__ import annotations

import linecache
import re
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from ...records import Frame
from ...tables import refusals
from ..births import Made
from ..calls import op_name
from ..refused_calls import Scene, record
from ..signatures import arguments_of
from . import torch_private

if TYPE_CHECKING:
    from ..recorder import Recorder
    from ..running import Thread

Tensor = torch.Tensor
_FRAME = re.compile(
    r'^ *File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)\n(?P<text>.*)\n?(?P<marks>[ ~^]*)', re.MULTILINE
)
_INDENT = 4
"""Columns by which a traceback indents the program's text."""


def compiling(recorder: Recorder, frame: FrameType, error: BaseException) -> None:
    """A region has raised, in torch's ``frame``. Records the refusal, if Dynamo refused a call because of a dtype."""
    if not isinstance(error, Exception) or (node := torch_private.refused_node(error)) is None:
        return
    first: BaseException = error
    while first.__context__ is not None:
        first = first.__context__
    followed = _Graph(recorder, frame, torch_private.given(error))
    for other in node.graph.nodes:
        if other is node:
            break
        followed.made(other)
    func, args, kwargs = followed.call(node)
    meaning = refusals.recognise(str(first), type(first).__name__, op_name(func))
    if meaning is None:
        return
    place = followed.place(node)
    scene = Scene(op_name(func), None, recorder.phase(followed.thread, place), followed.thread.module, place)
    if scene.phase == "other":
        scene = Scene(scene.op, None, "forward", scene.module, place)
    record(recorder, followed.thread, meaning, scene, list(arguments_of(func, args, kwargs)), error)


class _Graph:
    """Dynamo's graph of the region in a frame, whose fake tensors get marks."""

    def __init__(self, recorder: Recorder, frame: FrameType, given: dict[str, Tensor]) -> None:
        self.recorder = recorder
        self.thread: Thread = recorder.thread_state()
        self._outer = recorder.places.frames(recorder.place(self.thread, frame), recorder.user)
        self._given = given
        self._values: dict[Any, Any] = {}
        """By node: the program's own tensor for what comes into the graph, a fake one for what is made in it."""

    def made(self, node: Any) -> None:
        """Marks what a node made."""
        value = self._values[node] = node.meta.get("example_value")
        known = self._given.get(node.name) if node.op == "placeholder" else None
        if known is not None and (known.dtype, known.shape) == (value.dtype, value.shape):
            self._values[node] = known
        if node.op not in ("call_function", "call_method"):
            return
        func, args, kwargs = self.call(node)
        for out in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(out, Tensor) and self.recorder.origins.of(out) is None:
                self._mark(node, func, args, kwargs, out)

    def _mark(self, node: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> None:
        origins = self.recorder.origins
        place = self.place(node)
        inputs = [t for n in node.all_input_nodes if isinstance(t := self._values.get(n), Tensor)]
        dtypes = tuple(t.dtype for t in inputs)
        call = [func, args, kwargs, place, False]
        outcome = Made(func, inputs, dtypes, out.dtype, place, self.thread.module, call)
        if not inputs:
            event = self.recorder.births.birth(outcome, self.thread)
        elif {*dtypes} == {out.dtype}:
            event = origins.mark_of(inputs[0], place).event
        else:
            event = self.recorder.births.decide(outcome)
        origins.mark(out, event, -1)

    def call(self, node: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """The call that a node stands for."""
        values = lambda n: self._values.get(n)
        func = getattr(Tensor, node.target) if node.op == "call_method" else node.target
        return func, torch_private.mapped(node.args, values), torch_private.mapped(node.kwargs, values)

    def place(self, node: Any) -> int:
        """Number of the place of a node's call."""
        found = []
        for line in _FRAME.finditer(node.stack_trace or ""):
            file = line["file"]
            if not self.recorder.places.hidden(file):
                found.append(_frame(file, int(line["line"]), line["function"], line["marks"], self.recorder.user(file)))
        return self.recorder.places.given((*reversed(found), *self._outer))


def _frame(file: str, number: int, function: str, marks: str, user: bool) -> Frame:
    """A frame from a traceback's text; the marks under the line say which columns."""
    line = linecache.getline(file, number)
    indent = len(line) - len(line.lstrip())
    begins = len(marks) - len(marks.lstrip()) - _INDENT + indent if marks.strip() else 0
    ends = begins + len(marks.strip())
    if not marks.strip():
        begins, ends = indent, len(line.rstrip())
    return Frame(file, number, function, user, begins + 1, number, ends + 1)
