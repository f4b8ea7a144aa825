"""The command line. ``python -m dtypetrace`` and the ``dtypetrace`` command are the same program.

One class per subcommand; its docstring is its help. Nothing here imports torch: ``run`` waits for
the script to do so.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

from .program import AfterImport, Program, UsageError, interrupts_held, raise_ending, show

_SEVERITIES = ("note", "warning", "error")
"""Mildest first."""


class Run:
    """Run a script as python would, and report which line made which tensor the wrong dtype.

    The script sees its own arguments, __main__, traceback and exit status. The report goes to
    stderr when the script ends, whatever ends it: its last line, an exception, sys.exit or Ctrl-C.
    Nothing is written to disk unless asked for.

    With several ranks, start dtypetrace inside the launcher:

      torchrun --nproc-per-node 2 -m dtypetrace run train.py
      accelerate launch -m dtypetrace run train.py

    Rank 0 prints; each rank writes its own file: out.json, out.rank1.json, out.rank2.json ...
    """

    name = "run"
    usage = "dtypetrace run [options] (script.py | -m module) [args ...]"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("-m", dest="as_module", action="store_true", help="run a module, as python -m does")
        parser.add_argument(
            "words", nargs=argparse.REMAINDER, metavar="script", help="a file, a folder or zip file with a __main__, or "
            "with -m a module's name; all that follows it is its own"
        )  # fmt: skip
        parser.add_argument(
            "--html", type=Path, metavar="F", help="write the report as one HTML file that loads nothing"
        )
        parser.add_argument(
            "--json", type=Path, metavar="F", help="write the findings as JSON (rank N > 0: F.rankN.json)"
        )
        parser.add_argument("--save", type=Path, metavar="F", help="save the whole trace, for dtypetrace show")
        parser.add_argument(
            "--no-source", dest="text", action="store_false", help="keep the program's text out of --html and --save"
        )
        parser.add_argument(
            "--autofix",
            action="store_true",
            help="cast what a dtype would end the run for, and go on: finds all of them in one run",
        )
        parser.add_argument(
            "--steps", type=_count, metavar="N", help="end the run after N optimizer steps, with exit status 0"
        )
        parser.add_argument(
            "--trace-steps", type=_count, metavar="N", help="watch N optimizer steps, then let the run go on unwatched"
        )
        parser.add_argument(
            "--fail-on", choices=_SEVERITIES[::-1], help="exit with 1 instead of 0 if a finding is this severe or more"
        )
        parser.add_argument(
            "--ignore", type=_codes, action="extend", default=[], metavar="CODE", help="leave out findings: DT201,DT301"
        )
        parser.add_argument(
            "--operators", action="store_true", help="print what ran in which dtype, and what autocast did to it"
        )
        parser.add_argument(
            "--no-numerics", dest="numerics", action="store_false", help="do not measure values, only dtypes"
        )
        parser.add_argument(
            "--source", type=Path, metavar="DIR", help="your own code (default: the script's git root, else its folder)"
        )

    def __call__(self, options: argparse.Namespace) -> SystemExit | KeyboardInterrupt:
        program = _program(options)
        rank = _rank()
        if options.source and not options.source.is_dir():
            raise UsageError(f"--source {options.source}: no such folder. Give the folder that holds your own code")
        watch = _Watch(
            source=options.source and options.source.resolve(),
            script=Path(program.file) if program.file else None,
            ignore=frozenset(options.ignore),
            steps=options.steps,
            trace_steps=options.trace_steps,
            numerics=options.numerics,
            autofix=options.autofix,
        )
        files = [
            (option, _writable(option, _of_rank(file, rank)), write)
            for option, file, write in (
                ("--html", options.html, lambda trace, path: trace.report(path, source=options.text)),
                ("--json", options.json, lambda trace, path: trace.to_json(path)),
                ("--save", options.save, lambda trace, path: trace.save(path, source=options.text)),
            )
            if file is not None
        ]
        stderr = sys.stderr  # the script may put another stream there
        owner = os.getpid()

        if options.autofix:
            pass
        watch.arm()
        try:
            error = program.execute()
        except UsageError:
            watch.stop(None)
            raise
        with interrupts_held() as late, _apart_from(program, warn=True):
            watch.stop(error)
        ending = show(error)
        del error  # this frame is among those that its traceback holds, so it would outlive the run
        if os.getpid() != owner:  # a forked worker that came back through its parent's frames
            return ending
        with interrupts_held() as later, _apart_from(program, warn=False):
            findings = watch.report(stderr if rank == 0 else None, program.name, files, operators=options.operators)
        if late or later:
            return KeyboardInterrupt()
        if isinstance(ending, SystemExit) and not ending.code and _reaches(findings, options.fail_on):
            return SystemExit(1)
        return ending


class Fix:
    """Heal a script, patch its source, prove the patch by running it, and show it as a diff.

    The script runs at least twice, each time in a process of its own and with its random numbers seeded: once
    healed, to find every dtype that is refused, and once patched. What it prints is shown once, on stderr;
    stdout gets the diff. Nothing is written without --write.

    Where adapters (LoRA and kin) in float16 or bfloat16 do not learn, it runs twice more with them in float32, and both
    runs are compared: what kept each adapter from learning, and whether float32 cures it.

    The exit status is 0 when the patch is proven and adapters learn, or nothing is to be done, 1 when not, 2 for bad usage.
    """

    name = "fix"
    usage = "dtypetrace fix [options] (script.py | -m module) [args ...]"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("-m", dest="as_module", action="store_true", help="fix what python -m module runs")
        parser.add_argument(
            "words",
            nargs=argparse.REMAINDER,
            metavar="script",
            help="a file, or with -m a module's name; all that follows it is its own",
        )
        parser.add_argument("--write", action="store_true", help="change the files, if the patch is proven")
        parser.add_argument("--force", action="store_true", help="with --write: also if it is not")
        parser.add_argument("--steps", type=_count, metavar="N", help="end each run after N optimizer steps")
        parser.add_argument(
            "--html",
            type=Path,
            metavar="F",
            help="write the report of the healed run, and of the adapters' runs, as one HTML file",
        )
        parser.add_argument(
            "--source", type=Path, metavar="DIR", help="your own code (default: the script's git root, else its folder)"
        )

    def __call__(self, options: argparse.Namespace) -> SystemExit:
        from .commands import fix

        program = _program(options, self.usage)
        if options.force and not options.write:
            raise UsageError("--force does nothing without --write")
        if options.source and not options.source.is_dir():
            raise UsageError(f"--source {options.source}: no such folder. Give the folder that holds your own code")
        words = [program.name, *program.argv[1:]]
        source = str(options.source.resolve()) if options.source else None
        html = _writable("--html", options.html) if options.html else None
        return SystemExit(
            fix.fix(
                words,
                as_module=options.as_module,
                steps=options.steps,
                source=source,
                write=options.write,
                force=options.force,
                html=html,
            )
        )


class Show:
    """Look at a saved trace (dtypetrace run --save F) again; torch is not needed for it."""

    name = "show"
    usage = "dtypetrace show TRACE [--html F] [--json F] [--no-source] [--operators] [--fail-on LEVEL]"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("trace", type=Path, metavar="TRACE", help="a file that run --save wrote")
        parser.add_argument(
            "--html", type=Path, metavar="F", help="write the report as one HTML file that loads nothing"
        )
        parser.add_argument(
            "--no-source", dest="text", action="store_false", help="keep the program's text out of the HTML report"
        )
        parser.add_argument("--json", type=Path, metavar="F", help="write the findings as JSON")
        parser.add_argument(
            "--operators", action="store_true", help="print what ran in which dtype, and what autocast did to it"
        )
        parser.add_argument(
            "--fail-on", choices=_SEVERITIES[::-1], help="exit with 1 if a finding is this severe or more"
        )

    def __call__(self, options: argparse.Namespace) -> SystemExit:
        from . import report
        from .saved import TraceFileError
        from .view import load

        try:
            trace = load(options.trace)
        except TraceFileError as error:
            raise UsageError(str(error)) from None
        except OSError as error:
            raise UsageError(
                f"{options.trace} cannot be read: {error.strerror}. Give a file that dtypetrace run --save wrote"
            ) from None
        files = [
            (option, _writable(option, file), write)
            for option, file, write in (
                ("--html", options.html, lambda path: trace.report(path, source=options.text)),
                ("--json", options.json, trace.to_json),
            )
            if file is not None
        ]
        report.console(trace, file=sys.stdout)
        if options.operators:
            print(_operators(trace))
        for option, file, write in files:
            try:
                write(file)
            except OSError as failure:
                raise UsageError(f"{option} {file} could not be written: {failure}") from None
        return SystemExit(int(_reaches(trace.findings, options.fail_on)))


class Explain:
    """Tell what a finding's code means, with a program that fails and the same one repaired.

    Without a code, list them all. An error message is looked up too:

      dtypetrace explain DT101
      dtypetrace explain 'mat1 and mat2 must have the same dtype, but got Float and Half'
    """

    name = "explain"
    usage = "dtypetrace explain [CODE | MESSAGE]"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("words", nargs="*", metavar="CODE", help="a finding's code, or the text of an exception")

    def __call__(self, options: argparse.Namespace) -> SystemExit:
        from .commands import explain

        try:
            explain.show(" ".join(options.words), sys.stdout)
        except explain.UnknownCode as error:
            raise UsageError(str(error)) from None
        return SystemExit(0)


class _Watch:
    """The trace of one run: it begins once the script has imported torch, and ends with the script.

    A failure of dtypetrace's own is kept for the report, so that it cannot change the run.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._owner = os.getpid()
        self._trace: Any = None
        self._failure: Exception | None = None
        self._unseen = "never imported torch, so there was nothing to watch"
        self._import = AfterImport("torch", self._start)

    def arm(self) -> None:
        self._import.install()

    def _start(self) -> None:
        if os.getpid() != self._owner:
            return
        if threading.current_thread() is not threading.main_thread():
            self._unseen = (
                "was not watched: it imported torch in another thread. Import it in the main thread too, first"
            )
            return
        self._unseen = ""
        try:
            self._trace = self._make()
            self._trace.start()
        except Exception as failure:
            self._failure = failure

    def _make(self) -> Any:
        from .tracing import Trace

        return Trace(model=None, whole_script=True, **self._options)

    def stop(self, error: BaseException | None) -> None:
        self._import.remove()
        try:
            if self._trace is not None:
                self._trace.stop(error)
        except Exception as failure:
            self._failure = self._failure or failure

    def report(self, stream: Any, name: str, files: Sequence[tuple], *, operators: bool = False) -> Sequence[Any]:
        """Print the findings to ``stream`` (None: nowhere), write the files, and return the findings."""
        try:
            if self._failure is not None:
                raise self._failure
            if self._unseen:
                _say(stream, f"dtypetrace: {name} {self._unseen}")
                if not files:
                    return ()
                self._trace = self._make()  # an empty report still is one
                self._trace.stop(None)
            findings = self._trace.findings
        except Exception:
            _say(stream, _OWN_FAULT + traceback.format_exc())
            return ()
        if stream is not None and not self._unseen:
            try:
                from .report import console

                _flush(sys.stdout)  # so that what the script printed stands above the report
                console(self._trace, file=stream)
                if operators:
                    _say(stream, _operators(self._trace))
            except Exception as failure:
                if not isinstance(failure, BrokenPipeError) and not stream.closed:  # else nobody reads it
                    _say(stream, _OWN_FAULT + traceback.format_exc())
        for option, file, write in files:
            try:
                write(self._trace, file)
            except OSError as failure:
                _say(stream, f"dtypetrace: error: {option} {file} could not be written: {failure}")
            except Exception:
                _say(stream, _OWN_FAULT + traceback.format_exc())
        return findings


