"""The case from which a remedy is decided: a judged collision, with the facts that several strategies need."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from .. import graph
from ..foresight import refused_with
from ..records import FORWARD, Edit, FlowStep, Frame, Op, Operand, Origin, Place, Recording, Refused, Witness
from ..source import editing, expressions, operands, regions
from ..source.operands import CallOperand
from ..tables.dtypes import COMPLEX, COUNTERPART, FLOATING, HALF, narrower
from ..tables.english import listed, quoted
from ..tables.operators import is_destination, is_move
from ..tables.rule_language import Gives, Refuses, Unknown
from . import autocast_off
from .collision import Verdict
from .run_facts import Run

SHARED = frozenset({"parameter", "load", "autocast"})
"""Kinds of origin that decide the dtype of more than one value: a module's parameters, a checkpoint."""
SHORT = 48
"""Characters of an expression that is repeated in words."""


@dataclass(frozen=True)
class Case:
    """A refused call with its culprit, as it was judged."""

    recording: Recording
    refused: Refused
    verdict: Verdict
    culprit: Operand
    witness: Witness
    """The culprit as it was seen when the call was refused."""
    flow: tuple[FlowStep, ...]
    site: Place

    @property
    def origin(self) -> Origin:
        return self.culprit.origin

    @property
    def here(self) -> Place:
        """Where the culprit's dtype was born, else where it was refused."""
        return self.origin.place if self.origin.place.stack else self.site

    @cached_property
    def run(self) -> Run:
        """The run, replayed once for each change that is proposed."""
        return Run(self.recording)

    @cached_property
    def written(self) -> int:
        """The event of the cast of integers with which this run wrote what it loaded here: it cast all that it wrote.

        -1 where the file is not its own, and of a narrower file, which is small on purpose.
        """
        line = graph.lineage(self.recording, self.witness.event, self.verdict.expected)
        if self.origin.kind != "load" or line is None or self.wanted in FLOATING:
            return -1
        loads = (n for n, e in enumerate(self.recording.events) if e is line.root and e.how == "load")
        return next((w for n in loads if (w := graph.written_before(self.recording, n)) >= 0), -1)

    # ------------------------------------------------------------ dtypes

    @cached_property
    def wanted(self) -> str | None:
        """The dtype that the culprit should have where it is refused; None where the run shows none."""
        return wanted_dtype(self.refused, self.culprit, self.verdict.expected)

    @cached_property
    def born(self) -> str | None:
        """The dtype to create it in: the real dtype of the same precision if it became complex between birth and
        refusal."""
        became = self.flow and {self.wanted, self.culprit.dtype} <= COMPLEX and self.flow[0].to not in COMPLEX
        return COUNTERPART.get(self.wanted, self.wanted) if became and self.wanted else self.wanted

    @property
    def disagrees(self) -> bool:
        """Whether the culprit should have another dtype than it has."""
        return self.born is not None and self.born != self.culprit.dtype

    @property
    def narrows(self) -> bool:
        """Whether the culprit is wider than it should be."""
        return narrower(self.born or "", self.culprit.dtype)

    # ------------------------------------------------------------ where it can be changed

    @cached_property
    def reached(self) -> bool:
        """Whether a cast in the call can help; for a gradient, an optimizer's state or a destination it cannot."""
        refused = self.refused
        return (
            not refused.derived
            and refused.phase != "optimizer"
            and refused.code != "DT111"
            and refused.op != "backward"  # what the engine refuses is not an operand of the call that starts it
            and bool(self.site.stack)
        )

    @cached_property
    def passed(self) -> bool:
        """Whether the program's own line makes the refused call, so that the operand can be cast there."""
        if not self.reached or self.site.stack[0] is not self.site.user_frame:
            return False
        return not expressions.raises(self.recording.text, self.site.stack[0])

    @cached_property
    def ran_before(self) -> bool:
        """Whether this very line made the refused call before, so that the calls around it may have returned then."""
        refused, site = self.refused, self.site.stack[:1]
        past = self.recording.ops[: refused.after if refused.after >= 0 else None]
        here = [(op, graph.place_of(self.recording, op.place).stack[:1] == site) for op in past]
        while here and here[-1][1]:
            here.pop()  # what the refused call itself ran before it was refused
        return any(at and (op.op, op.module) == (refused.op, refused.module) for op, at in here)

    @cached_property
    def writes_into(self) -> bool:
        """Whether the call writes into the culprit."""
        return is_destination(self.refused.op, self.witness.argument, self.witness.index)

    @cached_property
    def island(self) -> bool:
        """Whether the culprit was widened on purpose and something was computed in it."""
        on_purpose = self.origin.kind == "cast" and self.origin.explicit and self.narrows and not self.settled
        return on_purpose and graph.computes(self.recording, self.origin, self.culprit.dtype)

    @cached_property
    def narrowed_elsewhere(self) -> bool:
        """Whether the program casts another result of the same wide computation to the wanted dtype."""
        if not self.narrows or self.culprit.holder is not None or self.origin.kind in ("parameter", "load"):
            return False
        if self.origin.kind == "conversion" and not self.origin.explicit:
            return False
        line = graph.lineage(self.recording, self.witness.event, self.verdict.expected)
        roots = [n for n, e in enumerate(self.recording.events) if line is not None and e is line.root]
        return any(graph.narrowed_elsewhere(self.recording, n, self.wanted or "") for n in roots)

    @cached_property
    def completed(self) -> Place | None:
        """The program's own line that computed the culprit last, before the refused line; None where a library did."""
        ops = self.recording.ops
        for n in graph.first_operands(ops, self.witness.producer):
            place = graph.place_of(self.recording, ops[n].place)
            if place.stack and place.stack[0].user:
                here, site = place.stack[0], self.site.stack[0] if self.site.stack else None
                return place if site is None or (here.file, here.line) != (site.file, site.line) else None
            if not is_move(ops[n]):
                return None
        return None

    @cached_property
    def settled(self) -> bool:
        """Whether the cast that decided the dtype changed nothing: nothing was widened, so it is no island."""
        line = graph.lineage(self.recording, self.witness.event, self.verdict.expected)
        return line is not None and line.root.how == "attribute"

    @cached_property
    def handed_dtype(self) -> bool:
        """Whether the culprit has the dtype of another tensor, and none of its numbers."""
        return any(step.how == "attribute" for step in self.flow)

    @cached_property
    def kept_wide(self) -> bool:
        """Whether a weight is wide on purpose where it was made: an average or a sum that is updated in small steps."""
        held = self.island and self.culprit.holder == "parameter"
        return held and graph.updated(self.recording, self.origin, self.culprit.dtype)

    def taken(self, w: Witness) -> CallOperand:
        """One operand of the refused call."""
        return CallOperand.of(self.refused, self.site, w)

    def cast_with(self, dtype: str) -> tuple[Witness, ...]:
        """The other operands that must be cast with the culprit: those of its dtype, if the call would be refused again
        for them."""
        if self.witness.dtype not in FLOATING:
            return ()
        alone = refused_with(self.refused, {self.witness.index: dtype})
        others = tuple(w for w in self.refused.witnesses if w.index != self.witness.index)
        if self.refused.wants == "integer" and self.witness.argument.startswith("index["):
            return tuple(w for w in others if w.argument.startswith("index[") and w.dtype in FLOATING)
        alike = tuple(w for w in others if w.dtype == self.witness.dtype)
        if isinstance(alone, Unknown) and self.refused.wants == "kernel":
            return alike  # of what is not known of an operation, that its operands agree is the likeliest
        if not isinstance(alone, Refuses):
            return ()
        all_cast = dict.fromkeys((w.index for w in (self.witness, *alike)), dtype)
        return alike if isinstance(refused_with(self.refused, all_cast), Gives) else ()

    def cast_at_call(self, dtype: str) -> tuple[Edit, ...]:
        """The edits that cast the culprit in the refused call, and what must be cast with it; empty where the text does
        not show how, and for an index that the function reads again."""
        cast = (self.witness, *self.cast_with(dtype))
        if self.refused.op in ("getitem", "setitem") and any(map(self._index_read_again, cast)):
            return ()
        return all_of(editing.at_call(self.recording, self.taken(w), dtype) for w in cast)

    def _index_read_again(self, w: Witness) -> bool:
        text = self.recording.text
        return w.argument.startswith("index") and expressions.used_again(text, self.site, self.taken(w).node(text))

    def cast_by_callers(self, dtype: str) -> Iterator[tuple[Place, Edit]]:
        """The edits that cast the culprit where the program's own calls further out pass it on."""
        held = [(level, name) for index, level, name in self.refused.held if index == self.witness.index]
        return editing.at_callers(self.recording, self.taken(self.witness), dtype, held)

    def cast_like(self, other: Witness) -> tuple[Edit, ...]:
        """The edits that cast the same operands to the dtype of another one, whichever that is."""
        cast, several = (self.witness, *self.cast_with(other.dtype)), bool(self.earlier_weights() - {other.dtype})
        return all_of(editing.at_call_like(self.recording, self.taken(w), other, several=several) for w in cast)

    def earlier_weights(self, since: Callable[[Frame], bool] = lambda frame: True) -> set[str]:
        """The dtypes in which the refused line ran with weights of the same, since some line did."""
        found, frame, reached = set[str](), self.site.stack[:1], False
        for op in self.recording.ops if frame else ():
            here = graph.place_of(self.recording, op.place).stack[:1]
            reached = reached or any(map(since, (*here, *frame)))
            floating = {i.dtype for i in op.inputs} & FLOATING
            held = any(i.holder == "parameter" for i in op.inputs)
            alike = op.op == self.refused.op and op.phase in FORWARD and not op.autocast and len(floating) == 1
            if reached and held and alike and here == frame:
                found |= floating
        return found

    def in_fallback(self, dtype: str) -> tuple[tuple[Edit, ...], tuple[Edit, ...]]:
        """The edits that compute the refused call in another dtype; and the one that casts its result back, where it
        would have that dtype."""
        casts, taken = self.cast_at_call(dtype), (self.witness, *self.cast_with(dtype))
        made = refused_with(self.refused, dict.fromkeys((w.index for w in taken), dtype))
        if not casts or isinstance(made, Gives) and made.dtypes[:1] != (dtype,):
            return casts, ()
        return casts, one(editing.back_in_fallback(self.recording, self.site, casts[0].before, self.culprit.dtype))

    # ------------------------------------------------------------ under autocast

    @cached_property
    def half(self) -> str:
        """The half dtype that meets float32 in the refused forward call; empty where it is not these two that meet."""
        refused = self.refused
        half = {w.dtype for w in refused.witnesses if w.dtype in HALF}
        floating = {w.dtype for w in refused.witnesses if w.dtype in FLOATING}
        meets = len(half) == 1 and floating - half == {"float32"}
        return next(iter(half)) if meets and refused.phase == "forward" and refused.wants == "agree" else ""

    @cached_property
    def in_region(self) -> Place | None:
        """The autocast region in which this call ran before; None where it did not, or the text has no region."""
        op = self.ran_under
        return (
            regions.statement(self.recording.text, graph.place_of(self.recording, op.place)) if op is not None else None
        )

    @cached_property
    def ran_under(self) -> Op | None:
        """The earlier run of this call under autocast; None where there is none."""
        return autocast_off.ran_under(self.recording, self.refused)

    @cached_property
    def off(self) -> autocast_off.Off | None:
        """The autocast region around this call that is off; None where there is none."""
        return autocast_off.switched_off(self.recording, self.refused)


