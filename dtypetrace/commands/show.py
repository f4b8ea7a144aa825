"""``dtypetrace show``: a saved trace, printed or written as ``run`` would have."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from . import arguments

if TYPE_CHECKING:
    from ..view import View

OWN_FAULT = "dtypetrace: internal error: only this output is missing. Please report this:\n"


class ShowCommand:
    """Look at a saved trace (dtypetrace run --save F) again; torch is not needed for it.

    Several traces are those of a job's ranks: equal findings are shown once, with the ranks that have them. What the
    ranks disagree about comes first, then findings that only some ranks have. Ranks whose trace is missing are named.

      torchrun --nproc-per-node 4 -m dtypetrace run --save run.trace train.py
      dtypetrace show run.rank*.trace
    """

    name = "show"
    usage = "dtypetrace show [options] TRACE ..."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("traces", type=Path, nargs="+", metavar="TRACE", help="a file that run --save wrote")
        show = parser.add_argument_group("what to show")
        arguments.add_operators(show)
        show.add_argument(
            "--what-if",
            action="append",
            type=_change,
            default=[],
            metavar="NAME=DTYPE",
            help="print what the run would have done with other dtypes: vae=bfloat16, mask=float16, "
            "train.py:12=float32, autocast=off; may be given several times",
        )
        write = parser.add_argument_group("what to write")
        add = write.add_argument
        add("--html", type=Path, metavar="F", help="write the report as one HTML file that needs no network")
        add("--json", type=Path, metavar="F", help="write the findings as JSON")
        add("--save", type=Path, metavar="F", help="save it again: all ranks in one file, or without the text")
        add(
            "--no-source",
            dest="text",
            action="store_false",
            help="keep the program's text out of --html and --save",
        )
        arguments.add_fail_on(parser.add_argument_group("with which status to end"))

    def __call__(self, options: argparse.Namespace) -> SystemExit:
        from .. import report

        trace = _trace(options.traces)
        answer = repr(trace.what_if(dict(options.what_if))) if options.what_if else None
        outputs: list[tuple[str, Callable[[], object]]] = [
            ("", lambda: print(answer) if answer else report.console(trace, file=sys.stdout, idle=True))
        ]
        if options.operators:
            outputs.append(("", lambda: print(f"\n{report.operators_text(trace.recording)}")))
        written = {name: getattr(options, name) for name in ("html", "json", "save")}
        for name, write in (
            ("html", lambda file: trace.report(file, source=options.text)),
            ("json", trace.to_json),
            ("save", lambda file: trace.save(file, source=options.text)),
        ):
            if (asked := written[name]) is not None:
                used = [file for other, file in written.items() if other != name]
                # a trace may be replaced by what is saved of it
                file = arguments.writable(f"--{name}", asked, *used, *(options.traces if name != "save" else ()))
                outputs.append((f"--{name} {file}", partial(write, file)))
        failed = False
        for named, made in outputs:
            try:
                with arguments.writing(named) if named else nullcontext():
                    made()
            except (BrokenPipeError, UsageError):  # nobody reads any more; a file that cannot be written
                raise
            except Exception:  # it costs this output only
                failed = True
                print(f"{OWN_FAULT}{traceback.format_exc()}", file=sys.stderr)
        return SystemExit(int(failed or arguments.reaches(trace.findings, options.fail_on)))


def _trace(files: Sequence[Path]) -> View:
    """The trace in a file, or those of several ranks as one. Raises UsageError where two are of one rank."""
    if len(files) == 1:
        return arguments.saved_trace(files[0])
    from ..compare.ranks import Part, merge
    from ..view import SavedTrace

    results = [arguments.saved_trace(file).results for file in files]
    parts = [Part(int(found.recording.meta.get("rank", number)), found) for number, found in enumerate(results)]
    try:
        return SavedTrace(merge(parts))
    except ValueError as error:
        raise UsageError(f"{error}. Give one trace of each rank") from None


def _change(text: str) -> tuple[str, str]:
    name, equals, dtype = text.rpartition("=")
    if not (name and equals and dtype):
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=DTYPE, such as vae=bfloat16")
    return name, dtype