_PATH = tuple(sys.path[1:])
_OWN_FAULT = "dtypetrace: internal error; the script itself ran as it would. Please report this:\n"


@contextmanager
def _apart_from(program: Program, *, warn: bool) -> Iterator[None]:
    """For dtypetrace's own work after the script: what it needs is found where it was before the script ran, and
    modules beside the script last; warnings are off."""
    before = list(sys.path)
    sys.path[:] = [folder for folder in dict.fromkeys((*_PATH, *before)) if folder != program.path0] + [program.path0]
    with warnings.catch_warnings() if not warn else nullcontext():
        if not warn:
            warnings.simplefilter("ignore")
        try:
            yield
        finally:
            sys.path[:] = before


def _operators(trace: Any) -> str:
    from .render import census

    return "\n" + census.text(trace.recording)


def _program(options: argparse.Namespace, usage: str | None = None) -> Program:
    """What the words after the options name. Raises UsageError where that cannot be run or watched."""
    words, as_module = options.words, options.as_module
    if words[:1] == ["--"]:
        words = words[1:]
    if not words:
        raise UsageError(f"no {'module' if as_module else 'script'} given. Usage: {usage or Run.usage}")
    if words[0] == "-" and not as_module:
        raise UsageError("a script on standard input cannot be run. Save it to a file and give its path")
    if words[0].endswith(".ipynb") and not as_module:
        raise UsageError(
            f"{words[0]!r} is a notebook. In it, %load_ext dtypetrace and %%dtypetrace watch a cell; or make it a script: jupyter nbconvert --to script"
        )
    launcher = _launcher(words, as_module)
    if launcher:
        raise UsageError(
            f"{launcher} starts the workers itself, so dtypetrace would see none of them. "
            f"Put dtypetrace inside: {_INSIDE[launcher]} -m dtypetrace run train.py"
        )
    return Program(words, as_module=as_module)