def in_forward(recording: Recording, refused: Refused, culprit: Witness) -> tuple[Refused, Witness]:
    """A refusal in the backward of an op, and its culprit, as the op's own call took them: a cast there reaches both.

    As they are where the culprit is no operand of that call.
    """
    name = refused.op.removesuffix("_backward")
    site = graph.place_of(recording, refused.place).stack[:1]
    ran = (o for o in reversed(recording.ops[: refused.after]) if o.op == name and o.place == refused.place)
    op = next(ran, None) if refused.derived and name != refused.op and site and site[0].user else None
    call = expressions.call_at(recording.text, site[0]) if op is not None else None
    if op is None or call is None:
        return refused, culprit
    own = expressions.last_part(call.func) == name
    if not own and (call.keywords or len(call.args) != len(op.inputs)):
        return refused, culprit  # a loss module takes what its function takes
    known = {(w.event, w.producer): w for w in refused.witnesses if w.producer >= 0}
    taken = [(n, known[i.event, i.producer]) for n, i in enumerate(op.inputs) if (i.event, i.producer) in known]
    seen = [replace(w, index=n, passed="" if own else w.argument, position=n) for n, w in taken]
    found = next((new for new, (_, w) in zip(seen, taken) if w is culprit), None)
    if found is None:
        return refused, culprit
    return replace(refused, op=name, aten=op.aten, witnesses=tuple(seen), derived=False), found


