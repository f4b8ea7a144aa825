"""Shared by the commands: their protocol, the values of options, the files that reports are written to."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import UsageError
from ..program import Program
from ..records import SEVERITIES
from ..tables.codes import TITLES

if TYPE_CHECKING:
    from ..view import View


class Command(Protocol):
    """One command of the command line. Its docstring is its help; the first line is shown in the list of commands."""

    name: str
    usage: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def __call__(self, options: argparse.Namespace) -> SystemExit | KeyboardInterrupt:
        """Runs the command and returns the exception that ends the process. Raises UsageError for what cannot be
        done."""
        ...


class Old(argparse.Action):
    """A spelling of the version before: it is in no help, works as it did, and says the new one. ``now``: what to
    write instead. ``sets``: the value of an option that takes none."""

    def __init__(self, *, now: str, sets: Any = None, **given: Any) -> None:
        super().__init__(**given, nargs=None if sets is None else 0, help=argparse.SUPPRESS)
        self._now, self._sets = now, sets

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, values if self._sets is None else self._sets)
        print(f"dtypetrace: {option_string} is now {self._now}; the next version does not know it", file=sys.stderr)


# ---------------------------------------------------------------- options that several commands have


def add_script(parser: argparse.ArgumentParser, module_help: str, script_help: str) -> None:
    parser.add_argument("-m", dest="as_module", action="store_true", help=module_help)
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="script", help=script_help)


def add_source(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--source",
        type=Path,
        metavar="DIR",
        help="the folder of your own code (default: the script's git root, else its folder)",
    )


def add_fail_on(parser: argparse._ActionsContainer) -> None:
    text = "exit with 1 instead of 0 if a finding is this severe or more"
    parser.add_argument("--fail-on", choices=SEVERITIES[::-1], help=text)


def add_operators(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--operators", action="store_true", help="print what ran in which dtype, and what autocast did to it"
    )


def add_quiet(parser: argparse._ActionsContainer, text: str) -> None:
    parser.add_argument("-q", "--quiet", action="store_true", help=text)


def codes(text: str) -> list[str]:
    """The codes in ``DT201,DT301``. Raises UsageError for a code that no finding has: otherwise a typing mistake would
    have no effect, and nobody would notice."""
    found = [code.strip().upper() for code in text.split(",")]
    for code in found:
        if not re.fullmatch(r"DT\d{3}", code):
            raise UsageError(f"--ignore needs finding codes such as DT201, got {code!r}")
        if code not in TITLES:
            raise UsageError(f"--ignore: there is no finding {code}. dtypetrace explain lists all codes")
    return found


def count(option: str) -> Callable[[str], int]:
    """Reads an option's number of steps."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < 1:
            raise UsageError(f"{option} needs a whole number of at least 1, got {text!r}")
        return int(text)

    return read


def duration(text: str) -> float:
    """Reads a time as seconds: ``90``, ``90s``, ``2m``, ``1h``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?", text.strip())
    if found is None or not float(found[1]):
        raise UsageError(f"--budget needs a time such as 90s or 2m, got {text!r}")
    return float(found[1]) * {"m": 60, "min": 60, "h": 3600}.get(found[2], 1)


def every(text: str) -> tuple[int | str, int]:
    """Reads ``--every``: a number of steps or ``new``; and the step from which on it holds."""
    number, colon, start = text.partition(":")
    read = count("--every")
    return (text, 1) if text == "new" else (read(number), read(start) if colon else 1)


def reaches(findings: Sequence[Any], level: str | None) -> bool:
    """Whether any finding is as severe as a level, or more."""
    return level is not None and any(f.severity in SEVERITIES[SEVERITIES.index(level) :] for f in findings)


def misplaced(command: Command, words: Sequence[str], ended: str, file: str = "") -> str:
    """What to say of a script that was given an option that a command has and it does not know; empty for any other.

    ``words``: the script and its arguments. ``ended``: the type and text of the exception that ended it, empty for
    none; scripts that parse their arguments with argparse or click exit with 2. ``file``: the script's.
    """
    parser = argparse.ArgumentParser(add_help=False)
    command.add_arguments(parser)
    known = {name for action in parser._actions for name in action.option_strings}
    name = next((w for w in (word.partition("=")[0] for word in words[1:]) if w in known), "")
    if not name or ended != "SystemExit: 2" and name not in ended and not _ignores(file, name):
        return ""
    return (
        f"dtypetrace: {name} stands after {words[0]}, so the script got it. If it is meant for dtypetrace, put it "
        f"before the script: dtypetrace {command.name} {name} ... {words[0]}"
    )


def _ignores(file: str, name: str) -> bool:
    """Whether a program cannot know an option: its text neither names it nor reads or parses arguments."""
    text = _program_text(file) if file and name.startswith("--") else ""
    word = re.escape(name.lstrip("-")).replace(r"\-", "[-_]")
    return bool(text) and not re.search(rf"parse|argv|(?<![^\W_]){word}(?![^\W_])", text)


def _program_text(script: str) -> str:
    """The text of the program that runs in this process: its script, and the modules from the script's folder."""
    folder = os.path.join(os.path.dirname(os.path.abspath(script)), "")
    loaded = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    files = {script, *(f for f in loaded if isinstance(f, str) and f.startswith(folder) and "-packages" not in f)}
    texts = []
    for file in sorted(files):
        with suppress(OSError):
            texts.append(Path(file).read_text("utf-8", "replace"))
    return "\n".join(texts)


