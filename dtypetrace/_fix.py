"""``dtypetrace fix``: one repair from start to end, told on stderr, its diff on stdout."""

from __future__ import annotations

import os
import sys

from ._patch import Unpatchable
from ._run import UsageError
from .autofix import Outcome, Repair, RunFailed, Runner, describe


def fix(words: list[str], *, as_module: bool, steps: int | None, source: str | None, write: bool, force: bool) -> int:
    """Repairs a program and returns the exit status: 0 proven or nothing to do, 1 not proven.

    Raises UsageError where the program cannot be run more than once.
    """
    name = os.path.basename(words[0])
    _say(f"dtypetrace fix: runs {name} healed, then again with each patch to prove it; what it writes, it writes each time")
    repair = Repair(Runner(words, as_module, steps, source))
    try:
        healed = repair.find()
        _needs_stdin(name, healed)
        if not repair.problems:
            return _nothing(name, healed)
        verdict = repair.prove()
    except RunFailed as failure:
        _say(f"dtypetrace: error: {failure}")
        return 1
    for problem in repair.problems:
        for line in describe(problem):
            _say(line)
    for objection in filter(None, repair.objections.values()):
        _say(f"not patched: {objection}")
    sys.stdout.write(repair.patch.diff())
    sys.stdout.flush()
    runs = f" ({verdict.rounds} patched run{'s' if verdict.rounds != 1 else ''})"
    _say(f"{'proven' if verdict.proven else 'not proven'}: {verdict.why}{runs}")
    changed = sorted(repair.patch.texts)
    if not changed:
        return 1
    if not write:
        _say(f"nothing was written. To change {_listed(changed)}: dtypetrace fix --write {' '.join(words)}")
        return 0 if verdict.proven else 1
    if not verdict.proven and not force:
        _say("nothing was written, as the patch is not proven; --force writes it all the same")
        return 1
    try:
        repair.patch.write()
    except (Unpatchable, OSError) as failure:
        _say(f"dtypetrace: error: {failure}")
        return 1
    _say(f"written: {_listed(changed)}")
    return 0 if verdict.proven else 1


def _needs_stdin(name: str, healed: Outcome) -> None:
    if healed.error is not None and healed.error["type"] == "EOFError":
        raise UsageError(f"{name} reads standard input, which cannot be given to it more than once. Let it read a file or its arguments")


def _nothing(name: str, healed: Outcome) -> int:
    if healed.error is None:
        _say(f"dtypetrace: nothing to fix, {name} is refused no dtype")
        return 0
    _say(f"dtypetrace: nothing to fix, {name} ends with {healed.error['type']}, and no dtype is the cause")
    return 1


def _listed(files: list[str]) -> str:
    return ", ".join(os.path.relpath(file) for file in files)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
