"""``dtypetrace plan``: the modules of a script's model that must compute in float32, searched and verified by running
it."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import TraceFileError, UsageError
from ..repair import children
from . import arguments, signals

if TYPE_CHECKING:
    from ..records import Recording
    from ..rules.precision_plan import PrecisionPlan
    from ..source.patch import Patch


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
        from ..rules import precision_plan

        with signals.said("plan"), tempfile.TemporaryDirectory() as folder:
            runner = _Runner([program.name, *program.argv[1:]], options.as_module, options.steps, Path(folder))
            first = runner.run((), shown=True)
            plan = precision_plan.search(first, runner.run, options.tolerance)
            print(plan)
            if plan.keep and plan.verified:
                print(_patch(runner, first, plan))
        fine = plan.judged and not plan.keep and plan.before.worst <= plan.tolerance
        return SystemExit(int(not (plan.verified or fine)))


def _patch(runner: _Runner, first: Recording, plan: PrecisionPlan) -> str:
    """The plan as a diff that was run and stays within the tolerance, else what to do instead."""
    from ..repair import plan_patch
    from ..rules.precision_plan import step_error

    for patch in plan_patch.patches(first, [c.module for c in plan.keep]):
        try:
            error = step_error(runner.run((), patch)).worst
        except (UsageError, ValueError):
            continue  # the patched program does not run
        if error <= plan.tolerance:
            run = f"It was run, and the error of the step is {error:.2%}"
            return f"\nThe same as a patch. {run}:\n\n{patch.diff()}".rstrip()
    return "\nNo patch of the source was found that does this. Call plan.apply(model) where the model has been made."


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share between 0 and 1")
    return value


class _Runner:
    """Runs the script with some modules kept in float32, or patched, and reads what was measured."""

    def __init__(self, words: list[str], as_module: bool, steps: int, folder: Path) -> None:
        self.asked: dict[str, Any] = {"words": words, "as_module": as_module, "steps": steps}
        self.request, self.trace = folder / "request.json", folder / "trace.json"

    def run(self, keep: tuple[str, ...], patch: Patch | None = None, *, shown: bool = False) -> Recording:
        """The recording of one run. Raises UsageError where it recorded nothing."""
        from .. import saved

        texts = patch.texts if patch is not None else {}
        encodings = {file: patch.patched_files[file].encoding for file in texts} if patch is not None else {}
        asked = {**self.asked, "keep": keep, "texts": texts, "encodings": encodings, "trace": str(self.trace)}
        self.request.write_text(json.dumps(asked), "utf-8")
        self.trace.unlink(missing_ok=True)
        silent = None if shown else subprocess.DEVNULL
        command = [sys.executable, "-m", "dtypetrace.commands.plan_run", str(self.request)]
        sys.stderr.flush()
        status = children.run(command, stdout=2 if shown else silent, stderr=silent)
        try:
            return saved.load(self.trace).recording
        except (OSError, TraceFileError) as error:
            raise UsageError(
                f"{self.asked['words'][0]} ended with status {status} and left no trace: {error}"
            ) from None
