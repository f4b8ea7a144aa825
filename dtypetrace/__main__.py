"""The entry point of the command line. ``python -m dtypetrace`` and the ``dtypetrace`` command are the same program.

Each command is a class in ``commands``; its docstring is its help text. Nothing here imports torch: ``run`` leaves that
to the script.
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from . import __version__
from .commands.arguments import Command
from .commands.contract import ContractCommand
from .commands.diff import DiffCommand
from .commands.explain import ExplainCommand
from .commands.fix import FixCommand
from .commands.merge import MergeCommand
from .commands.plan import PlanCommand
from .commands.run import RunCommand
from .commands.show import ShowCommand
from .program import UsageError, raise_ending
from .terminal import seen_lines

COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        RunCommand(),
        FixCommand(),
        PlanCommand(),
        ShowCommand(),
        DiffCommand(),
        ContractCommand(),
        MergeCommand(),
        ExplainCommand(),
    )
}


class _Parser(argparse.ArgumentParser):
    """Reports wrong usage in one line, as UsageError; help texts keep their line breaks."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See: {self.prog} --help")


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line, one subparser for each command."""
    made = _Parser(prog="dtypetrace", description="Which line made this tensor the wrong dtype?")
    made.add_argument("--version", action="version", version=f"dtypetrace {__version__}")
    commands = made.add_subparsers(metavar="command", title="commands", dest="command")
    for name, command in COMMANDS.items():
        text = inspect.getdoc(command) or ""
        sub = commands.add_parser(name, usage=command.usage, help=text.partition("\n")[0], description=text)
        command.add_arguments(sub)
    return made


def _run_command(argv: list[str]) -> SystemExit | KeyboardInterrupt:
    if not argv:
        raise UsageError("no command given. Try: dtypetrace run script.py, or dtypetrace --help")
    word = argv[0]
    if word not in COMMANDS and not word.startswith("-"):
        if os.path.exists(word):
            raise UsageError(f"no command given. Did you mean: dtypetrace run {' '.join(argv)}")
        raise UsageError(f"no such command: {word!r}. See: dtypetrace --help")
    options, unknown = parser().parse_known_args(argv)
    if unknown:
        of = f"{options.command} " if options.command else ""
        raise UsageError(f"no such option: {unknown[0]}. See: dtypetrace {of}--help")
    return COMMANDS[options.command](options)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs the command that ``argv`` (default: ``sys.argv[1:]``) asks for, and ends the process with its status."""
    try:
        ending = _run_command(list(sys.argv[1:] if argv is None else argv))
    except UsageError as error:
        print(f"dtypetrace: error: {seen_lines(str(error))}", file=sys.stderr)
        ending = SystemExit(2)
    except BrokenPipeError:  # show or explain was piped into head; a script's own error ends its run instead
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        ending = SystemExit(1)
    except KeyboardInterrupt:  # before the script began, or a second one while its reports were written
        ending = KeyboardInterrupt()
    raise_ending(ending)


if __name__ == "__main__":
    main()
