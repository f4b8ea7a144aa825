"""``dtypetrace contract``: a run without the program's text in a file, and another run compared with it."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from . import arguments

if TYPE_CHECKING:
    from ..records import Results


class ContractCommand:
    """Write which dtypes a program computes in, or check that it still does.

    "write" runs the program and keeps the run in a file, without the program's text. "check" runs it again and compares
    as dtypetrace diff does: parameters, what each module computes in, and what is set for the run (autocast, loss
    scaler, optimizer). If a dtype differs, it names the line and exits with 1.

    Commit the file and let CI run check: if a new version of a library computes in another dtype, the build
    fails. Other operators in the same dtypes break no contract. Instead of a program, --trace takes a file that
    run --save wrote.

    --file, --steps and --trace are options of write and of check: dtypetrace contract write --help explains them.
    """

    name = "contract"
    usage = "dtypetrace contract write|check [--file F] [--steps N] (--trace T | script.py | -m module) [args ...]"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="do", metavar="write|check", required=True)
        texts = ("run the program and write the file", "compare a run with the file; exit with 1 if a dtype differs")
        for do, text in zip(("write", "check"), texts):
            own = actions.add_parser(do, help=text, usage=self.usage.replace("write|check", do))
            add = own.add_argument
            add("--file", type=Path, default=Path("dtypes.contract"), metavar="F", help="default: dtypes.contract")
            add("--trace", type=Path, metavar="T", help="a saved trace, instead of a program to run")
            steps = arguments.count("--steps")
            add("--steps", type=steps, metavar="N", help="end the run after N optimizer steps")
            arguments.add_script(own, "run a module, as python -m does", "the program, and its own arguments")

    def __call__(self, options: argparse.Namespace) -> SystemExit:
        from .. import saved
        from ..compare.differences import compare
        from ..render import differences

        if bool(options.words) == (options.trace is not None):
            raise UsageError(f"give either a program or --trace. Usage: {self.usage}")
        file = arguments.writable("--file", options.file)
        if options.do == "write":
            found = _results(options, self.usage)
            with arguments.writing(str(options.file)):
                saved.save(file, found, source=False)
            print(f"dtypetrace contract: wrote {options.file}")
            return SystemExit(0)
        kept = arguments.saved_trace(options.file).recording
        broken = compare(kept, _results(options, self.usage).recording).in_dtypes
        if broken.same and not broken.settings:
            print(f"dtypetrace contract: the run matches {options.file}")
            return SystemExit(0)
        print(differences.text(broken, (str(options.file), "this run")))
        return SystemExit(1)


def _results(options: argparse.Namespace, usage: str) -> Results:
    """What the saved trace holds, or a run of the program in a process of its own. Raises UsageError where that
    fails."""
    if options.trace is not None:
        return arguments.saved_trace(options.trace).results
    program = arguments.program(options, usage)
    with tempfile.TemporaryDirectory(prefix="dtypetrace-") as folder:
        trace = Path(folder) / "run.trace"
        command = [sys.executable, "-m", "dtypetrace", "run", "--quiet", "--save", str(trace)]
        command += ["--steps", str(options.steps)] if options.steps else []
        ended = subprocess.run([*command, *(["-m"] if options.as_module else []), *options.words])
        if ended.returncode:
            raise UsageError(f"{program.name} ended with status {ended.returncode}, so its dtypes are not known")
        return arguments.saved_trace(trace).results