_INSIDE = {"torchrun": "torchrun [options]", "accelerate launch": "accelerate launch [options]"}


def _launcher(words: list[str], as_module: bool) -> str | None:
    """The launcher of several ranks that these words would start, if they would."""
    name = words[0] if as_module else os.path.basename(words[0])
    if name in ("torchrun", "torch.distributed.run", "torch.distributed.launch"):
        return "torchrun"
    if name in ("accelerate-launch", "accelerate.commands.launch"):
        return "accelerate launch"
    if name in ("accelerate", "accelerate.commands.accelerate_cli") and words[1:2] == ["launch"]:
        return "accelerate launch"
    return None


def _codes(text: str) -> list[str]:
    codes = [code.strip().upper() for code in text.split(",")]
    for code in codes:
        if not re.fullmatch(r"DT\d{3}", code):
            raise argparse.ArgumentTypeError(f"{code!r} is not a finding's code. Codes look like DT201")
    return codes


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of steps. Give 1 or more")
    return int(text)


def _rank() -> int:
    rank, world = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    return int(rank) if rank.isdecimal() and world.isdecimal() and int(world) > 1 else 0


def _of_rank(file: Path, rank: int) -> Path:
    return file.with_name(f"{file.stem}.rank{rank}{file.suffix}") if rank else file


