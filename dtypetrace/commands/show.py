"""``dtypetrace show``: a saved trace, printed or written as ``run`` would have."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from . import arguments

if TYPE_CHECKING:
    from ..view import View

OWN_FAULT = "dtypetrace: internal error: only this output is missing. Please report this:\n"


class ShowCommand:
    """Look at a saved trace (dtypetrace run --save F) again; torch is not needed for it."""

    name = "show"
    usage = (
        "dtypetrace show TRACE [--html F] [--json F] [--format FORM] [--output F] [--no-source] [--operators] "
        "[--what-if NAME=DTYPE] [--fail-on LEVEL] [--verbose]"
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("trace", type=Path, metavar="TRACE", help="a file that run --save wrote")
        add("--html", type=Path, metavar="F", help="write the report as one HTML file that needs no network")
        add(
            "--no-source",
            dest="text",
            action="store_false",
            help="keep the program's text out of the HTML report",
        )
        add("--json", type=Path, metavar="F", help="write the findings as JSON")
        arguments.add_operators(parser)
        add(
            "--what-if",
            action="append",
            type=_change,
            default=[],
            metavar="NAME=DTYPE",
            help="print what the run would have done with other dtypes: vae=bfloat16, mask=float16, "
            "train.py:12=float32, autocast=off; may be given several times",
        )
        arguments.add_format(parser)
        arguments.add_fail_on(parser)
        arguments.add_verbose(parser)

    def __call__(self, options: argparse.Namespace) -> SystemExit:
        from .. import report

        trace = arguments.saved_trace(options.trace)
        html = arguments.writable("--html", options.html) if options.html else None
        json = arguments.writable("--json", options.json) if options.json else None
        output = arguments.writable("--output", options.output) if options.output else None
        form = "text" if output else options.format
        answer = repr(trace.what_if(dict(options.what_if))) if options.what_if else None
        outputs: list[Callable[[], object]] = [
            (lambda: print(answer)) if answer else (lambda: _print(trace, form, options.verbose))
        ]
        if options.operators:
            outputs.append(lambda: print(f"\n{report.operators_text(trace.recording)}"))
        if html:
            outputs.append(lambda: trace.report(html, source=options.text))
        if json:
            outputs.append(lambda: trace.to_json(json))
        if output:
            outputs.append(lambda: report.write_format(output, options.format, trace.recording, trace.findings))
        failed = False
        for made in outputs:
            try:
                made()
            except BrokenPipeError:  # nobody reads any more
                raise
            except OSError as failure:
                raise UsageError(
                    f"{failure.filename or html or json or output} could not be written: {failure}"
                ) from None
            except Exception:  # it costs this output only
                failed = True
                print(f"{OWN_FAULT}{traceback.format_exc()}", file=sys.stderr)
        return SystemExit(int(failed or arguments.reaches(trace.findings, options.fail_on)))


def _print(trace: View, form: str, verbose: bool) -> None:
    from .. import report

    if form == "text":
        report.console(trace, file=sys.stdout, verbose=verbose)
    else:
        print(report.FORMATS[form](trace.recording, trace.findings))


def _change(text: str) -> tuple[str, str]:
    name, equals, dtype = text.rpartition("=")
    if not (name and equals and dtype):
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=DTYPE, such as vae=bfloat16")
    return name, dtype
