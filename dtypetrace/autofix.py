"""What to change: the casts that healed a run, the source patch that makes them unnecessary, and its proof.

:func:`fixes` and :func:`diff` are views of a recording. :class:`Repair` is ``dtypetrace fix``: it runs the
program healed, patches each cause at the best place, runs the patched program and looks again, until
nothing is refused any more; a way that does not do gives place to the next one. Then the two runs are
compared. Nothing here imports torch: the runs are processes of their own (``repair.healed_run``).
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from . import graph, saved
from .lora.verdict import AS_THEY_ARE, Measured
from .records import Cast, Place, Recording
from .repair.candidates import Problem, gather
from .source.patch import Change, Patch, forget_patched, objection, show_patched
from .tables.dtypes import FLOATING

MOST_ROUNDS = 12


# ---------------------------------------------------------------- views of a recording


@dataclass(frozen=True)
class Inserted:
    """One cast that healing inserted: ``count`` times, into calls of ``op`` at ``place``."""

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
        return f"{at}: {cast.argument} of {self.op}: {cast.source} -> {cast.to}{' and back' if cast.back else ''}{times}; {self.why}"


def fixes(recording: Recording) -> tuple[Inserted, ...]:
    """What healing inserted, where, why and how often, in the order in which it was first needed."""
    from . import rules

    found = []
    for refused in recording.refused:
        if refused.healed:
            finding = rules.judge(recording, refused)
            why = next(iter(finding.notes), finding.title)
            found += [
                Inserted(graph.place_of(recording, refused.place), refused.op, refused.module, refused.phase, c, why)
                for c in refused.casts
            ]
    return tuple(found)


def diff(recording: Recording) -> str:
    """The source patch for what a run was healed of, as a unified diff; empty where there is nothing to change.

    It is not proven: ``dtypetrace fix`` runs what it changes.
    """
    patch = Patch()
    problems = gather(recording, patch)
    for problem in problems:
        problem.choose_next()
    patch.set(_changes(problems))
    return patch.diff()


def _changes(problems: Sequence[Problem]) -> list[Change]:
    return [change for problem in problems for change in problem.chosen_changes]


# ---------------------------------------------------------------- one run of the program


@dataclass(frozen=True)
class Outcome:
    """How one healed run of the program went."""

    recording: Recording
    status: int
    error: dict | None
    ledger: tuple[dict, ...]
    root: str
    """The folder that holds the user's own code; empty where nothing was watched."""
    adapters: Measured | None = None
    """What the run did to adapters; None where it trains none."""
    stdin: bool = False
    """Whether it read standard input, of which it is given none."""

    @property
    def left(self) -> bool:
        """Whether a refusal that could not be healed ended it."""
        return any(r.left for r in self.recording.refused)

    @property
    def refused(self) -> bool:
        return any(r.healed or r.left for r in self.recording.refused)


class RunFailed(RuntimeError):
    """A run that gave no answer. The text says why."""


@dataclass
class Runner:
    """Starts the program in a process of its own. ``words`` and ``as_module`` are what ``dtypetrace run`` takes."""

    words: list[str]
    as_module: bool = False
    steps: int | None = None
    source: str | None = None
    numerics: bool = False
    """Whether to measure values in the run that is shown."""

    def __call__(self, patch: Patch, *, shown: bool, adapters: str = AS_THEY_ARE) -> Outcome:
        """Runs it with a patch; ``shown``: what it prints goes to stderr, else nowhere; ``adapters``: which of ``lora.verdict``'s three runs."""
        with tempfile.TemporaryDirectory(prefix="dtypetrace-") as folder:
            request, answer, trace = (Path(folder, name) for name in ("request.json", "answer.json", "trace"))
            asked = {
                "words": self.words,
                "as_module": self.as_module,
                "steps": self.steps,
                "source": self.source,
                "adapters": adapters,
                "numerics": self.numerics and shown,
                "texts": patch.texts,
                "encodings": {file: patch.sheets[file].encoding for file in patch.texts},
                "answer": str(answer),
                "trace": str(trace),
            }
            request.write_text(json.dumps(asked), "utf-8")
            command = [
                sys.executable,
                *subprocess._args_from_interpreter_flags(),
                "-m",
                "dtypetrace.repair.healed_run",
                str(request),
            ]
            environment = {"PYTHONHASHSEED": "0", **os.environ}
            sys.stderr.flush()
            out: Any = 2 if shown else subprocess.DEVNULL
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=None if shown else subprocess.DEVNULL,
                env=environment,
            )
            if not answer.exists():
                raise RunFailed(
                    f"the run ended without an answer (exit status {done.returncode}), as when a program ends its own process"
                )
            told = json.loads(answer.read_text("utf-8"))
            if told["failure"]:
                raise RunFailed(f"internal error; please report this:\n{told['failure']}")
            recording = saved.load(trace)[0] if trace.exists() else Recording()
            measured = saved.unpacked(Measured, told["adapters"]) if told["adapters"] else None
            return Outcome(
                replace(recording, sources=None),
                told["status"],
                told["error"],
                tuple(told["ledger"]),
                told.get("root", ""),
                measured,
                told["stdin"],
            )


