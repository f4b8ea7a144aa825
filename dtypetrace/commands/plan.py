"""``dtypetrace plan``: the modules of a script's model that must compute in float32, searched and verified by running
it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..errors import UsageError
from . import arguments, signals

if TYPE_CHECKING:
    from ..records import Recording
    from ..repair.runs import Runner


class PlanCommand:
    """Find the modules that must compute in float32, and verify that the others may compute in a narrower dtype.

    The script runs once as it is, and then again for every choice of modules that is tried, each time in a process
    of its own. Each run also computes a reference in higher precision, and is compared with that. What the script
    prints is shown for the first run, on stderr. It should seed its random numbers, so that all runs see the same
    data.

    Exit status: 0 if the plan is verified, or if no module needs float32; 1 if not; 2 for wrong usage.
    """

    name = "plan"
    usage = "dtypetrace plan [options] (script.py | -m module) [args ...]"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        arguments.add_script(
            parser,
            "plan for what python -m module runs",
            "a file, or with -m a module's name; everything after it is passed to the script",
        )
        add(
            "--tolerance",
            type=_share,
            default=0.05,
            metavar="SHARE",
            help="how large the error of results, gradients and updates may be, as a share of their size (0.05)",
        )
        add(
            "--steps",
            type=arguments.count("--steps"),
            default=2,
            metavar="N",
            help="end each run after N optimizer steps (2)",
        )

    def __call__(self, options: argparse.Namespace) -> SystemExit:
        program = arguments.program(options, self.usage)
        status = program.refused()
        if status is not None:
            return SystemExit(status)
        from ..repair.runs import Runner
        from ..rules import precision_plan

        runner = Runner([program.name, *program.argv[1:]], options.as_module, options.steps)
        with signals.said("plan"):
            first = _run(runner, (), shown=True)
            plan = precision_plan.search(first, partial(_run, runner), options.tolerance)
            print(plan)
            if plan.keep and plan.verified:
                print("\nTo apply it: t.precision_plan(step=...).apply(model) where the model has been made.")
        fine = plan.judged and not plan.keep and plan.before.worst <= plan.tolerance
        return SystemExit(int(not (plan.verified or fine)))


def _run(runner: Runner, keep: Sequence[str], *, shown: bool = False) -> Recording:
    """One run with some modules in float32. Raises UsageError where it recorded nothing."""
    from ..repair.runs import RunFailed
    from ..source.patch import Patch

    try:
        outcome = runner(Patch(), shown=shown, keep=keep)
    except RunFailed as failure:
        raise UsageError(str(failure)) from None
    if not outcome.recording.ops:
        raise UsageError(f"{runner.words[0]} ended with {outcome.ending}, and nothing of it was recorded")
    return outcome.recording


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share between 0 and 1")
    return value
