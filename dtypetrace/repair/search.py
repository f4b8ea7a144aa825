"""The search for a patch: run the program with healing, patch each cause, run the patched program, repeat.

If a candidate does not repair its cause, the next one is tried. The search ends when nothing is refused any more; then
the patched run is compared with the healed one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .. import graph
from ..records import CAST, UNCAST, Edit, Place, Recording
from ..rules.lost_steps import lost_steps
from ..source.patch import Change, Patch, objection
from ..tables.dtypes import COMPLEX, FLOATING, INTEGERS
from ..tables.english import percent, quoted
from ..tables.operators import is_destination
from . import steps
from .candidates import Problem, gather
from .clock import Clock, OutOfTime
from .proof import Evidence, Proof, Touched, evidence, finite, learns_less, narrowed, new_findings, tolerance
from .runs import Ended, Outcome, same_error

MOST_ROUNDS = 12
"""A program with more causes than this, each found only after the one before is repaired, needs several calls of
``fix``."""
NOTHING = "nothing to compare: no backward pass, no module output, and no number that the program holds or prints"
_SAME_PROGRAM = 0.1
"""If two runs of one patch differ by this share of the tolerance, the program itself is not deterministic."""


def changes_of(problems: Sequence[Problem]) -> list[Change]:
    """The changes of all problems' chosen candidates."""
    return [change for problem in problems for change in problem.chosen_changes]


@dataclass(frozen=True)
class Nearest:
    """A patch that was run and is not proven: how far it is from that, and why it is not proven."""

    rank: tuple[bool, int]
    why: str
    changes: list[Change]
    chosen: dict[tuple[object, ...], str]
    """The candidate of each problem, by the problem's key."""


