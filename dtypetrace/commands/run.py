"""``dtypetrace run``: runs a script as python would, watches it, and reports when it ends."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..parts import collector_paused
from ..program import AfterImport, Program, interrupts_held, show
from ..records import PRECISIONS
from ..terminal import seen_lines
from . import arguments, dry_run, rank_parts
from .rank_parts import Job
from .signals import FatalSignals
from .sudden_ends import SuddenEnds

Output = tuple[str, Path, Callable[[Any, Path], None]]
"""One file to write at the end: the option that requested it, the file, and the function that writes a trace there."""


@dataclass(frozen=True)
class Outputs:
    """Where a report goes: the stream and the files. ``quiet``: only errors are printed."""

    stream: Any
    files: Sequence[Output] = ()
    quiet: bool = False
    operators: bool = False
    receipt: bool = False
    job: Job | None = None
    """This rank's job, if there are several ranks: then ``files`` and what is printed are for all ranks together."""
    own: Sequence[Output] = ()
    """Files of this rank alone."""


class RunCommand:
    """Run a script as python would, and report which line made which tensor the wrong dtype.

    The script sees its own arguments, __main__, traceback and exit status. The report goes to
    stderr when the script ends, whatever ends it: its last line, an exception, sys.exit, os._exit,
    Ctrl-C, or a signal like SIGTERM.
    Nothing is written to disk unless asked for.

    With several ranks, start dtypetrace inside the launcher:

      torchrun --nproc-per-node 2 -m dtypetrace run train.py
      accelerate launch -m dtypetrace run train.py

    The last process of a machine then prints one report for all its ranks. With --save run.trace, each
    rank also writes a file of its own (run.rank0.trace, run.rank1.trace ...) for dtypetrace show.

    Two more options, which few need:

        --source DIR     the folder of your own code (default:
                         the script's git root, or its folder)
        --compile eager  run compiled functions eagerly, to
                         watch each operator in them; the last
                         bits and what is refused may differ
    """

    name = "run"
    usage = "dtypetrace run [options] (script.py | -m module) [args ...]"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        arguments.add_script(
            parser,
            "run a module, as python -m does",
            "a file (or a folder or zip with a __main__), or with -m a module's name; what follows is passed to it",
        )
        watch = parser.add_argument_group("what to watch")
        add = watch.add_argument
        add(
            "--every",
            type=arguments.every,
            metavar="N[:STEP]",
            default=(None, 1),
            help="watch the first 3 steps (--first changes the 3), then one step in N; others are only counted. 1: "
            "each step. 1:400: the first, then each from step 400 on. new (default): while steps show something new, "
            "then rarely, and from before a call that is new",
        )
        add(
            "--first",
            type=arguments.count("--first"),
            metavar="N",
            help="watch N optimizer steps, then let the run go on unwatched",
        )
        add(
            "--precision",
            choices=PRECISIONS,
            default="values",
            help="what is measured besides dtypes: off, nothing; values, what they become (default); reference, also "
            "what the first 10 steps lose, against each operator run once more in higher precision",
        )
        add(
            "--compile",
            choices=["eager"],
            help=argparse.SUPPRESS,
        )
        add(
            "--autofix",
            action="store_true",
            help="insert a cast where a dtype would end the run, and go on: finds all such places in one run",
        )
        add(
            "--dry-run",
            action="store_true",
            help="predict dtype errors without a GPU and without weights: devices are simulated, "
            "large tensors have no values",
        )
        add("--source", type=Path, metavar="DIR", help=argparse.SUPPRESS)
        write = parser.add_argument_group("what to write")
        add = write.add_argument
        add("--html", type=Path, metavar="F", help="write the report as one HTML file that needs no network")
        add("--json", type=Path, metavar="F", help="write the findings as JSON")
        add("--save", type=Path, metavar="F", help="save the whole trace, for dtypetrace show")
        add("--receipt", action="store_true", help="print what was asked for in dtypes beside what ran, part by part")
        arguments.add_quiet(write, "print no report, only dtypetrace's own error messages; files are still written")
        ending = parser.add_argument_group("when to stop, and with which status")
        add = ending.add_argument
        add(
            "--steps",
            type=arguments.count("--steps"),
            metavar="N",
            help="end the run after N optimizer steps, with exit status 0",
        )
        arguments.add_fail_on(ending)
        add(
            "--ignore",
            type=arguments.codes,
            action="extend",
            default=[],
            metavar="CODE",
            help="leave out findings with these codes: DT201,DT301",
        )
        _add_old_spellings(parser)

    def __call__(self, options: argparse.Namespace) -> SystemExit | KeyboardInterrupt:
        _check_watch(options)
        program = arguments.program(options, self.usage)
        job = rank_parts.job()
        watch = ScriptWatch(
            source=arguments.source_folder(options),
            script=Path(program.file) if program.file else None,
            ignore=frozenset(options.ignore),
            steps=options.steps,
            trace_steps=options.first,
            watch_every=_every(options),
            start=options.every[1],
            numerics=options.precision != "off" and not options.dry_run,
            autofix=options.autofix or options.dry_run,
            dry=options.dry_run,
            reference=options.precision == "reference",
            compile=options.compile,
            notes=options.quiet or job is not None,  # else the report follows the traceback at once
        )
        # sys.stderr as it is now: the script may replace it
        outputs = Outputs(
            sys.stderr,
            _files(options, program.file),
            quiet=options.quiet,
            operators=options.operators,
            receipt=options.receipt,
            job=job,
            own=_files_of_rank(options, job, watch) if job is not None else (),
        )
        if job is not None:
            job.begin()
        status = program.refused()
        if status is not None:
            watch.report(program, outputs)
            return SystemExit(status)
        owner = os.getpid()

        def ended_by(name: str) -> None:
            watch.ended_by(name)
            with _apart_from(program, warn=False):
                watch.report(program, outputs)

        signals = FatalSignals(ended_by)

        def ends_suddenly(call: str, error: BaseException | None) -> int:
            with interrupts_held(), _apart_from(program, warn=False):
                watch.ended_by(call, error)
                return int(arguments.reaches(watch.report(program, outputs), options.fail_on))

        ends = SuddenEnds(ends_suddenly, signals)
        watch.arm()
        signals.install()
        ends.install()
        try:
            error = program.execute()
        except UsageError:
            ends.remove()
            signals.remove()
            watch.stop(None)
            raise
        with signals.postponed(), interrupts_held() as late, _apart_from(program, warn=True):
            watch.stop(error)
        stopped = watch.stopped(error) if options.dry_run else None
        ending = SystemExit(stopped.status) if stopped else show(error)
        # also of one that cannot be printed
        ended = "".join(traceback.format_exception_only(error)).strip() if error is not None else ""
        hint = arguments.misplaced(self, [program.name, *program.argv[1:]], ended, program.file)
        del error  # its traceback holds this frame, so it would outlive the run
        if os.getpid() != owner:  # a forked worker that returned through its parent's frames
            return ending
        with signals.held(), interrupts_held() as later, _apart_from(program, warn=False):
            findings = watch.report(program, outputs)
            for line in (stopped.line if stopped else "", "" if outputs.quiet else hint):
                say(outputs.stream, line) if line else None
        ends.remove()
        signals.remove()
        if late or later:
            return KeyboardInterrupt()
        if options.tries and job is None and any(f.severity != "note" for f in findings):
            _try(options, program)
        if isinstance(ending, SystemExit) and not ending.code and arguments.reaches(findings, options.fail_on):
            return SystemExit(1)
        return ending


