"""What rules find: a finding, its parts, the changes that repair it. Part of :mod:`records`, which names them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..terminal import seen
from .places import Frame, Place


@dataclass(frozen=True, slots=True)
class Cast:
    """One operand of a refused call that autofix cast. ``back``: the call's results were cast back to ``source``."""

    argument: str
    source: str
    to: str
    count: int = 1
    back: bool = False


@dataclass(frozen=True, slots=True)
class Sources:
    """The lines of the program that views show, by file and line number."""

    lines: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    begins: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The first line of each marked expression that begins above its mark, by file and by ``line:column`` of the
    mark."""

    def line(self, file: str, line: int) -> str:
        return self.lines.get(file, {}).get(str(line), "")

    def begin(self, frame: Frame) -> int | None:
        """The first line of the expression in which a frame was, if that is above the frame's own line."""
        return self.begins.get(frame.file, {}).get(f"{frame.line}:{frame.column}")


@dataclass(frozen=True, slots=True)
class Origin:
    """The event that decided a tensor's dtype."""

    kind: str
    name: str | None
    op: str | None
    place: Place
    explicit: bool = False
    """Whether the program named the dtype there; else it came from a default."""

    @property
    def file(self) -> str:
        return self.place.file

    @property
    def line(self) -> int:
        return self.place.line

    @property
    def function(self) -> str:
        return self.place.function


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of a finding. shape is in elements; a Python scalar has dtype ``python float`` and shape (). The
    fields after ``origin`` are not in the JSON report."""

    index: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    device: str
    holder: str | None
    origin: Origin
    written: str = ""
    """How the call writes it (``q * turn``), where that is short and it has no name of its own."""
    handed: bool = False
    """Whether ``written`` is from the user's own call further out, which passed it to a library."""

    @property
    def shown(self) -> str:
        """How to show it: its own name, else the expression in the call, else the argument's name."""
        return self.written or self.name


@dataclass(frozen=True, slots=True)
class FlowStep:
    """One step from an origin towards the op where it matters. ``how`` is ``value``, ``cast``, ``attribute``,
    ``promotion``, ``autocast`` or ``copy``. ``attribute``: a cast to a dtype that was read from another tensor, also if
    that cast changed nothing. The fields after ``via`` are not in the JSON report."""

    place: Place
    op: str
    module: str
    source: str
    to: str
    how: str
    via: str = ""
    """The expression that the dtype was read from (``sample.dtype``), only if ``how`` is ``attribute``."""
    said: str = ""
    """The text for this step, where its kind alone does not explain it."""
    called: str = ""
    """What the user's own line called (``T5EncoderModel``), where the step happened inside a library."""
    receiver: str = ""
    """What is cast (``t_emb``), for how ``attribute``."""
    read: str = ""
    """The tensor (``model.scale``) whose dtype a property read, for how ``attribute``."""


@dataclass(frozen=True, slots=True)
class Chain:
    """How one tensor got its dtype, for ``why``: what it is, where the dtype was born, the steps since."""

    name: str
    dtype: str
    origin: Origin
    flow: tuple[FlowStep, ...]


CAST, RECAST, NAMED, UNCAST, SPARED = "cast", "recast", "named", "uncast", "spared"
LOWEST, LARGEST = "lowest", "largest"


@dataclass(frozen=True, slots=True)
class Change:
    """What is different in the run after an edit: what of the replaced text, and the dtype that it has then."""

    target: str = ""
    """``CAST``: its value, after which a cast is put. ``RECAST``: its value, whose own cast is replaced. ``NAMED``:
    what is made where it names a dtype. ``UNCAST``: its value, whose cast is left out; ``SPARED``: only where it is no
    floating tensor. ``LOWEST``, ``LARGEST``: it is a
    number, and becomes that limit of a dtype. Empty for all else."""
    dtype: str = ""
    like: str = ""
    """The tensor that the dtype is read from, as the edit writes it; empty where the edit names the dtype."""


