"""Facts about recorded events that only the program's text has, found once and kept in the records.

A hook sees that ``y.dtype`` was read before ``x.to(...)`` ran. Only the text says whether that read gave the call its
dtype. The same is true for the name of a tensor from outside, and for the ``with`` statement of an autocast region.
:func:`with_facts` answers these questions for every event of a recording. After that, no view needs the text.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field, replace
from functools import partial

from ..parts import attempt, collected
from ..records import UNWATCHED, Event, Frame, Place, Read, Recording
from ..records.text import ProgramText
from ..tables.dtypes import FLOATING
from ..tables.operators import CAST_METHODS
from . import arrays, regions
from .expressions import (
    arguments,
    assignments,
    call_at,
    callee,
    dotted,
    dtype_argument,
    expression_at,
    function_around,
    last_part,
)
from .operands import located

_ASSIGNMENT = re.compile(r"\s*(?:self\.)?([\w.]+)\s*(?::[^=]+)?=(?!=)")
_MOST_FRAMES = 6
"""How far out from a call its dtype argument is followed; in the programs seen, three frames were enough."""


@dataclass
class Known:
    """What was already found, by the numbers of the places: for a recording that is read again while it grows."""

    reads: dict[tuple[int, tuple[Read, ...]], tuple[Read, ...]] = field(default_factory=dict)
    names: dict[tuple[int, str], str] = field(default_factory=dict)
    regions: dict[int, Place | None] = field(default_factory=dict)
    assigned: dict[int, tuple[str, ...]] = field(default_factory=dict)
    told: dict[tuple[int, str, bool], Place | None] = field(default_factory=dict)


def with_facts(recording: Recording, known: Known | None = None) -> Recording:
    """The recording, with facts from its text in its events: which reads gave a dtype and how they are written, the
    names of tensors from outside, the ``with`` statements of autocast regions (as new places)."""
    finder = _Finder(recording, known or Known())
    with collected() as failed:
        events = tuple(
            [attempt(f"the text of a {event.how}", partial(finder.event, event), event) for event in recording.events]
        )
    not_seen = tuple(dict.fromkeys((*recording.not_seen, *failed)))
    return replace(recording, events=events, places=(*recording.places, *finder.added), not_seen=not_seen)


class _Finder:
    """Finds the facts for the events of one recording."""

    def __init__(self, recording: Recording, known: Known) -> None:
        self.recording = recording
        self.text: ProgramText = recording.text
        self.known = known
        self.added: list[Place] = []
        self._numbers: dict[Place, int] = {}
        self._mentions: dict[str, bool] = {}

    def event(self, event: Event) -> Event:
        if event.reads:
            event = replace(event, reads=self._reads(event))
        if not event.parents and event.to in FLOATING:
            event = replace(event, assigned=self._assigned(event.place))
        if event.how in ("input", "worker"):
            named = replace(event, name=self._name(event))
            return self._born(named)
        if event.op == "from_numpy" and (made := self._constructor(event.place)):
            event = replace(event, how="factory", op=made)
            return self._told(event) if event.source else event
        if event.how == "conversion" and not event.explicit:
            return self._told(event)
        if event.how == "autocast":
            return replace(event, region=self._region(event))
        return event

    def _born(self, event: Event) -> Event:
        """A tensor whose making was not seen, at the one statement that assigns its name and names its dtype, in the
        function of its first use: it was made there, in a step that was not watched, or by a call that torch does not
        show. Else the event as it is."""
        place = self._place(event.place)
        frame = place.user_frame
        call = call_at(self.text, frame) if frame is not None else None
        file = self.text.parsed(frame.file) if frame is not None else None
        if frame is None or call is None or file is None:
            return event
        name = event.name or isinstance(call.func, ast.Attribute) and dotted(call.func.value) or ""
        if not name.isidentifier():
            return event
        words = {event.to, *(method for method, dtype in CAST_METHODS.items() if dtype == event.to)}
        values = [a.value for a in assignments(file, call, name) if a.value is not None]
        made = [v for v in values if any(getattr(n, "attr", getattr(n, "id", "")) in words for n in ast.walk(v))]
        unseen = {last_part(n.func) for v in made for n in ast.walk(v) if isinstance(n, ast.Call)} & arrays.READS
        if len(made) != 1 or event.op != UNWATCHED and not unseen:
            return event
        above = place.stack[place.stack.index(frame) + 1 :]
        number = self._number(Place((located(file, frame, made[0]), *above)))
        if event.op == UNWATCHED:
            return replace(event, place=number)
        return replace(event, how="factory", op=min(unseen), place=number, explicit=True)

    def _place(self, number: int) -> Place:
        return self.recording.places[number] if 0 <= number < len(self.recording.places) else Place()

    def _assigned(self, number: int) -> tuple[str, ...]:
        found = self.known.assigned.get(number)
        if found is None:
            place = self._place(number)
            frames = dict.fromkeys((f.file, f.line) for f in (place.user_frame, *place.stack[:1]) if f is not None)
            names = (_ASSIGNMENT.match(self.text.line(*frame)) for frame in frames)
            found = self.known.assigned[number] = tuple(match[1] for match in names if match)
        return found

    def _constructor(self, number: int) -> str:
        """The constructor that the line called, such as ``Tensor`` or ``FloatTensor``, else empty: torch runs the same
        operator for ``from_numpy`` and for ``torch.Tensor`` of a list."""
        frame = next(iter(self._place(number).stack), None)
        name = (callee(self.text, frame) or "").rpartition(".")[2] if frame is not None else ""
        return name if name.endswith("Tensor") else ""

    def _told(self, event: Event) -> Event:
        """With the place of the literal by which NumPy was told the dtype of the array that was converted; if its
        numbers are known to have been cast, to the first of several dtypes for which there is one."""
        for dtype in event.source or (event.to,):
            key = event.place, dtype, bool(event.source)
            if key not in self.known.told:
                frame = arrays.told(self.text, self._place(event.place), *key[1:])
                self.known.told[key] = Place((frame,)) if frame is not None else None
            if (found := self.known.told[key]) is not None:
                return replace(event, source=(dtype,) if event.source else (), told=self._number(found))
        return replace(event, source=event.source[-1:])

    def _reads(self, event: Event) -> tuple[Read, ...]:
        found = self.known.reads.get((event.place, event.reads))
        if found is None:
            call = self._place(event.place)
            found = self.known.reads[event.place, event.reads] = tuple(
                replace(
                    read,
                    written=_written(self.text, self._place(read.place), read.frames_up),
                    of_module=_asks_module(self.text, self._place(read.place)),
                )
                for read in event.reads
                if linked(self.text, call, self._place(read.place), read.frames_up)
            )
        return found

    def _name(self, event: Event) -> str:
        found = self.known.names.get((event.place, event.name))
        if found is None:
            found = first_use(self.text, self._place(event.place), event.name)
            self.known.names[event.place, event.name] = found
        return found

    def _region(self, event: Event) -> int:
        if event.place not in self.known.regions:
            place = self._place(event.place)
            mentioned = any(self._mentions_autocast(frame.file) for frame in place.stack)
            self.known.regions[event.place] = regions.statement(self.text, place) if mentioned else None
        found = self.known.regions[event.place]
        return self._number(found) if found is not None else -1

    def _mentions_autocast(self, file: str) -> bool:
        """A cheap test before a file is parsed: most files of a program never name autocast."""
        if file not in self._mentions:
            self._mentions[file] = any(regions.AUTOCAST in line for line in self.text.lines(file))
        return self._mentions[file]

    def _number(self, place: Place) -> int:
        """The number of a place, which is added if the recording did not have it."""
        number = self._numbers.get(place)
        if number is None:
            number = self._numbers[place] = len(self.recording.places) + len(self.added)
            self.added.append(place)
        return number


# ---------------------------------------------------------------- reads of x.dtype


def linked(text: ProgramText, call_place: Place, read_place: Place, frames_up: int) -> bool:
    """Whether a read of ``tensor.dtype`` gave a call its dtype argument.

    Exact where there is text: the read is inside the call, or inside the expression that was assigned to the name that
    the call uses, or inside the caller's call that passed it. A call with a literal dtype is not linked. A call without
    text (a program run by ``exec``) is linked, because hooks list only reads that the same running function made
    before.
    """
    if frames_up < 0:
        return True  # the tensor itself was passed to the call
    frame = next(iter(call_place.stack), None)
    if frame is None or len(read_place.stack) <= frames_up:
        return False
    call = call_at(text, frame)
    if call is None:
        return True
    argument = dtype_argument(call)
    if argument is None or (dotted(argument) or "").startswith("torch."):
        return False
    if _assigned_from(text, frame, call, argument, _same_function(read_place, frame)):
        return True
    # further out than the function that ran both, each call on the stack holds any read
    both = read_place.stack[frames_up]
    outer = _same_function(Place(call_place.stack[:_MOST_FRAMES]), both)
    return outer is not None and _inside_call(text, outer, both)


def _same_function(place: Place, frame: Frame) -> Frame | None:
    """The frame of a place that is in the same function as another frame."""
    return next((f for f in place.stack if (f.file, f.function) == (frame.file, frame.function)), None)


def _inside_call(text: ProgramText, frame: Frame, read: Frame) -> bool:
    """Whether a read is inside the call that a frame was in."""
    if read.column is None:
        return False
    file, call = text.parsed(frame.file), call_at(text, frame)
    return file is not None and call is not None and file.contains(call, read.line, read.column)


def _assigned_from(text: ProgramText, frame: Frame, call: ast.Call, argument: ast.expr, read: Frame | None) -> bool:
    """Whether the name used as argument was assigned, in the same function, from an expression that holds the read."""
    file, name = text.parsed(frame.file), dotted(argument)
    if file is None or name is None or read is None or read.column is None:
        return False
    values = (node.value for node in assignments(file, call, name) if node.value is not None)
    return any(file.contains(value, read.line, read.column) for value in values)


def _written(text: ProgramText, place: Place, frames_up: int) -> str:
    """The expression that a dtype was read from, as written where it was used: ``sample.dtype``, ``self.dtype``."""
    stack = place.stack
    if len(stack) <= max(frames_up, 0):
        return ""
    if frames_up < 0:
        call = call_at(text, stack[0])
        return ast.unparse(call.args[0]) if call is not None and call.args else ""
    node = expression_at(text, stack[frames_up])
    return dotted(node) or "" if node is not None else ""


_HELD = frozenset({"parameters", "named_parameters", "buffers", "named_buffers"})
"""Methods by which a module gives out its tensors in the order in which they were registered."""


def _asks_module(text: ProgramText, place: Place) -> bool:
    """Whether the tensor whose dtype was read is just one that a module gave out: ``next(m.parameters()).dtype``, or
    the variable of a loop over them."""
    frame = next(iter(place.stack), None)
    file = text.parsed(frame.file) if frame is not None else None
    node = expression_at(text, frame) if frame is not None and file is not None else None
    if file is None or not isinstance(node, ast.Attribute):
        return False
    asked: list[ast.AST] = [node.value]
    if isinstance(node.value, ast.Name):
        name = node.value.id
        loops = (n for n in ast.walk(function_around(file, node)) if isinstance(n, (ast.For, ast.comprehension)))
        asked = [n.iter for n in loops if any(isinstance(t, ast.Name) and t.id == name for t in ast.walk(n.target))]
    calls = (n.func for part in asked for n in ast.walk(part) if isinstance(n, ast.Call))
    return any(isinstance(f, ast.Attribute) and f.attr in _HELD for f in calls)


# ---------------------------------------------------------------- names of tensors from outside


def first_use(text: ProgramText, place: Place, name: str) -> str:
    """The expression by which a tensor from outside was first used, batch key included; empty where the text has no
    plain one.

    Hooks use names such as ``#1['mask']``: an argument of the call, by position. Without a number, the call must have
    only one plain argument.
    """
    frame = place.stack[0] if name and place.stack else place.user_frame
    call = call_at(text, frame) if frame else None
    if name.startswith("#"):
        index, bracket, key = name[1:].partition("[")
        before = call.args[: int(index) + 1] if call is not None else []
        if len(before) <= int(index) or any(isinstance(a, ast.Starred) for a in before):
            return ""
        return ast.unparse(before[-1]) + bracket + key
    if name or call is None:
        return name
    plain = [found for a in arguments(call) if (found := dotted(a))]
    return plain[0] if len(plain) == 1 else ""
