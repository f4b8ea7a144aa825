"""``dtypetrace plan``: the modules of a script's model that must compute in float32, searched and verified by running
it."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ..program import UsageError
from . import arguments

if TYPE_CHECKING:
    from ..records import Recording
    from ..rules.precision_plan import StepError


class PlanCommand:
    """Find the modules that must compute in float32, and verify that it is enough to keep only those.

    The script runs once with a reference in higher precision, and then again for every choice of modules
    that is tried, each time in a process of its own. What it prints is shown for the first run, on stderr. The
    script should seed its random numbers, so that all runs see the same data. Each run is compared with its own
    reference.

    Exit status: 0 if the plan is verified, or if nothing needs to be kept; 1 if not; 2 for wrong usage.
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
            help="how far results, gradients and updates may be off (0.05)",
        )
        add(
            "--steps",
            type=arguments.count("--steps"),
            default=2,
            metavar="N",
            help="end each run after N optimizer steps (2)",
        )

    def __call__(self, options: argparse.Namespace) -> SystemExit:
        from ..rules import precision_plan

        program = arguments.program(options, self.usage)
        words = [*(["-m"] if options.as_module else []), program.name, *program.argv[1:]]
        with tempfile.TemporaryDirectory() as folder:
            runner = _Runner(words, options.steps, Path(folder) / "trace.json")
            plan = precision_plan.search(runner.run((), shown=True), runner.measure, options.tolerance)
        print(plan)
        return SystemExit(0 if plan.verified or not plan.keep and plan.before.worst <= plan.tolerance else 1)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share between 0 and 1")
    return value


class _Runner:
    """Runs the script with some modules kept in float32, and reads what was measured."""

    def __init__(self, words: list[str], steps: int, trace: Path) -> None:
        self.words, self.steps, self.trace = words, steps, trace

    def run(self, keep: tuple[str, ...], *, shown: bool = False) -> Recording:
        """The recording of one run. Raises UsageError where it recorded nothing."""
        from .. import saved

        kept = ["--keep-wide", ",".join(keep)] if keep else []
        options = ["run", "--reference", "--steps", str(self.steps), "--save", str(self.trace), *kept]
        silent = None if shown else subprocess.DEVNULL
        self.trace.unlink(missing_ok=True)
        command = [sys.executable, "-m", "dtypetrace", *options, *self.words]
        ended = subprocess.run(
            command, stdout=sys.stderr if shown else silent, stderr=silent, env=dict(os.environ), check=False
        )
        try:
            return saved.load(self.trace).recording
        except (OSError, saved.TraceFileError) as error:
            raise UsageError(
                f"{self.words[0]} ended with status {ended.returncode} and left no trace: {error}"
            ) from None

    def measure(self, keep: tuple[str, ...]) -> StepError:
        """The error of the run with these modules in float32, compared with its reference."""
        from ..rules.precision_plan import step_error

        return step_error(self.run(keep))
