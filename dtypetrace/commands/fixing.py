"""``dtypetrace fix``: one repair from start to end, with messages on stderr and the diff on stdout."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .. import report
from ..autofix import Outcome, Proof, Repair, RunFailed, Runner, describe
from ..errors import UsageError
from ..lora.verdict import Retraining
from ..parts import attempt, collected
from ..render import diffs
from ..render import retraining as retraining_views
from ..repair.compiled import as_compiled
from ..repair.training import Learning, learning, not_learning
from ..results import conclude
from ..rules.training import FEW, in_few_steps
from ..source.patch import Unpatchable
from ..terminal import seen_lines
from . import adapters_again, arguments
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
    force: bool = False
    """Write the patch although it is not proven."""
    html: Path | None = None
    """Where to write the report of the healed run, with the result of retraining its adapters."""

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
                *["-m"] * self.as_module,
                *self.words,
            ]
        )


def fix(request: Request) -> int:
    """Repairs a program and returns the exit status: 0 if the patch is proven or nothing is wrong, else 1.

    Raises UsageError where the program cannot be run more than once.
    """
    with collected() as failed, Runner(request.words, request.as_module, request.steps, request.source) as run:
        status = _repaired(request, run)
    for sentence in failed:
        _say(f"not seen: {sentence}")
    return status


def _repaired(request: Request, run: Runner) -> int:
    name, html = request.name, request.html
    _say(
        f"dtypetrace fix: runs {name} several times, first with casts inserted, then with patches. "
        "Files that the script writes are written in each run"
    )
    repair = Repair(run, say=_say)
    try:
        healed = repair.find()
        _needs_stdin(name, healed)
        if repair.budget and any(problem.remaining() for problem in repair.problems):
            _say(repair.budget)
        verdict = repair.prove() if repair.problems else None
    except RunFailed as failure:
        _say(f"dtypetrace: error: {failure}")
        return 1
    if verdict is not None:
        _print_repair(repair, verdict)
    proven = verdict is None or verdict.proven
    learns, retraining = attempt(
        "whether the adapters learn", lambda: _retrained(repair, healed, proven), (False, None)
    )
    trained = None
    # one kind of change at a time: how a program trains is changed only where it runs as it is
    if verdict is None and (retraining is not None or learns):
        trained = attempt("which edit lets the weights learn", partial(_trained, repair, healed), None)
        if retraining is not None and retraining.confirmed and (trained is None or not trained.changes):
            _say_remedy(healed)
        if trained is None:
            trained = attempt("what its compiled code does", partial(_compiled, repair, healed), None)
    elif verdict is not None and verdict.proven:
        attempt("what the patched program still warns of", partial(_say_what_is_left, repair), None)
    if retraining is not None and not learns:
        learns = _learn_with(trained, retraining)
    proven = proven and learns and (trained is None or trained.proof.proven)
    if trained is not None:
        verdict = trained.proof if trained.changes else verdict
    elif verdict is None:
        proven = _nothing(request, healed, learning=learns) and proven
    if html is not None and not attempt("the HTML report", partial(_html, html, healed, retraining), False):
        proven = False
    return _written(repair, verdict, request) or int(not proven)


def _say_what_is_left(repair: Repair) -> None:
    """Names the weights of the patched program that do not learn: the next ``fix`` tries edits for them."""
    left = not_learning(repair.patched.recording) if repair.patched is not None else None
    if left is not None:
        again = "Write this patch and run dtypetrace fix again: it then tries edits for that"
        _say(f"{left.code} is left: {left.title}. {again}")


def _html(path: Path, healed: Outcome, retraining: Retraining | None) -> bool:
    """Writes the report of the healed run; returns whether that worked. If not, the patch is still worth having."""
    try:
        shown = conclude(healed.recording)
        report.write_html(path, shown.recording, shown.findings, retraining=retraining)
    except OSError as failure:
        _say(f"dtypetrace: error: --html {path} could not be written: {failure}")
        return False
    return True


def _print_repair(repair: Repair, verdict: Proof) -> None:
    """Prints each cause and its change, the diff, and whether it is proven."""
    for problem in repair.problems:
        code = problem.findings[0].code
        for line in attempt(f"what is changed for {code}", partial(describe, problem), [code]):
            _say(line)
    for objection in filter(None, repair.objections.values()):
        _say(f"not patched: {objection}")
    sys.stdout.write(diffs.shown(repair.patch.diff(), sys.stdout))
    sys.stdout.flush()
    _say(f"{'proven' if verdict.proven else 'not proven'}: {verdict.why}")
    _say(f"how it ends: {repair.endings}")


def _retrained(repair: Repair, found: Outcome, proven: bool) -> tuple[bool, Retraining | None]:
    """Whether the adapters learn, as they are or with the patch. If they do not as they are, prints and returns the
    comparison with float32. ``found``: the first, healed run."""
    outcome, patch = adapters_again.before(repair, found, proven)
    measured = outcome.adapters
    failing = adapters_again.failing(measured)
    if measured is None or not failing:
        return True, None
    kinds = sorted({measured.mechanisms[name].name for name in failing})
    dtypes = " and ".join(sorted({measured.updates[n].dtype for name in failing for n in measured.adapters[name]}))
    many = f"{len(failing)} adapters in {dtypes} do" if len(failing) > 1 else f"an adapter in {dtypes} does"
    them = "them" if len(failing) > 1 else "it"
    again = f"the program runs again with {them} in float32, once with training and once without"
    already = repair.patched is not None and proven and repair.patched is not outcome
    without = "without the patch, " if already else ""
    _say(f"{without}{many} not learn ({', '.join(kinds)}); {again}")
    try:
        retraining = adapters_again.again(repair.run, patch, measured)
    except (RunFailed, adapters_again.NotComparable) as failure:
        _say(f"could not check whether the adapters learn in float32: {failure}")
        return False, None
    _say(retraining_views.text(retraining))
    if retraining.confirmed and already:
        if advice := adapters_again.advice(retraining):
            _say(f"help: {advice}")
    elif retraining.confirmed and repair.problems:
        _say_remedy(outcome)
    return retraining.confirmed and already, retraining


def _say_remedy(outcome: Outcome) -> None:
    """Says in words what lets the adapters learn, where no edit of the program does it."""
    if outcome.adapters is not None:
        failing = adapters_again.failing(outcome.adapters)
        _say(f"help: {adapters_again.remedy(outcome.recording, outcome.adapters, failing)}")


def _trained(repair: Repair, healed: Outcome) -> Learning | None:
    """Prints the edit with which weights learn that do not learn in half, and whether it is proven, or what to do by
    hand; None where all learn."""
    found = learning(repair, healed)
    if found is None:
        return None
    _print_learning(repair, healed, found)
    return found


def _compiled(repair: Repair, healed: Outcome) -> Learning | None:
    """The same for compiled code that does otherwise than the program says."""
    found = as_compiled(repair, healed)
    if found is not None:
        _print_learning(repair, healed, found)
    return found


def _print_learning(repair: Repair, healed: Outcome, found: Learning) -> None:
    _say(f"  change: {found.done}" if found.changes else found.done)
    sys.stdout.write(diffs.shown(repair.patch.diff(), sys.stdout))
    sys.stdout.flush()
    _say(f"{'proven' if found.proof.proven else 'not proven' if found.changes else 'not patched'}: {found.proof.why}")
    if found.ending:
        _say(f"how it ends: as it is, {healed.ending}; patched, {found.ending}")


def _learn_with(trained: Learning | None, retraining: Retraining) -> bool:
    """Whether adapters that were not seen to learn in float32 do with the patch; if not, prints what else may help.

    Where they still computed in half, they may have got no gradient: then what the patched program did decides.
    """
    mended = trained is not None and trained.proof.proven
    if retraining.confirmed:
        return mended
    if mended and trained is not None and trained.adapters and retraining.no_worse:
        every = len(retraining.adapters)
        left = sum(v.after.verdict != "healthy" for v in retraining.adapters) or every
        _say(
            f"float32 alone was not enough for {left} of {every} adapters; with this patch all of them are updated "
            "(whether the loss falls was not measured: that takes more steps)"
        )
        return True
    if advice := adapters_again.advice(retraining):
        _say(f"help: {advice}")
    return False


def _written(repair: Repair, verdict: Proof | None, request: Request) -> int:
    """Writes the patch if that was requested. Returns 1 if it could not be written or there is none."""
    if verdict is None:
        return 0
    changed = sorted(repair.patch.texts)
    if not changed:
        return 1
    if not request.write:
        _say(f"nothing was written. To change {_listed(changed)}: dtypetrace fix --write {request.command}")
        return 0
    if not verdict.proven and not request.force:
        _say("nothing was written, because the patch is not proven; --force writes it anyway")
        return 1
    try:
        repair.patch.write()
    except (Unpatchable, OSError) as failure:
        _say(f"dtypetrace: error: {failure}")
        return 1
    _say(f"written: {_listed(changed)}")
    return 0


def _needs_stdin(name: str, healed: Outcome) -> None:
    """Raises where the program ends because it has no input to read; else notes that it got none."""
    why = f"{name} reads standard input, which cannot be given to it more than once. Let it read a file instead"
    if healed.error is not None and (healed.stdin or healed.error["type"] == "EOFError") and not healed.refused:
        raise UsageError(why)
    if healed.stdin:
        _say(f"note: {why}; it ran without standard input")


def _nothing(request: Request, healed: Outcome, *, learning: bool) -> bool:
    """The message for a program in which no dtype is refused; whether nothing is wrong with it. ``learning``: all its
    adapters learn, or it has none."""
    name = request.name
    if not learning:
        _say(f"dtypetrace: no dtype error to patch in {name}, but not all of its adapters learn")
        if any(in_few_steps(healed.recording, f) for f in conclude(healed.recording).findings):
            _say(FEW)
        return False
    if healed.error is None:
        left = [f for f in conclude(healed.recording).findings if f.severity in ("error", "warning")]
        if left:
            _say(f"dtypetrace: no patch: torch refuses no dtype in {name}, and fix knows no edit of this program for:")
            for f in left:
                few = f" ({FEW})" if in_few_steps(healed.recording, f) else ""
                _say(f"  {f.severity}[{f.code}]: {f.title}{few}")
            _say(f"What to change: dtypetrace run {request.command}")
        else:
            _say(f"dtypetrace: nothing to fix: no dtype is refused in {name}")
        return not left
    _say(f"dtypetrace: nothing to fix: {name} ends with {healed.error['type']}, which no dtype caused")
    if hint := arguments.misplaced(FixCommand(), request.words, f"{healed.error['type']}: {healed.error['message']}"):
        _say(hint)
    return False


def _listed(files: list[str]) -> str:
    return ", ".join(os.path.relpath(file) for file in files)


def _say(text: str) -> None:
    print(seen_lines(text), file=sys.stderr, flush=True)
