"""The repair: the casts that healed a run, the source patch that makes them unnecessary, and the proof that it works.

:func:`fixes` and :func:`diff` judge a recording that still has its program's text. :class:`Repair` is ``dtypetrace
fix``: it runs the program with healing, patches each cause at the best place and runs the patched program, until
nothing is refused any more. If a candidate fails, it tries the next. Then it compares the two runs.
Nothing here imports torch: the runs are processes of their own (``commands.healed_run``).
"""

from __future__ import annotations

from . import graph, rules
from .records import Inserted, Recording
from .repair.candidates import Problem as Problem
from .repair.candidates import gather as gather
from .repair.proof import Proof, compare
from .repair.runs import Outcome, RunFailed, Runner
from .repair.search import Repair, changes_of
from .source.patch import Patch
from .tables.english import quoted


def fixes(recording: Recording) -> tuple[Inserted, ...]:
    """The casts that autofix inserted: what, where, why and how often, in the order in which they were first needed."""
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
    """The source patch for what healing cast, as a unified diff; empty where there is nothing to change.

    It is not proven: only ``dtypetrace fix`` runs the patched program.
    """
    patch = Patch(recording.text)
    problems = gather(recording, patch)
    for problem in problems:
        problem.choose_next()
    patch.set(changes_of(problems))
    return patch.diff()


def describe(problem: Problem) -> list[str]:
    """What is changed for one cause, whether that is safe, and what else could be done."""
    f = problem.findings[0]
    times = sum(x.count for x in problem.findings)
    culprit = f"{_these(problem)} {f.culprit.dtype}" if f.culprit else f.title
    often = f"{times} gradients" if f.op == "backward" else f"{times} times"  # the engine passes one at a time
    head = f"{f.code}: {culprit}, refused in {quoted(f.op) or f.phase}{f' ({often})' if times > 1 else ''}"
    if problem.chosen is None:
        return [head, f"  not patched: {f.fix.words if f.fix else 'no candidate is known'}"]
    wider = "" if problem.fixes[problem.chosen].safe else ", which may affect other values, too"
    lines = [head, f"  change{wider}: {problem.described(problem.chosen)}"]
    return lines + [f"  or: {other}" for other in problem.alternatives[:2]]


def _these(problem: Problem) -> str:
    """The tensors of one cause: ``w.grad and 3 more are``."""
    first, *others = dict.fromkeys(f.culprit.shown for f in problem.findings if f.culprit)
    return f"{quoted(first)} and {len(others)} more are" if others else f"{quoted(first)} is"


__all__ = ["Inserted", "Outcome", "Proof", "Repair", "RunFailed", "Runner", "compare", "describe", "diff", "fixes"]
