"""Births inside a graph that Dynamo captured: by the same rules as through calls that ran, at the program's lines."""

from __future__ import annotations

import linecache
import re
from collections.abc import Mapping
from types import FrameType
from typing import Any

import torch

from ...records import Frame
from ...tables.operators import NAMED_CASTS
from ..births import Made
from ..running import Thread
from ..session import Session
from . import torch_private
from .ledger import Captured, Left

Tensor = torch.Tensor
_FRAME = re.compile(
    r'^ *File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)\n(?P<text>.*)\n?(?P<marks>[ ~^]*)', re.MULTILINE
)
_INDENT = 4
"""Columns by which a traceback indents the program's text."""


def leaving(recorder: Session, frame: FrameType, captured: Captured) -> list[Left]:
    """What leaves a graph, with the events that decided the dtypes. ``frame``: torch's, in which its region ran."""
    graph, captured.graph = captured.graph, None
    given = {name: tensor for name, ref in captured.given.items() if (tensor := ref()) is not None}
    followed = Followed(recorder, frame, given, captured.autocast)
    for node in graph.nodes:
        followed.made(node)
    results = next(iter(reversed(graph.nodes))).all_input_nodes
    tensors = [t for n in results if isinstance(t := followed.values.get(n), Tensor)]
    marks = [(t, recorder.origins.of(t)) for t in tensors]
    return [Left(t.dtype, t.dim(), mark.event) for t, mark in marks if mark is not None]


class Followed:
    """Dynamo's graph of the region in a frame, whose fake tensors get marks."""

    def __init__(
        self, recorder: Session, frame: FrameType, given: Mapping[str, Tensor], autocast: bool = False
    ) -> None:
        self.recorder = recorder
        self.thread: Thread = recorder.thread_state()
        self._outer = recorder.places.frames(recorder.place(self.thread, frame), recorder.user)
        self._given = given
        self._autocast = [autocast]
        """Whether autocast is on, outermost region first."""
        self.values: dict[Any, Any] = {}
        """By node: the program's own tensor for what comes into the graph, a fake one for what is made in it."""

    def made(self, node: Any) -> None:
        """Marks what a node made."""
        value = self.values[node] = node.meta.get("example_value")
        known = self._given.get(node.name) if node.op in ("placeholder", "get_attr") else None
        if known is not None and (known.dtype, known.dim()) == (value.dtype, value.dim()):
            self.values[node] = known
        self._region(node)
        if node.op not in ("call_function", "call_method"):
            return
        func, args, kwargs = self.call(node)
        for out in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(out, Tensor) and self.recorder.origins.of(out) is None:
                self._mark(node, func, args, kwargs, out)

    def _region(self, node: Any) -> None:
        name = getattr(node.target, "__name__", "")
        if name == "_enter_autocast":
            self._autocast.append(node.args[2] if len(node.args) > 2 else True)
        elif name == "_exit_autocast" and len(self._autocast) > 1:
            self._autocast.pop()

    def _mark(self, node: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> None:
        origins = self.recorder.origins
        place = self.place(node)
        inputs = [t for n in node.all_input_nodes if isinstance(t := self.values.get(n), Tensor)]
        dtypes = tuple(t.dtype for t in inputs)
        call = [func, args, kwargs, place, ()]
        outcome = Made(func, inputs, dtypes, out.dtype, place, self.thread.module, call)
        if not inputs:
            event = self.recorder.births.birth(outcome, self.thread)
        elif {*dtypes} == {out.dtype}:
            event = origins.mark_of(inputs[0], place).event
        elif self._autocast[-1] and out.dtype not in dtypes and outcome.name not in NAMED_CASTS and outcome.source:
            event = origins.event(outcome.event("autocast", outcome.source))
        else:
            event = self.recorder.births.decide(outcome)
        origins.mark(out, event, -1)

    def call(self, node: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """The call that a node stands for."""
        values = lambda n: self.values.get(n)
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