def trained_root(recording: Recording, refused: Refused, witness: Witness, expected: str | None) -> int:
    """The event of the trained parameter that decided an operand's dtype; -1 where none did."""
    line = graph.lineage(recording, witness.event, expected)
    if line is None:
        return -1
    trained = (p.event for p in (*refused.model, *recording.parameters) if p.trained and p.event >= 0)
    return next((event for event in trained if recording.events[event] is line.root), -1)


def wanted_dtype(refused: Refused, culprit: Operand, expected: str | None) -> str | None:
    """The dtype that an operand should have; None where the run shows none."""
    if refused.wants == "complex":
        return COUNTERPART.get(culprit.dtype, "complex64")
    if refused.code == "DT111":  # a destination should have the dtype of what is written into it
        named = dict(refused.dtypes)
        written = (named[k] for k in ("result", "expected", "desired") if named.get(k, culprit.dtype) != culprit.dtype)
        return next(written, expected)
    if refused.wants == "float":
        return expected if expected in FLOATING else "float32"
    if refused.wants == "kernel" and culprit.dtype in HALF:
        return "float32"
    return {"integer": "int64", "bool": "bool"}.get(refused.wants, expected)


def all_of(edits: Iterable[Edit | None]) -> tuple[Edit, ...]:
    """The edits; none where one of them is missing."""
    found = tuple(edits)
    return tuple(edit for edit in found if edit is not None) if None not in found else ()


def one(edit: Edit | None) -> tuple[Edit, ...]:
    """An edit that may be missing, as a tuple."""
    return (edit,) if edit is not None else ()


def cast_words(edits: Sequence[Edit], dtype: str) -> str:
    """Edits that cast expressions where their wide part is complete, in words."""
    finished = "the finished result" if len(edits) == 1 else "the finished results"
    return f"cast {cast_what(edits) or finished} to {dtype} here"


def cast_what(edits: Sequence[Edit]) -> str:
    """The expressions that edits cast, long ones by their ends; empty where that is not short, either."""
    texts = [_brief(" ".join(edit.before.split())) for edit in edits]
    return listed([quoted(text) for text in texts]) if all(texts) else ""


def _brief(text: str) -> str:
    if len(text) <= SHORT:
        return text
    try:
        return operands.plain(ast.parse(text, mode="eval").body)
    except SyntaxError:
        return ""


def spell(dtype: str) -> str:
    return f"torch.{dtype}"


def short(place: Place) -> str:
    """The user's line, as ``train.py:12``."""
    frame = place.user_frame
    return f"{os.path.basename(frame.file)}:{frame.line}" if frame else ""