def _writable(option: str, file: Path) -> Path:
    """The file's absolute path; raises UsageError where a report could not be written there at the end."""
    file = Path(os.path.abspath(file))
    if file.is_dir():
        raise UsageError(f"{option} {file} is a folder. Give the name of a file in it")
    if file.exists() and not file.is_file():
        raise UsageError(f"{option} {file} is not a regular file. Give the name of one")
    if not file.parent.is_dir():
        raise UsageError(f"{option} {file}: no such folder: {file.parent}. Make it first")
    if not os.access(file.parent, os.W_OK):
        raise UsageError(f"{option} {file}: {file.parent} cannot be written to. Give a folder that can")
    return file


def _reaches(findings: Sequence[Any], level: str | None) -> bool:
    return level is not None and any(f.severity in _SEVERITIES[_SEVERITIES.index(level) :] for f in findings)


def _say(stream: Any, text: str) -> None:
    try:
        print(text, file=stream) if stream is not None else None
    except (OSError, ValueError):  # closed or broken: there is nobody to tell
        pass


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except (AttributeError, OSError, ValueError):  # python will say so itself when it exits
        pass


class _Parser(argparse.ArgumentParser):
    """Bad usage in one line, as UsageError; help texts keep their line breaks."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See: {self.prog} --help")


_COMMANDS = {command.name: command for command in (Run(), Fix(), Show(), Explain())}


def _parser() -> _Parser:
    parser = _Parser(prog="dtypetrace", description="Which line made this tensor the wrong dtype?")
    commands = parser.add_subparsers(metavar="command", title="commands", dest="command")
    for name, command in _COMMANDS.items():
        text = inspect.getdoc(command) or ""
        sub = commands.add_parser(name, usage=command.usage, help=text.partition("\n")[0], description=text)
        command.add_arguments(sub)
    return parser


def _run_command(argv: list[str]) -> SystemExit | KeyboardInterrupt:
    if not argv:
        raise UsageError("no command given. Try: dtypetrace run script.py, or dtypetrace --help")
    word = argv[0]
    if word not in _COMMANDS and not word.startswith("-"):
        if os.path.exists(word):
            raise UsageError(f"no command given. Did you mean: dtypetrace run {' '.join(argv)}")
        raise UsageError(f"no such command: {word!r}. See: dtypetrace --help")
    options, unknown = _parser().parse_known_args(argv)
    if unknown:
        of = f"{options.command} " if options.command else ""
        raise UsageError(f"no such option: {unknown[0]}. See: dtypetrace {of}--help")
    return _COMMANDS[options.command](options)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command that ``argv`` (default: ``sys.argv[1:]``) asks for, and end the process with its status."""
    try:
        ending = _run_command(list(sys.argv[1:] if argv is None else argv))
    except UsageError as error:
        print(f"dtypetrace: error: {error}", file=sys.stderr)
        ending = SystemExit(2)
    except BrokenPipeError:  # what show or explain prints was piped into head; a script's own ends its run instead
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        ending = SystemExit(1)
    except KeyboardInterrupt:  # before the script began, or again while its reports were made
        ending = KeyboardInterrupt()
    raise_ending(ending)


if __name__ == "__main__":
    main()