# ---------------------------------------------------------------- the repair


@dataclass
class Verdict:
    """The result of a repair. ``proven``: the patched program ran without a refusal, and as the healed one did."""

    proven: bool
    why: str
    rounds: int = 0


@dataclass
class Repair:
    """Finds, patches and proves. ``run`` makes one run of the program."""

    run: Callable[..., Outcome]
    patch: Patch = field(default_factory=Patch)
    problems: list[Problem] = field(default_factory=list)
    objections: dict[str, str] = field(default_factory=dict)
    found: Outcome | None = None
    """The first run, healed and not patched."""
    healed: Outcome | None = None
    """The run that patched ones are compared with."""
    patched: Outcome | None = None
    """The last run of the patched program."""

    def find(self) -> Outcome:
        """Runs the program healed, once, and gathers the causes that it met."""
        self.found = self.healed = self.run(self.patch, shown=True)
        self.problems = self._gather(self.healed)
        return self.healed

    def _gather(self, outcome: Outcome) -> list[Problem]:
        show_patched(self.patch.texts)
        try:
            problems = gather(outcome.recording, self.patch)
        finally:
            forget_patched(self.patch.texts)
        for problem in problems:
            for kind, changes in problem.changes.items():
                problem.changes[kind] = [c for c in changes if not self._objects(c.file)]
        return problems

    def _objects(self, file: str) -> bool:
        if file not in self.objections:
            self.objections[file] = objection(file, self.healed.root) or ""
        return bool(self.objections[file])

    def prove(self) -> Verdict:
        """Patches and runs until nothing is refused any more, then compares with the healed run."""
        for problem in self.problems:
            problem.choose_next()
        for number in range(1, MOST_ROUNDS + 1):
            self.patch.set(_changes(self.problems))
            if not self.patch.texts:  # nothing is known, or what was patched in vain was withdrawn: its next way, then
                if not any([problem.choose_next() for problem in self.problems]):
                    return Verdict(False, self._without_edit(), number)
                self.patch.set(_changes(self.problems))
            patched = self.patched = self.run(self.patch, shown=False)
            if (
                self.healed.left and not patched.left and patched.error is None
            ):  # the first healed run that came to its end is what to compare with
                self.healed = patched
            if not patched.refused and not self._broken(patched):
                return self._compared(self._pruned(patched, MOST_ROUNDS - number), number)
            if not self._go_on(patched):
                self.patch.set(_changes(self.problems))
                return Verdict(False, self._still(patched), number)
        return Verdict(False, f"gave up after {MOST_ROUNDS} runs", MOST_ROUNDS)

    def _pruned(self, patched: Outcome, most: int) -> Outcome:
        """Leaves out the changes that others, found after a way that did not do, have made needless."""
        candidates = [p for p in self.problems if p.chosen is not None] if any(p.tried for p in self.problems) else []
        for problem in candidates[:most]:
            rest = [p for p in self.problems if p is not problem]
            if not _changes(rest):
                break
            trial = self._tried(_changes(rest))
            apart = compare(patched.ledger, trial.ledger)
            if (
                not trial.refused
                and not self._broken(trial)
                and (apart is None or apart <= _tolerance(patched.recording))
            ):
                self.problems, patched = rest, trial
        self.patch.set(_changes(self.problems))
        self.patched = patched
        return patched

    def _broken(self, patched: Outcome) -> bool:
        """Whether it ends with an error of another kind, that the healed run did not end with."""
        if patched.error is None or patched.left:
            return False
        before = self.healed.error
        return before is None or (before["type"], before["message"]) != (
            patched.error["type"],
            patched.error["message"],
        )

    def _go_on(self, patched: Outcome) -> bool:
        """Takes up what is still wrong: new causes as they are, what was patched in vain with its next way."""
        if self._broken(patched):
            culprit = self._at_fault(patched.error)
            if culprit is not None:
                culprit.choose_next()
            return culprit is not None
        known = {problem.key: problem for problem in self.problems}
        moved = False
        for found in self._gather(patched):
            problem = known.get(found.key)
            own = self._maker(found)
            if (
                own is not None
            ):  # what the patch itself put there is out of line: it goes, and what it was for is seen anew
                own.withdraw()
                moved = True
            elif problem is None:
                self.problems.append(found)
                moved |= found.choose_next()
            elif problem.chosen is None:
                moved |= problem.choose_next()
            else:
                # more calls that the same way mends, or a way that does not do
                before = len(problem.chosen_changes)
                problem.offer(
                    found.ways.get(problem.chosen, problem.ways[problem.chosen]),
                    tuple(found.changes.get(problem.chosen, ())),
                )
                if len(problem.chosen_changes) == before:
                    problem.choose_next()
                moved = True
        return moved

    def _maker(self, found: Problem) -> Problem | None:
        """The problem whose patch made the expression that gave a tensor its dtype: a cast of the patch's own, or a call that the
        patch told another dtype, where that is refused by a call that was in line before."""
        frame = found.born.stack[0] if found.born.stack else None
        sheet = self.patch.sheets.get(frame.file) if frame and frame.end_column else None
        if sheet is None:
            return None
        end = frame.end_line, frame.end_column - 1
        piece = sheet.made(*end) or (None if self._refused_before(found) else sheet.told(*end))
        pieces = (
            {
                p[:4]: problem
                for problem in self.problems
                for change in problem.chosen_changes
                if change.file == frame.file
                for p in change.pieces
            }
            if piece
            else {}
        )
        return pieces.get(piece[:4]) if piece else None

    def _refused_before(self, problem: Problem) -> bool:
        """Whether each of its calls was refused in the first run, too. Edits move no lines."""
        first = (
            {
                (r.op, r.module, *_line(graph.place_of(self.found.recording, r.place)))
                for r in self.found.recording.refused
            }
            if self.found
            else set()
        )
        return all((f.op, f.module, *_line(f.site)) in first for f in problem.findings)

    def _at_fault(self, error: dict) -> Problem | None:
        """The problem whose patch an error most likely comes from: one that changed the innermost line of the traceback
        that was changed at all."""
        for file, line in error["frames"]:
            for problem in reversed(self.problems):
                for change in problem.chosen_changes:
                    text = self.patch.sheets[change.file].original
                    lines = {text.count("\n", 0, p.start) + 1 for p in change.pieces}
                    if os.path.realpath(change.file) == os.path.realpath(file) and line in range(
                        min(lines), max(lines) + 1
                    ):
                        return problem
        return None

    def _tried(self, changes: Sequence[Change]) -> Outcome:
        """A run with other changes than those that are chosen."""
        self.patch.set(changes)
        try:
            return self.run(self.patch, shown=False)
        finally:
            self.patch.set(_changes(self.problems))

    def _without_edit(self) -> str:
        objections = [text for text in self.objections.values() if text]
        return objections[0] if objections else "no source edit is known for it"

    def _still(self, patched: Outcome) -> str:
        if self._broken(patched) and not patched.refused:
            return f"the patched program ends with {patched.error['type']}: {patched.error['message'].splitlines()[0] if patched.error['message'] else ''}"
        return "the patched program is still refused"

    def _compared(self, patched: Outcome, rounds: int) -> Verdict:
        if self.healed is patched:
            return Verdict(
                True, "nothing is refused; no healed run came to its end whose values could be compared", rounds
            )
        tolerance = _tolerance(patched.recording)
        worst = compare(self.healed.ledger, patched.ledger)
        count, drawn = min(len(self.healed.ledger), len(patched.ledger)), ""
        if (
            worst is not None
            and worst > tolerance
            and (same := [c for p in self.problems for c in p.same_draws]) != _changes(self.problems)
        ):
            twin = self._tried(same)
            closer = compare(self.healed.ledger, twin.ledger)
            if not twin.refused and not self._broken(twin) and closer is not None and closer <= tolerance:
                worst, drawn = closer, " for the same random numbers (in another dtype torch draws others)"
        if worst is None:
            return Verdict(True, "nothing is refused; no backward pass ran whose values could be compared", rounds)
        if worst <= tolerance:
            agree = f"agree with the healed run's within {_percent(worst)}" if worst else "are those of the healed run"
            return Verdict(
                True,
                f"nothing is refused; {count} backward pass{'es' if count != 1 else ''} and gradient norms {agree}{drawn}",
                rounds,
            )
        again = self.run(self.patch, shown=False)
        own = compare(patched.ledger, again.ledger)
        if own is not None and own > tolerance / 10:
            return Verdict(True, "nothing is refused; values not comparable: not deterministic", rounds)
        return Verdict(
            False,
            f"nothing is refused, but its values differ from the healed run's by {_percent(worst)} (tolerance {_percent(tolerance)})",
            rounds,
        )


