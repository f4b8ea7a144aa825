"""The entry point of the command line. ``python -m dtypetrace`` and the ``dtypetrace`` command are the same program.

Each command is a class in ``commands``; its docstring is its help text. Nothing here imports torch: ``run`` leaves that
to the script.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from . import __version__
from .errors import DtypetraceError, UsageError
from .program import raise_ending
from .terminal import seen_lines, width

if TYPE_CHECKING:
    from .commands.arguments import Command

COMMANDS = ("run", "fix", "plan", "show", "receipt", "diff", "contract", "explain")
"""In the order of the help. Each is a class in the module of ``commands`` with its name."""


def command(name: str) -> Command:
    """One command; the others' modules are not imported."""
    made: Command = getattr(import_module(f".commands.{name}", __package__), f"{name.capitalize()}Command")()
    return made


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Help no wider than the terminal: paragraphs are wrapped, indented lines stay."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=width(sys.stdout))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        import textwrap  # here, because a run does not need it

        paragraphs = text.split("\n\n")
        return "\n\n".join(p if p.startswith(" ") else textwrap.fill(p, width) for p in paragraphs)

    def _format_usage(self, *parts: Any) -> str:
        usage = super()._format_usage(*parts)
        if len(usage) <= self._width:
            return usage
        import textwrap

        usage = re.sub(r"\[[^\[\]]*\]", lambda option: option[0].replace(" ", "\0"), usage)
        filled = textwrap.fill(usage, self._width, subsequent_indent=" " * 7, break_on_hyphens=False)
        return filled.replace("\0", " ") + "\n\n"


class _Parser(argparse.ArgumentParser):
    """Reports wrong usage in one line, as UsageError."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Formatter, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See: {self.prog} --help")


def parser(wanted: Collection[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser of the command line, with a subparser for each of the wanted commands."""
    made = _Parser(prog="dtypetrace", description="Which line made this tensor the wrong dtype?")
    made.add_argument("--version", action="version", version=f"dtypetrace {__version__}")
    commands = made.add_subparsers(metavar="command", title="commands", dest="command")
    for name in wanted:
        one = command(name)
        text = inspect.getdoc(one) or ""
        sub = commands.add_parser(name, usage=one.usage, help=text.partition("\n")[0], description=text)
        one.add_arguments(sub)
    return made


def _run_command(argv: list[str]) -> SystemExit | KeyboardInterrupt:
    if not argv:
        raise UsageError("no command given. Try: dtypetrace run script.py, or dtypetrace --help")
    word = argv[0]
    if word not in COMMANDS and not word.startswith("-"):
        if os.path.exists(word):
            raise UsageError(f"no command given. Did you mean: dtypetrace run {' '.join(argv)}")
        raise UsageError(f"no such command: {word!r}. See: dtypetrace --help")
    options, unknown = parser((word,) if word in COMMANDS else COMMANDS).parse_known_args(argv)
    if unknown:
        of = f"{options.command} " if options.command else ""
        what = "no such option" if unknown[0].startswith("-") else "too many arguments"
        raise UsageError(f"{what}: {unknown[0]}. See: dtypetrace {of}--help")
    return command(options.command)(options)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs the command that ``argv`` (default: ``sys.argv[1:]``) asks for, and ends the process with its status."""
    try:
        ending = _run_command(list(sys.argv[1:] if argv is None else argv))
    except DtypetraceError as error:
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
