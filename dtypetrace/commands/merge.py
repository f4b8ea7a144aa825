"""``dtypetrace merge``: the saved traces of several ranks as one report."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..errors import UsageError
from . import arguments


class MergeCommand:
    """Join the saved traces of several ranks to one report.

    Equal findings are shown once, with the ranks that have them. Differences between ranks come
    first, then findings that only some ranks have. Ranks whose trace is missing are named.

      torchrun --nproc-per-node 4 -m dtypetrace run --save run.trace train.py
      dtypetrace merge run.rank*.trace
    """

    name = "merge"
    usage = "dtypetrace merge TRACE ... [--world N] [--html F] [--json F] [--save F] [--fail-on LEVEL]"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("traces", type=Path, nargs="+", metavar="TRACE", help="files that run --save wrote, one for each rank")
        add("--world", type=arguments.count("--world"), metavar="N", help="how many ranks there were")
        add("--html", type=Path, metavar="F", help="write the report as one HTML file that needs no network")
        add("--json", type=Path, metavar="F", help="write the findings as JSON")
        add("--save", type=Path, metavar="F", help="save the joined trace, for dtypetrace show")
        arguments.add_fail_on(parser)

    def __call__(self, options: argparse.Namespace) -> SystemExit:
        from .. import report
        from ..compare.ranks import Part, merge
        from ..view import SavedTrace

        parts = []
        for number, file in enumerate(options.traces):
            results = arguments.saved_trace(file).results
            parts.append(Part(int(results.recording.meta.get("rank", number)), results))
        try:
            trace = SavedTrace(merge(parts, options.world or 0))
        except ValueError as error:
            raise UsageError(f"{error}. Give one trace of each rank") from None
        asked = (("html", trace.report), ("json", trace.to_json), ("save", trace.save))
        asked = (("html", trace.report), ("json", trace.to_json), ("save", trace.save))
        outputs = [
            (f"--{name}", arguments.writable(f"--{name}", file), write)
            for name, write in asked
            if (file := getattr(options, name)) is not None
        ]
        report.console(trace, file=sys.stdout)
        for option, file, write in outputs:
            with arguments.writing(f"{option} {file}"):
                write(file)
        return SystemExit(int(arguments.reaches(trace.findings, options.fail_on)))