@dataclass
class Repair:
    """Finds, patches and proves. ``run`` makes one run of the program."""

    run: Callable[..., Outcome]
    patch: Patch = field(default_factory=Patch)
    problems: list[Problem] = field(default_factory=list)
    say: Callable[[str], None] = lambda text: None
    """Is given one line for each run, when it begins."""
    runs: int = 0
    objections: dict[str, str] = field(default_factory=dict)
    found: Outcome | None = None
    """The first run: healed, not patched."""
    healed: Outcome | None = None
    """The run that patched runs are compared with."""
    patched: Outcome | None = None
    """The last run of the patched program."""
    own: Outcome | None = None
    """The healed program without a patch, with its steps compared with higher precision; it runs where that decides."""
    clock: Clock = field(default_factory=Clock)
    added: list[Change] = field(default_factory=list)
    """Changes beside those for refused calls, each proven."""
    nearest: Nearest | None = None
    """Of the patches that are not proven, the one that came nearest to it."""

    def find(self) -> Outcome:
        """Runs the program once with healing, and gathers the causes that it met."""
        what = "with a cast wherever torch refuses a call (the healed run)"
        self.found = self.healed = self.start(what, shown=True, compared=False)
        self.problems = self._gather(self.healed)
        return self.healed

    @property
    def changes(self) -> list[Change]:
        """All changes that are chosen so far."""
        return [*changes_of(self.problems), *self.added]

    def start(self, what: str, *, shown: bool = False, compared: bool = True) -> Outcome:
        """Runs the program, after saying what for. Its steps are compared with higher precision, but for the first run:
        that is slow, and which weights its own steps move seldom matters.
        Raises OutOfTime.
        """
        self.clock.start()
        self.runs += 1
        self.say(f"run {self.runs}{self.clock.passed}: {what}")
        began = time.monotonic()
        many = steps.COMPARED if compared else 0
        outcome = self.run(self.patch, shown=shown, compare_steps=many)
        self.clock.took(time.monotonic() - began)
        return outcome

    def _described(self) -> str:
        """What is patched in the next run."""
        chosen = [p for p in self.problems if p.chosen is not None]
        return "; ".join(f"{p.findings[0].code}, {p.described(p.chosen)}" for p in chosen if p.chosen is not None)

    def _gather(self, outcome: Outcome) -> list[Problem]:
        problems = gather(outcome.recording, self.patch)
        for problem in problems:
            for name, changes in problem.changes.items():
                problem.changes[name] = [c for c in changes if not self._objects(c.file)]
        return problems

    def _objects(self, file: str) -> bool:
        if file not in self.objections:
            self.objections[file] = objection(file, self.healed.root if self.healed else "") or ""
        return bool(self.objections[file])

    # ------------------------------------------------------------ rounds

    def prove(self) -> Proof:
        """Patches one cause after the other and runs until nothing is refused any more; then compares with the healed
        run.

        Later causes of the healed run may be artefacts: it goes on with values that no repaired program would have. So
        the program with the first cause patched is judged anew, and only what it still meets is patched, too.
        """
        try:
            proof = self._searched()
        except OutOfTime as over:
            proof = Proof(False, str(over), self.runs)
        return proof if proof.proven else self._nearest(proof)

    def _searched(self) -> Proof:
        first = next((p for p in self.problems if p.choose_next()), None)
        if first is not None:
            first.begin()
        for number in range(1, MOST_ROUNDS + 1):
            self.patch.set(changes_of(self.problems))
            if not self.patch.texts:  # no candidate is known, or one was withdrawn: try the next
                if not any(problem.choose_next() for problem in self.problems):
                    return Proof(False, self._without_edit(), number)
                self.patch.set(changes_of(self.problems))
            patched = self.patched = self.start(self._described())
            if self.healed and self.healed.left and not patched.left and patched.error is None:
                self.healed = patched  # compare with the first healed run that came to its end
            if not patched.refused and not self._broken(patched):
                if why := self._worse(patched):
                    self._remember(patched, why)
                    if len(self.problems) == 1 and self.problems[0].remaining():
                        self.problems[0].choose_next()
                        continue
                    return Proof(False, why, number)
                self.problems = [p for p in self.problems if p.chosen is not None]
                return self._compared(self._pruned(patched, MOST_ROUNDS - number), number)
            self._remember(patched, self._still(patched))
            if not self._go_on(patched):
                self.patch.set(changes_of(self.problems))
                return Proof(False, self._still(patched), number)
        return Proof(False, f"gave up after {MOST_ROUNDS} runs", MOST_ROUNDS)

    def _remember(self, patched: Outcome, why: str) -> None:
        """Keeps the patch of a run that is not proven, if no earlier one came as near: first those in which nothing is
        refused, then those with the fewest refused calls, last those that end with another error."""
        rank = self._rank(patched)
        if self.nearest is None or rank < self.nearest.rank:
            described = {p.key: p.chosen for p in self.problems if p.chosen is not None}
            self.nearest = Nearest(rank, why, changes_of(self.problems), described)

    def _rank(self, patched: Outcome) -> tuple[bool, int]:
        return self._broken(patched), sum(r.healed or r.left for r in patched.recording.refused)

    def _nearest(self, proof: Proof) -> Proof:
        """The proof of a search that failed: the patch is then the one that came nearest, not the last one."""
        farther = self.patched is not None and self.nearest is not None and self.nearest.rank < self._rank(self.patched)
        if self.nearest is None or self.patch.texts and not farther:
            return proof
        for problem in self.problems:
            problem.chosen = self.nearest.chosen.get(problem.key)
        self.patch.set(self.nearest.changes)
        return Proof(False, f"{self.nearest.why} (with the best patch, which is shown)", proof.rounds)

    def _pruned(self, patched: Outcome, most: int) -> Outcome:
        """Removes changes that are no longer needed because of later ones, found after a candidate that did not
        help."""
        if not any(p.tried for p in self.problems):
            chosen = []
        else:
            chosen = [p for p in self.problems if p.chosen is not None]
        for problem in chosen[:most]:
            rest = [p for p in self.problems if p is not problem]
            if not changes_of(rest):
                break
            trial = self.tried(changes_of(rest), "whether a change is needed")
            agree = _worst(evidence(patched, trial)) <= tolerance(patched.recording)
            if not trial.refused and not self._broken(trial) and agree:
                self.problems, patched = rest, trial
        self.patch.set(changes_of(self.problems))
        self.patched = patched
        return patched

    def _broken(self, patched: Outcome) -> bool:
        """Whether it ends with another error than the healed run, or with any at a call that was refused: then the
        patch only lets another exception come first."""
        if patched.error is None or patched.left:
            return False
        before = self.healed.error if self.healed else None
        return not same_error(before, patched.error) or self._at_refused_call(patched)

    def _at_refused_call(self, patched: Outcome) -> bool:
        """Whether an error came from a line that was refused in the first run. Edits do not move lines."""
        if self.found is None or patched.place is None:
            return False
        file, line = patched.place
        sites = (graph.place_of(self.found.recording, r.place).user_frame for r in self.found.recording.refused)
        return any(
            os.path.realpath(f.file) == os.path.realpath(file) and f.line <= line <= (f.end_line or f.line)
            for f in sites
            if f is not None
        )

    @property
    def endings(self) -> str:
        """How the program ends by itself, healed and patched, in words."""
        by_itself = ""
        if self.found is not None:
            first = next((r for r in self.found.recording.refused if r.healed or r.left), None)
            at = graph.place_of(self.found.recording, first.place).user_frame if first is not None else None
            where = f" at {os.path.basename(at.file)}:{at.line}" if at is not None else ""
            by_itself = f"{first.exception}{where}" if first is not None else self.found.ending
        said = [
            f"by itself, {by_itself}" if by_itself else "",
            f"with casts inserted, {self.found.ending}" if self.found is not None else "",
            f"patched, {self.patched.ending}" if self.patched is not None else "",
        ]
        return "; ".join(filter(None, said))

    def _go_on(self, patched: Outcome) -> bool:
        """Continues with what is still wrong: causes that are not repaired get their next candidate, else those that
        the run still meets get their first one. Causes that the patched run no longer meets are dropped."""
        if patched.error is not None and self._broken(patched):
            problem = self._at_fault(patched.error)
            if problem is not None:
                problem.choose_next()
            return problem is not None
        known = {problem.key: problem for problem in self.problems}
        found = self._gather(patched)
        met = {problem.key for problem in found}
        self.problems = [p for p in self.problems if p.chosen is not None or p.tried or p.key in met]
        new = [f for f in found if (p := known.get(f.key)) is None or p.chosen is None]
        own = [f for f in new if self._maker(f) is not None]
        again = [self._take_up(f, known.get(f.key)) for f in found if f not in new or f in own]
        if any(again):
            return True
        taken_up = [self._take_up(f, known.get(f.key)) for f in new if f not in own]
        return any(taken_up) or self._doubt(patched, [f for f in new if f not in own])

    def _doubt(self, patched: Outcome, left: list[Problem]) -> bool:
        """Whether the cause patched last can be repaired from its other side, where calls are left that compute on with
        the result of its call, and for which no change is known: that result's dtype is wrong, wherever it is cast."""
        last = next((p for p in reversed(self.problems) if p.chosen is not None), None)
        recording, own = patched.recording, {_line(f.site) for p in left for f in p.findings}
        of = [w.producer for r in recording.refused for w in r.witnesses if _line_of(recording, r.place) in own]
        above = {_line_of(recording, recording.ops[n].place) for n in graph.ops_above(recording.ops, of)}
        if last is None or not above & {_line(f.site) for f in last.findings}:
            return False
        self.problems = [p for p in self.problems if p not in left]
        return last.choose_other_side()

    def _take_up(self, found: Problem, problem: Problem | None) -> bool:
        """Whether anything changes for one cause that the patched run met; ``problem`` is that cause, if it was already
        known."""
        own = self._maker(found)
        if own is not None:  # the patch's own change is wrong: remove it; the next run meets its cause again
            own.withdraw()
            return True
        if problem is None:
            self.problems.append(found)
            return found.choose_next()
        if problem.chosen is None:
            return problem.choose_next()
        # either more calls that the same candidate repairs, or a candidate that does not help
        before = len(problem.chosen_changes)
        fix = found.fixes.get(problem.chosen, problem.fixes[problem.chosen])
        problem.offer(problem.chosen, fix, tuple(found.changes.get(problem.chosen, ())))
        if len(problem.chosen_changes) == before:
            problem.choose_next()
        return True

    # ------------------------------------------------------------ which change is to blame

    def _maker(self, found: Problem) -> Problem | None:
        """The problem whose patch made the expression that gave a tensor its dtype: a cast that the patch added, or a
        call whose dtype it changed, if a call now refuses it that was right before."""
        frame = found.born.stack[0] if found.born.stack else None
        patched_file = self.patch.patched_files.get(frame.file) if frame else None
        if frame is None or patched_file is None or not frame.end_column or not frame.end_line:
            return None
        end = frame.end_line, frame.end_column - 1
        piece = patched_file.insertion_at(*end) or (
            None if self._refused_before(found) else patched_file.argument_at(*end)
        )
        return self._owners(frame.file).get(piece[:4]) if piece else None

    def _owners(self, file: str) -> dict[tuple[object, ...], Problem]:
        """For each piece of a file's patch, the problem that it is for."""
        return {
            p[:4]: problem
            for problem in self.problems
            for change in problem.chosen_changes
            if change.file == file
            for p in change.pieces
        }

    def _refused_before(self, problem: Problem) -> bool:
        """Whether each of its calls was also refused in the first run. Edits do not move lines."""
        refused = self.found.recording.refused if self.found else ()
        first = {(r.op, r.module, *_line_of(self.found.recording, r.place)) for r in refused if self.found}
        return all((f.op, f.module, *_line(f.site)) in first for f in problem.findings)

    def _at_fault(self, error: Ended) -> Problem | None:
        """The problem whose patch most likely caused an error: the one that changed the innermost changed line of the
        traceback."""
        for file, line in error["frames"]:
            for problem in reversed(self.problems):
                for change in problem.chosen_changes:
                    same = os.path.realpath(change.file) == os.path.realpath(file)
                    if same and min(change.lines) <= line <= max(change.lines):
                        return problem
        return None

    def located(self, edit: Edit) -> tuple[Change, ...]:
        """An edit of the present patched text as a change; none where its file may not be changed."""
        return () if self._objects(edit.file) else self.patch.locate((edit,))

    def tried(self, changes: Sequence[Change], what: str) -> Outcome:
        """A run with other changes than the chosen ones; afterwards the patch is that of the chosen ones again."""
        self.patch.set(changes)
        try:
            return self.start(what)
        finally:
            self.patch.set(self.changes)

    # ------------------------------------------------------------ the verdict

    def _without_edit(self) -> str:
        objections = [text for text in self.objections.values() if text]
        refused = self.found.recording.refused if self.found is not None else ()
        vain = [f"with its operands cast, {quoted(r.op)} raises {r.in_vain}" for r in refused if r.in_vain]
        return next(iter((*objections, *vain)), "no source edit is known for it")

    def _still(self, patched: Outcome) -> str:
        error = patched.error
        if error is not None and self._broken(patched) and not patched.refused:
            same = " at a call that was refused" if self._at_refused_call(patched) else ""
            said = next(iter(error["message"].splitlines()), "")
            return f"the patched program ends with {error['type']}{same}: {said}"
        return "the patched program is still refused"

    def _worse(self, patched: Outcome) -> str:
        """What the patch does that no repair may do; empty where it does nothing of the kind."""
        before = self.healed if self.healed is not None and self.healed is not patched else self.found
        if before is None:
            return ""
        if names := narrowed(before.recording, patched.recording):
            return f"nothing is refused, but {names[0]} would be trained in a narrower dtype"
        if names := learns_less(before.recording, patched.recording):
            return f"nothing is refused, but fewer numbers of {names[0]} learn than in the healed run"
        if lost := self.lost_by_patch(patched):
            return f"nothing is refused, but its steps do not change weights as they do in higher precision: {lost}"
        if not before.left and before.error is None and (new := self.new_findings(before, patched, of_patch=True)):
            return f"nothing is refused, but the patched program has a finding that the healed one did not: {new[0]}"
        return ""

    def lost_by_patch(self, patched: Outcome) -> str:
        """What the optimizer's steps lose in a patched program and not in the program as it is; empty where nothing."""
        lost = lost_steps(patched.recording)
        if not lost:
            return ""
        every = sum(c.what == "update" and c.steps > 0 for c in patched.recording.compared)
        weights = f"{len(lost)} of {every} checked weight{'s' if every != 1 else ''}"
        own = self._as_it_is(f"the steps change {weights} by another amount than in higher precision")
        new = steps.lost_since(patched.recording, own.recording)
        more = f" (and {len(new) - 1} more)" if len(new) > 1 else ""
        return next((f"{name}{more}: {why}" for name, why in new.items()), "")

    def new_findings(self, before: Outcome, patched: Outcome, *, of_patch: bool = False) -> list[str]:
        """The serious findings of a kind that only the patched program has; ``of_patch``: and to which what the patch
        changes leads. What higher precision shows is looked for in both."""
        new, touched = new_findings(before.recording, patched.recording), None
        if new and of_patch:
            touched = self._touched
            new = new_findings(before.recording, patched.recording, touched)
        if new and patched.recording.compared and not before.recording.compared:
            return new_findings(self._as_it_is(f"there is {new[0]}").recording, patched.recording, touched)
        return new

    @property
    def _touched(self) -> Touched:
        """What the patch changes."""
        lines = frozenset((change.file, line) for change in self.changes for line in change.lines)
        edits = (e for p in self.problems if p.chosen is not None for e in p.fixes[p.chosen].edits)
        return Touched(lines, frozenset(e.change.dtype for e in edits))

    def _as_it_is(self, trouble: str) -> Outcome:
        """A healed run that is compared with higher precision. ``trouble``: what that showed in the last run."""
        if self.own is None:
            self.say(f"in run {self.runs}, {trouble}. Run 1 did not check for this")
            self.own = self.tried((), "the healed run again, now with this check")
        return self.own

    def _compared(self, patched: Outcome, rounds: int) -> Proof:
        """The verdict on a patched run in which nothing is refused, by what it can be compared with."""
        if self.healed is None or self.healed is patched:
            return self._without_healed(patched, rounds)
        allowed = max(tolerance(self.healed.recording), tolerance(patched.recording))  # a patch may widen it all
        found = evidence(self.healed, patched)
        if not found:
            return Proof(False, f"nothing is refused, and there is {NOTHING}", rounds)
        drawn = ""
        if _worst(found) > allowed and (closer := self._with_same_draws(self.healed)) and _worst(closer) <= allowed:
            found, drawn = closer, " for the same random numbers (torch draws others in another dtype)"
        if _worst(found) <= allowed:
            agree = f"{'; '.join(map(_agree, found))}{drawn}{self._steps(patched)}"
            return Proof(True, f"nothing is refused; {agree}", rounds)
        why = "" if finite(self.healed) else "the healed run computes numbers that are not finite"
        if self.healed is self.found and any(map(_rounds, self.problems)):
            why = "the healed run rounds what it writes into integers"
        if self.healed is self.found and any(map(_cuts, self.problems)):
            why = "the healed run computes with numbers that a cast cut to integers"
        if self.healed is self.found and any(map(_divides, self.problems)):
            why = "the healed run computes on with the fractions of what it casts to an index"
        if why and (count := finite(patched)):
            ended = f"the patched run reaches its end with finite values ({count} checked)"
            whole = f"nothing is refused; {ended}; {why}, so it is not compared{self._steps(patched)}"
            return Proof(True, whole, rounds)
        own = evidence(patched, self.start("the same patch again, because values differ"))
        if own and _worst(own) > allowed * _SAME_PROGRAM:
            why = "nothing is refused, but two runs of the patched program differ: it is not deterministic"
            return Proof(False, why, rounds)
        apart = max(found, key=lambda e: e.apart)
        share = f"{percent(apart.apart)} (tolerance {percent(allowed)})"
        why = f"nothing is refused, but its values differ from the healed run's by {share}: {apart.what}"
        return Proof(False, why, rounds)

    def _without_healed(self, patched: Outcome, rounds: int) -> Proof:
        """The verdict where no healed run came to its end: by what ran before the refusal, and by what came after."""
        allowed = tolerance(patched.recording)
        found = evidence(self.found, patched) if self.found is not None else []
        if found and _worst(found) <= allowed:
            ended = next((r.op for r in reversed(self.found.recording.refused) if r.left), "") if self.found else ""
            at = f"at {quoted(ended)}, into which fix inserts no cast" if ended else "early"
            before = f"the healed run ended {at}; up to there, {'; '.join(map(_agree, found))}"
            return Proof(True, f"nothing is refused; {before}{self._steps(patched)}", rounds)
        if count := finite(patched):
            ended = f"the patched run reaches its end with finite values ({count} checked)"
            why = f"{ended}; the healed run stopped earlier, so nothing could be compared"
            return Proof(True, f"nothing is refused; {why}{self._steps(patched)}", rounds)
        return Proof(False, f"nothing is refused, and there is {NOTHING}", rounds)

    def _steps(self, patched: Outcome) -> str:
        said = steps.said(patched.recording, self.own.recording if self.own is not None else None)
        return f"; {said}" if said else ""

    def _with_same_draws(self, healed: Outcome) -> list[Evidence]:
        """The evidence if the patch keeps the random numbers as they were drawn; none where it already does."""
        same = [c for p in self.problems for c in p.same_draws]
        if same == changes_of(self.problems):
            return []
        twin = self.tried(same, "with the random numbers of the healed run")
        return [] if twin.refused or self._broken(twin) else evidence(healed, twin)