# ---------------------------------------------------------------- files and folders


def source_folder(options: argparse.Namespace) -> Path | None:
    """The folder that ``--source`` names, None without the option. Raises UsageError if there is no such folder."""
    folder: Path | None = options.source
    if folder and not folder.is_dir():
        raise UsageError(f"--source {folder}: no such folder. Give the folder that holds your own code")
    return folder.resolve() if folder else None


def writable(option: str, file: Path, *used: str | Path | None) -> Path:
    """The file's absolute path. Raises UsageError if a report could not be written there at the end, or would replace
    one of the files ``used``: those that the command reads and its other outputs."""
    file = Path(os.path.abspath(file))
    if file.is_dir():
        raise UsageError(f"{option} needs a file, and {file} is a folder. Name a file in it")
    if file.exists() and not file.is_file():
        raise UsageError(f"{option} needs a regular file, and {file} is not one. Choose another name")
    if any(other and os.path.realpath(other) == os.path.realpath(file) for other in used):
        raise UsageError(f"{option} {file}: this command uses that file for something else. Choose another name")
    folder = Path(os.path.realpath(file)).parent  # a link is followed
    if not folder.is_dir():
        raise UsageError(f"{option} {file}: no such folder: {folder}. Create it first")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{option} {file}: no permission to write into {folder}. Choose another folder")
    return file


@contextmanager
def writing(named: str) -> Iterator[None]:
    """A block that writes a file. Raises UsageError where it cannot be written."""
    try:
        yield
    except OSError as failure:
        raise UsageError(f"{named} could not be written: {failure}") from None


def saved_trace(file: Path) -> View:
    """The trace in a file. Raises UsageError where none can be read, TraceFileError for another kind of file."""
    from ..view import load

    try:
        return load(file)
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}. Give a file that dtypetrace run --save wrote"
        ) from None


# ---------------------------------------------------------------- the program


def program(options: argparse.Namespace, usage: str) -> Program:
    """The program that the words after the options name. Raises UsageError if it cannot be run or watched."""
    words, as_module = options.words, options.as_module
    if words[:1] == ["--"]:
        words = words[1:]
    if not words:
        raise UsageError(f"no {'module' if as_module else 'script'} given. Usage: {usage}")
    if words[0] == "-" and not as_module:
        raise UsageError("a script on standard input cannot be run. Save it to a file and give its path")
    if words[0].endswith(".ipynb") and not as_module:
        raise UsageError(
            f"{words[0]!r} is a notebook. In it, %load_ext dtypetrace and %%dtypetrace watch a cell; "
            "or make it a script: jupyter nbconvert --to script"
        )
    launcher = _launcher(words, as_module)
    if launcher:
        raise UsageError(
            f"{launcher} starts the workers itself, so dtypetrace would see none of them. "
            f"Put dtypetrace inside: {launcher} [options] -m dtypetrace run train.py"
        )
    return Program(words, as_module=as_module)


def _launcher(words: list[str], as_module: bool) -> str | None:
    """The launcher of several ranks that these words would start, else None."""
    name = words[0] if as_module else os.path.basename(words[0])
    if name in ("torchrun", "torch.distributed.run", "torch.distributed.launch"):
        return "torchrun"
    if name in ("accelerate-launch", "accelerate.commands.launch"):
        return "accelerate launch"
    if name in ("accelerate", "accelerate.commands.accelerate_cli") and words[1:2] == ["launch"]:
        return "accelerate launch"
    return None