def _add_old_spellings(parser: argparse.ArgumentParser) -> None:
    """What the version before called it."""

    def old(*names: str, **given: Any) -> None:
        parser.add_argument(*names, action=arguments.Old, **given)

    old("--trace-steps", dest="first", type=arguments.count("--trace-steps"), now="--first N")
    old("--no-numerics", dest="precision", sets="off", now="--precision off")
    old("--reference", dest="precision", sets="reference", now="--precision reference")
    old("--try", dest="tries", sets=True, default=False, now="dtypetrace fix, which it then does")
    old("--operators", sets=True, default=False, now="an option of show: run --save run.trace, then show --operators")


def _every(options: argparse.Namespace) -> int | str | None:
    """Which steps are watched: by default those that show something new, where nothing that was asked for needs each
    step."""
    reference = options.precision == "reference"
    every = options.every[0]
    if every is None and not (options.first or options.autofix or options.dry_run or options.compile or reference):
        return "new"
    return every


def _check_watch(options: argparse.Namespace) -> None:
    """Raises UsageError where ``--every`` is given with an option that needs every step."""
    needs = {
        "--autofix": options.autofix,
        "--dry-run": options.dry_run,
        "--precision reference": options.precision == "reference",
    }
    other = next((name for name, given in needs.items() if given), None)
    if options.every not in ((None, 1), (1, 1)) and other:
        raise UsageError(f"--every leaves steps unwatched, and {other} needs every step. Use one of the two")