def _rounds(problem: Problem) -> bool:
    """Whether healing stored floating numbers in a tensor of integers, which the patch makes floating."""
    made = problem.fixes[problem.chosen].edits[:1] if problem.chosen is not None else ()
    into = (f.culprit for f in problem.findings if f.culprit is not None and is_destination(f.op, "", f.culprit.index))
    return any(e.change.dtype in FLOATING for e in made) and any(o.dtype not in FLOATING for o in into)


def _cuts(problem: Problem) -> bool:
    """Whether healing widened integers that a cast had made of floating numbers, and the patch leaves that cast out."""
    made = problem.fixes[problem.chosen].edits[:1] if problem.chosen is not None else ()
    cut = (f.culprit for f in problem.findings if f.culprit is not None)
    return any(e.change.target == UNCAST for e in made) and any(o.dtype not in FLOATING | COMPLEX for o in cut)


def _divides(problem: Problem) -> bool:
    """Whether healing cast an index only where it was refused, and the patch casts it where integers were divided: all
    that is computed with it was meant to have whole numbers."""
    made = problem.fixes[problem.chosen].edits[:1] if problem.chosen is not None else ()
    whole = {(e.file, e.start[0]) for e in made if e.change.target == CAST and e.change.dtype in INTEGERS}
    born = [f.culprit.origin for f in problem.findings if f.culprit is not None and f.culprit.dtype in FLOATING]
    return any(o.kind == "promotion" and (o.place.file, o.place.line) in whole for o in born)


def _worst(found: Sequence[Evidence]) -> float:
    return max((e.apart for e in found), default=0.0)


def _agree(one: Evidence) -> str:
    single = one.count == 1
    if one.apart:
        return f"{one.what} agree{'s' * single} with the healed run's within {percent(one.apart)}"
    return f"{one.what} equal{'s' * single} the healed run's"


def _line_of(recording: Recording, place: int) -> tuple[object, ...]:
    return _line(graph.place_of(recording, place))


def _line(place: Place) -> tuple[object, ...]:
    return (place.stack[0].file, place.stack[0].line) if place.stack else ()