NOTHING = Change()


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace ``before`` by ``after`` between two (line, column) positions, both from 1, the end exclusive."""

    file: str
    start: tuple[int, int]
    end: tuple[int, int]
    before: str
    after: str
    change: Change = field(default=NOTHING, compare=False, metadata={"in_report": False})
    """What it changes. Not in the JSON report, which has the text."""


NO_CHANGE = "none"


@dataclass(frozen=True, slots=True)
class Fix:
    """A change that repairs a finding."""

    kind: str
    """What is changed: ``cast``, ``dtype`` ...; ``NO_CHANGE`` where ``why`` says why nothing is."""
    place: Place
    edits: tuple[Edit, ...]
    safe: bool
    why: str
    """What to change, then the reason for it."""
    alternatives: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()
    """What was done to check the edits before they are shown; empty where there are none."""
    lines: tuple[str, ...] = ()
    """Changes to type by hand, where ``edits`` cannot hold them: each string names the place, then the change."""
    change: str = ""
    """The part of ``why`` before the reason; empty where there is no reason."""
    named: Place = Place()
    """The line that the words name, where they name one."""
    by_hand: tuple[Edit, ...] = ()
    """The edits that all of ``lines`` say; empty where one of them says none, or they do not fit the text."""

    @property
    def instruction(self) -> str:
        """What to change, without the reason."""
        return self.change or self.why

    @property
    def reason(self) -> str:
        """What follows the instruction in ``why``, with its punctuation; empty where there is no reason."""
        return self.why[len(self.instruction) :]

    @property
    def shown_edits(self) -> tuple[Edit, ...]:
        """The edits, or those that the lines say."""
        return self.edits or self.by_hand

    @property
    def words(self) -> str:
        """The fix and its steps by hand (``lines``) as one sentence, for outputs that cannot show a list."""
        return f"{self.why}: {'; '.join(self.lines)}" if self.lines else self.why


@dataclass(frozen=True, slots=True)
class Raised:
    """The exception that a refused call raised, as text."""

    type: str
    message: str


@dataclass(frozen=True, slots=True)
class Reach:
    """What ran in another dtype because of one cause: calls, floating point operations of matmuls and
    convolutions, bytes of results."""

    ops: int
    flops: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Tried:
    """What becomes of a damaged result without the rounding that a finding blames: the calls that led to it were made
    again, with the program's own rounding everywhere else."""

    what: str
    """The op of the damaged result."""
    place: Place
    before: float
    after: float
    unit: str = "error"
    """``error``: root mean square relative to the result in higher precision; ``change``: the same of what a call
    changes in place; ``step``: of what an optimizer's step changes; ``choices``: share of what is chosen that would be
    others; ``merged``: share of neighbours that are equal and should not be; ``still``: share of the numbers that
    should change and do not; ``spoilt``: share of the numbers that wrap or become zero or infinite."""
    roundings: int = 1
    """How many roundings were left out together."""
    missing: str = ""
    """Why nothing was tried; the figures mean nothing then."""

    @property
    def cures(self) -> bool:
        """Whether the damage is gone."""
        return not self.missing and gone(self.before, self.after)


NOT_FINITE = 1e5
"""The error of a result that is infinite or NaN (``reference.trials``) is larger."""
_GONE = 0.25
"""The share of an error that may be left where its cause is gone: the program's other roundings stay."""


def gone(before: float, after: float) -> bool:
    """Whether damage is gone: at most a quarter of it is left. A result that was infinite or NaN, and then is off by
    more than its value, is no better for being finite."""
    return after <= _GONE * before and (before < NOT_FINITE or after <= 1.0)


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem with one cause, grouped over repeats."""

    code: str
    kind: str
    severity: str
    title: str
    phase: str
    op: str
    aten: str | None
    module: str
    count: int
    predicted: bool
    site: Place
    operands: tuple[Operand, ...]
    culprit: Operand | None
    flow: tuple[FlowStep, ...]
    fix: Fix | None
    exception: Raised | None
    notes: tuple[str, ...] = ()
    """Facts that led to the verdict, one sentence each."""
    reach: Reach | None = None
    principle: str = ""
    """The rule that decided which of the dtypes is wrong (``rules.principles``); empty where nothing was refused."""
    tried: Tried | None = None
    """For damaged values that were followed: what the trial of the cause showed."""
    weights: tuple[str, ...] = field(default=(), metadata={"in_report": False})
    """All parameters that it is about, where ``operands`` has only some of them. Not in the JSON report."""
    sources: Sources = field(default_factory=Sources, compare=False, repr=False, metadata={"saved": False})
    """The sources of its recording, so that a finding can show its lines by itself. Not in the JSON report."""

    @property
    def file(self) -> str:
        """The user's own file where it appears; the library's, where no frame is the user's."""
        frame = self.site.user_frame
        return frame.file if frame is not None else ""

    @property
    def line(self) -> int:
        """The line in ``file``, 0 for none."""
        frame = self.site.user_frame
        return frame.line if frame is not None else 0

    def to_dict(self) -> dict[str, Any]:
        """The finding as it is in the JSON report."""
        from .plain import to_plain

        plain: dict[str, Any] = to_plain(self)
        return plain

    def __str__(self) -> str:
        at = f"{os.path.basename(self.file)}:{self.line}: " if self.file else ""
        return seen(f"{at}{self.severity}[{self.code}]: {self.title}")

    def __repr__(self) -> str:
        return f"<Finding {self}>"


@dataclass(frozen=True, slots=True)
class NotJudged:
    """One reason why a family of findings cannot speak: a fact, which ``render.coverage`` puts into words."""

    family: str
    """``collisions``, ``flows``, ``values``, ``updates`` or ``compiled code``."""
    id: str
    """What was in the way: ``off``, ``no step``, ``few steps``, ``compiled``, ``thread``, ``fused``."""
    count: int = 0
    """How many modules, regions or weights it concerns."""
    needs: int = 0
    """How many optimizer steps would be enough, 0 where steps do not help."""


@dataclass(frozen=True, slots=True)
class Inserted:
    """One cast that autofix inserted: ``count`` times, into calls of ``op`` at ``place``."""

    place: Place
    op: str
    module: str
    phase: str
    cast: Cast
    why: str

    @property
    def count(self) -> int:
        return self.cast.count

    def __str__(self) -> str:
        frame, cast = self.place.user_frame, self.cast
        at = f"{os.path.basename(frame.file)}:{frame.line}" if frame else self.phase
        times = f" ({cast.count} times)" if cast.count > 1 else ""
        back = " and back" if cast.back else ""
        return seen(f"{at}: {cast.argument} of {self.op}: {cast.source} -> {cast.to}{back}{times}; {self.why}")