def _line(place: Place) -> tuple:
    return (place.stack[0].file, place.stack[0].line) if place.stack else ()


_TOLERANCE = {"float8_e5m2": 0.5, "float8_e4m3fn": 0.3, "bfloat16": 0.1, "float16": 0.02, "float32": 1e-3}
"""Relative, by the coarsest dtype that takes part: some ten roundings of it, for the two runs cast at different places."""


def _tolerance(recording: Recording) -> float:
    seen = {
        dtype for op in recording.ops for dtype in (*op.outputs, *(i.dtype for i in op.inputs)) if dtype in FLOATING
    }
    return max((_TOLERANCE.get(dtype, 1e-6) for dtype in seen), default=1e-6)


def compare(healed: Sequence[dict], patched: Sequence[dict]) -> float | None:
    """The largest relative difference between two runs' values and gradient norms, over the passes that both made; None for none."""
    worst = None
    for a, b in zip(healed, patched):
        for key in ("value", "norm"):
            x, y = a[key], b[key]
            if x is None or y is None:
                continue
            same = x == y or math.isnan(x) and math.isnan(y)
            apart = (
                0.0 if same else abs(x - y) / max(abs(x), abs(y)) if math.isfinite(x) and math.isfinite(y) else math.inf
            )
            worst = apart if worst is None else max(worst, apart)
    return worst


def _percent(share: float) -> str:
    return "nothing" if share == 0 else f"{share:.2%}" if share >= 1e-4 else f"{share:.0e}"


# ---------------------------------------------------------------- the words


def describe(problem: Problem) -> list[str]:
    """What is changed for one cause, whether that is safe, and what could be done instead."""
    f = problem.findings[0]
    times = sum(x.count for x in problem.findings)
    culprit = f"{f.culprit.shown} is {f.culprit.dtype}" if f.culprit else f.title
    head = f"{f.code}: {culprit}, refused in {f.op or f.phase}{f' ({times} times)' if times > 1 else ''}"
    if problem.chosen is None:
        return [head, f"  not patched: {f.fix.why if f.fix else 'no way is known'}"]
    way = problem.ways[problem.chosen]
    lines = [head, f"  {'safe' if way.safe else 'unsafe (it changes more than this one value)'}: {way.why}"]
    return lines + [f"  or: {other}" for other in problem.alternatives[:2]]


__all__ = ["Inserted", "Outcome", "Repair", "RunFailed", "Runner", "Verdict", "compare", "describe", "diff", "fixes"]
