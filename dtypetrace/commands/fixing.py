"""``dtypetrace fix``: one repair from start to end, with messages on stderr and the diff on stdout."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from functools import partial

from ..autofix import Outcome, Proof, Repair, RunFailed, Runner, describe
from ..parts import attempt, collected
from ..repair.clock import Clock, OutOfTime
from ..repair.compiled import as_compiled
from ..repair.mends import Mended, mended, troubles
from ..results import conclude
from ..rules.training import FEW, in_few_steps
from ..source.patch import Unpatchable
from ..terminal import seen_lines
from . import arguments
from .fix import FixCommand


@dataclass(frozen=True)
class Request:
    """What the command line asks of ``dtypetrace fix``."""

    words: list[str]
    """The script or module and its arguments."""
    as_module: bool = False
    steps: int | None = None
    """Optimizer steps after which each run ends; None: run it to its end."""
    source: str | None = None
    """The folder whose files may be patched; None: that of the script."""
    write: bool = False
    budget: float | None = None
    """Seconds that all runs may take together; None: as ``repair.clock`` says."""

    @property
    def name(self) -> str:
        return os.path.basename(self.words[0])

    @property
    def command(self) -> str:
        """The arguments of the same command, as a shell takes them."""
        return shlex.join(
            [
                *(("--steps", str(self.steps)) if self.steps else ()),
                *(("--source", self.source) if self.source else ()),
                *(("--budget", f"{self.budget:g}s") if self.budget else ()),
                *["-m"] * self.as_module,
                *self.words,
            ]
        )


def fix(request: Request) -> int:
    """Repairs a program and returns the exit status: 0 if a patch is proven or nothing is wrong, else 1."""
    clock = Clock(request.budget)
    run = Runner(request.words, request.as_module, request.steps, request.source, clock)
    with collected() as failed:
        status = _repaired(request, run, clock)
    for sentence in failed:
        _say(f"not seen: {sentence}")
    return status


def _repaired(request: Request, run: Runner, clock: Clock) -> int:
    name = request.name
    _say(
        f"dtypetrace fix: runs {name} several times, first with casts inserted, then with patches. "
        "Files that the script writes are written in each run"
    )
    repair = Repair(run, say=_say, clock=clock)
    try:
        healed = repair.find()
        if clock.planned:
            _say(clock.planned)
        verdict = repair.prove() if repair.problems else None
    except (RunFailed, OutOfTime) as failure:
        _say(f"dtypetrace: error: {failure}")
        return 1
    if verdict is not None:
        _print_repair(repair, verdict)
        if not verdict.proven:
            return _unproven() if repair.patch.texts else 1
    return _mended(repair, healed, request)


def _mended(repair: Repair, healed: Outcome, request: Request) -> int:
    """Patches what torch did not refuse, in the program whose refusals are repaired. Returns the exit status."""
    refused = bool(repair.problems)
    found: list[Mended] = []
    last = repair.patched if refused and repair.patched is not None else healed
    if last.error is None:
        show = partial(_print_mended, repair)
        found, last = attempt("the edits against what it warns of", lambda: mended(repair, last, show), ([], last))
        if not refused and not any(m.proof.proven for m in found):
            found = [*found, *attempt("what its compiled code does", lambda: _as_compiled(repair, healed), [])]
    proven = [m for m in found if m.proof.proven]
    tried = {m.finding.code for m in found}
    healthy = _left(repair, request, last, tried, patched=bool(proven or refused))
    done = healthy and (proven or refused or not found)
    if not proven and not refused and any(m.changes for m in found):
        return _unproven()
    return _written(repair, request) or int(not done)


def _as_compiled(repair: Repair, eager: Outcome) -> list[Mended]:
    """What compiled code does otherwise than the program says, mended."""
    found = as_compiled(repair, eager)
    if found is None:
        return []
    if found.proof.proven:
        repair.added += found.changes
    repair.patch.set(repair.changes)
    _print_mended(repair, found)
    return [found]


def _left(repair: Repair, request: Request, last: Outcome, tried: set[str], *, patched: bool) -> bool:
    """Says what is still wrong with the program as it is patched; whether that is nothing. ``tried``: the codes of
    what edits were run for; these were shown."""
    name = request.name
    if last.error is not None and not patched:
        _say(f"dtypetrace: nothing to fix: {name} ends with {last.error['type']}, which no dtype caused")
        said = f"{last.error['type']}: {last.error['message']}"
        if hint := arguments.misplaced(FixCommand(), request.words, said):
            _say(hint)
        return False
    few = [f for f in conclude(last.recording).findings if in_few_steps(last.recording, f)]
    left = [t for t in troubles(last.recording) if t.finding.code not in tried]
    if not (few or left or tried or patched):
        _say(f"dtypetrace: nothing to fix: no dtype is refused in {name}")
        return True
    for trouble in left:
        advice, why = trouble.in_words
        _say(f"{trouble.finding.code}: {trouble.finding.title}. By hand: {advice}")
        _say(f"not patched: {why}")
    for finding in few:
        _say(f"{finding.code}: {finding.title} ({FEW})")
    if (left or few) and not tried:
        _say(f"What to change: dtypetrace run {request.command}")
    return patched or not (left or few)


def _print_repair(repair: Repair, verdict: Proof) -> None:
    """Prints each cause and its change, the diff, and whether it is proven."""
    for problem in repair.problems:
        code = problem.findings[0].code
        for line in attempt(f"what is changed for {code}", partial(describe, problem), [code]):
            _say(line)
    for objection in filter(None, repair.objections.values()):
        _say(f"not patched: {objection}")
    _print_diff(repair.patch.diff())
    _say(f"{'proven' if verdict.proven else 'not proven'}: {verdict.why}")
    _say(f"how it ends: {repair.endings}")


def _print_mended(repair: Repair, found: Mended) -> None:
    """Prints one patch as a diff against the text with those before it, and whether it is proven."""
    _say(f"  change: {found.done}" if found.changes else found.done)
    before = [c for c in repair.changes if c not in found.changes]
    repair.patch.set(before)
    texts = repair.patch.texts
    repair.patch.set([*before, *found.changes])
    _print_diff(repair.patch.diff(since=texts))
    repair.patch.set(repair.changes)
    _say(f"{'proven' if found.proof.proven else 'not proven' if found.changes else 'not patched'}: {found.proof.why}")
    for done, why in found.rejected:
        _say(f"  or, not proven: {done}: {why}")
    if found.changes:
        _say(f"how it ends: patched, {found.outcome.ending}")


def _print_diff(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _unproven() -> int:
    _say("nothing was written, because the patch is not proven")
    return 1


def _written(repair: Repair, request: Request) -> int:
    """Writes the patch if that was requested. Returns 1 if it could not be written."""
    changed = sorted(repair.patch.texts)
    if not changed:
        return 0
    if not request.write:
        _say(f"nothing was written. To change {_listed(changed)}: dtypetrace fix --write {request.command}")
        return 0
    try:
        repair.patch.write()
    except (Unpatchable, OSError) as failure:
        _say(f"dtypetrace: error: {failure}")
        return 1
    _say(f"written: {_listed(changed)}")
    return 0


def _listed(files: list[str]) -> str:
    return ", ".join(os.path.relpath(file) for file in files)


def _say(text: str) -> None:
    print(seen_lines(text), file=sys.stderr, flush=True)