def _files(options: argparse.Namespace, script: str) -> list[Output]:
    """The requested files. Raises UsageError if one could not be written, or two are the same or the script."""
    asked: list[tuple[str, Path | None, Callable[[Any, Path], None]]] = [
        ("--html", options.html, lambda trace, path: trace.report(path)),
        ("--json", options.json, lambda trace, path: trace.to_json(path)),
        ("--save", options.save, lambda trace, path: trace.save(path)),
    ]
    files = [script, *(file for _, file, _ in asked)]
    return [
        (option, arguments.writable(option, file, *files[: n + 1]), write)
        for n, (option, file, write) in enumerate(asked)
        if file is not None
    ]


def _files_of_rank(options: argparse.Namespace, job: Job, watch: ScriptWatch) -> list[Output]:
    """The trace of one rank, next to that of all."""
    if options.save is None:
        return []

    def write(trace: Any, path: Path) -> None:
        from .. import saved

        saved.save(path, rank_parts.with_rank(trace.results, job, stopped=watch.stopped_early))

    file = options.save.with_name(f"{options.save.stem}.rank{job.rank}{options.save.suffix}")
    return [("--save", arguments.writable("--save", file), write)]


# ---------------------------------------------------------------- the trace of the script


class ScriptWatch:
    """The trace of one run: it begins when the script has imported torch, and ends with the script.

    An error of dtypetrace's own is kept for the report, so that it cannot change the run.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._owner = os.getpid()
        self._trace: Any = None
        self._failure: Exception | None = None
        self._dying = False
        self.stopped_early = False
        """Whether an exception or a signal ended the script."""
        self._unseen = "never imported torch, so there was nothing to watch"
        self._import = AfterImport("torch", self._start)

    @property
    def trace(self) -> Any:
        """The trace, None until torch was imported."""
        return self._trace

    @property
    def failure(self) -> Exception | None:
        """An error of dtypetrace's own."""
        return self._failure

    def arm(self) -> None:
        """From now on, importing torch starts the trace."""
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
            with collector_paused():
                self._trace = self._make()
            self._trace.start()
        except Exception as failure:
            self._failure = failure

    def _make(self) -> Any:
        from ..tracing import Trace

        return Trace(model=None, whole_script=True, **self._options)

    def stop(self, error: BaseException | None) -> None:
        """Ends the trace. ``error`` is the exception that ended the script."""
        self._import.remove()
        self.stopped_early = self._dying or error is not None and not isinstance(error, SystemExit)
        try:
            if self._trace is not None:
                self._trace.stop(error)
        except Exception as failure:
            self._failure = self._failure or failure

    def ended_by(self, name: str, error: BaseException | None = None) -> None:
        """Ends the trace because a signal or a call ends the process; the program's streams are not flushed. ``error``
        is the exception that is being handled."""
        self._dying = True
        try:
            if self._trace is not None and name != "os._exit":
                self._trace.not_seen(f"what the script would have done after {name}, which ended it")
        except Exception as failure:
            self._failure = self._failure or failure
        self.stop(error)

    def stopped(self, error: BaseException | None) -> dry_run.Stopped | None:
        """What ended a dry run early, if it was not a refused dtype."""
        return dry_run.stopped(error, self._trace) if isinstance(error, Exception) and self._trace is not None else None

    def report(self, program: Program, to: Outputs) -> Sequence[Any]:
        """Prints the findings, writes the files, and returns the findings."""
        try:
            if self._failure is not None:
                raise self._failure
            if self._unseen:
                if not to.quiet:
                    say(to.stream, f"dtypetrace: {program.name} {self._unseen}")
                if not to.files and to.job is None:
                    return ()
                self._trace = _nothing_seen()  # an empty report is still a report
            with collector_paused():
                findings: Sequence[Any] = self._trace.findings
        except Exception:
            say(to.stream, _OWN_FAULT + traceback.format_exc())
            return ()
        shown = self._joined(to.job, to.stream) if to.job is not None else self._trace
        if shown is not None and to.stream is not None and not to.quiet and not self._unseen:
            self._print(shown, program, to)
        _write(self._trace, to.own, to.stream)
        if shown is not None:
            _write(shown, to.files, to.stream)
        return findings

    def _joined(self, job: Job, stream: Any) -> Any:
        """The trace of all ranks, if this is the last process of the machine; else None."""
        from ..view import SavedTrace

        try:
            job.add(self._trace.results, stopped=self.stopped_early)
            parts = job.take()
            if parts is None:
                return None
            from ..compare.ranks import merge

            return SavedTrace(merge(parts, job.world))
        except Exception:
            say(stream, _OWN_FAULT + traceback.format_exc())
            return self._trace if job.rank == 0 else None

    def _print(self, trace: Any, program: Program, to: Outputs) -> None:
        try:
            from .. import report

            if not self._dying:
                _flush(sys.stdout)  # so that the script's output comes before the report
            words = ["-m"] * program.as_module + [program.name, *program.argv[1:]]
            report.console(trace, file=to.stream, program=shlex.join(words))
            if to.operators:
                say(to.stream, f"\n{report.operators_text(trace.recording)}")
            if to.receipt:
                say(to.stream, f"\n{report.receipt_text(trace.recording)}")
        except Exception as failure:
            if not isinstance(failure, BrokenPipeError) and not to.stream.closed:  # else nobody reads it
                say(to.stream, _OWN_FAULT + traceback.format_exc())


