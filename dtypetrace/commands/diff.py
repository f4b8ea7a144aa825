"""``dtypetrace diff``: what changed dtype between two saved traces."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import arguments


class DiffCommand:
    """Show what changed dtype between two saved traces, in the order of the run, and which line decided it in each.

    Ops are aligned by module and name, not by line. So you can compare a run before and after a refactoring,
    two versions of torch or of a library, two devices, or two ranks.

    Exit status: 0 if nothing differs, 1 if anything does, 2 for wrong usage.
    """

    name = "diff"
    usage = "dtypetrace diff [--html F] A B"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("one", type=Path, metavar="A", help="a file that run --save wrote")
        add("other", type=Path, metavar="B", help="another one")
        add("--html", type=Path, metavar="F", help="write it as one HTML file, with the ops of both on one axis")

    def __call__(self, options: argparse.Namespace) -> SystemExit:
        from ..compare.differences import compare
        from ..render import differences

        file = arguments.writable("--html", options.html, options.one, options.other) if options.html else None
        one, other = arguments.saved_trace(options.one), arguments.saved_trace(options.other)
        names = (str(options.one), str(options.other))
        found = compare(one.recording, other.recording, (one.findings, other.findings))
        print(differences.text(found, names))
        if file is not None:
            from .. import report
            from ..render import diff_page, html_report

            with arguments.writing(f"--html {file}"):
                report.write_atomically(
                    file, html_report.rendered(diff_page.page((one.recording, other.recording), found, names))
                )
        return SystemExit(int(not found.same))
