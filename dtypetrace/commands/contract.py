"""``dtypetrace contract``: a program's dtypes written to a file, and a run compared with it."""

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
    from ..records import Recording


class ContractCommand:
    """Write which dtypes a program computes in, or check that it still does.

    "write" runs the program and writes a small text file: its receipt, the optimizer and the autocast, and for each
    module the dtypes of its parameters, its inputs and outputs, the results of its ops, its gradients and its optimizer
    state, and its autocast.

    "check" runs the program again and compares. If a dtype differs, it names the line and exits with 1.

    Commit the file and let CI run check: if a new version of a library computes in another dtype, the build
    fails. Instead of a program, --trace takes a file that run --save wrote.

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
        from ..compare import contract
        from ..render import contracts

        if bool(options.words) == (options.trace is not None):
            raise UsageError(f"give either a program or --trace. Usage: {self.usage}")
        file = arguments.writable("--file", options.file, options.trace, *options.words[:1])
        written = None if options.do == "write" else _read(options.file)
        recording = _recording(options, self.usage)
        found = contract.facts(recording)
        if written is None:
            from .. import report

            with arguments.writing(str(options.file)):
                report.write_atomically(file, contract.text(found))
            print(f"dtypetrace contract: wrote {options.file}")
            return SystemExit(0)
        breaches = contract.check(written, found)
        print(contracts.text(breaches, str(options.file)))
        return SystemExit(int(bool(breaches)))


def _read(file: Path) -> dict[str, dict[str, str]]:
    """The sections of a contract. Raises UsageError where there is none."""
    from ..compare.contract import parse
    from ..errors import ContractError

    try:
        return parse(file.read_text("utf-8"))
    except (ContractError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is no contract: {error}") from None
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}. Write it first: dtypetrace contract write script.py"
        ) from None


def _recording(options: argparse.Namespace, usage: str) -> Recording:
    """What the saved trace holds, or a run of the program in a process of its own. Raises UsageError where that
    fails."""
    if options.trace is not None:
        return arguments.saved_trace(options.trace).recording
    program = arguments.program(options, usage)
    with tempfile.TemporaryDirectory(prefix="dtypetrace-") as folder:
        trace = Path(folder) / "run.trace"
        command = [sys.executable, "-m", "dtypetrace", "run", "--quiet", "--save", str(trace)]
        command += ["--steps", str(options.steps)] if options.steps else []
        ended = subprocess.run([*command, *(["-m"] if options.as_module else []), *options.words])
        if ended.returncode:
            raise UsageError(f"{program.name} ended with status {ended.returncode}, so its dtypes are not known")
        return arguments.saved_trace(trace).recording