def _try(options: argparse.Namespace, program: Program) -> None:
    """Runs the script again with each edit that is known against its findings."""
    from . import fixing

    source = str(options.source) if options.source else None
    fixing.fix(fixing.Request([program.name, *program.argv[1:]], options.as_module, options.steps, source))


def _nothing_seen() -> Any:
    """The trace of a script that torch was not watched in. Importing torch for it would take seconds."""
    from importlib.metadata import PackageNotFoundError, version

    from ..records import Recording, Results
    from ..view import SavedTrace

    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = ""
    return SavedTrace(Results(Recording(meta={"torch": torch, "python": sys.version.split()[0], "ops": 0, "steps": 0})))


def _write(trace: Any, files: Sequence[Output], stream: Any) -> None:
    for option, file, write in files:
        try:
            write(trace, file)
        except OSError as failure:
            say(stream, f"dtypetrace: error: {option} {file} could not be written: {failure}")
        except Exception:
            say(stream, _OWN_FAULT + traceback.format_exc())


_PATH = tuple(sys.path[1:])
_OWN_FAULT = "dtypetrace: internal error; the script itself ran as usual. Please report this:\n"


@contextmanager
def _apart_from(program: Program, *, warn: bool) -> Iterator[None]:
    """A block for dtypetrace's own work after the script: imports search where they did before the script ran, and the
    script's own folder last; warnings are off."""
    before = list(sys.path)
    sys.path[:] = [folder for folder in dict.fromkeys((*_PATH, *before)) if folder != program.path0] + [program.path0]
    with warnings.catch_warnings() if not warn else nullcontext():
        if not warn:
            warnings.simplefilter("ignore")
        try:
            yield
        finally:
            sys.path[:] = before


def say(stream: Any, text: str) -> None:
    """Prints a line; does nothing where the stream is None, closed or broken."""
    try:
        print(seen_lines(text), file=stream) if stream is not None else None
    except (OSError, ValueError):
        pass


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except (AttributeError, OSError, ValueError):  # python reports it when it exits
        pass
