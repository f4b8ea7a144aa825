"""``dtypetrace fix``: its options. The work is in ``commands.fixing``, which needs more than the standard library."""

from __future__ import annotations

import argparse

from . import arguments


class FixCommand:
    """Repair a script: patch its source, prove the patch by running it, and show it as a diff.

    The script runs several times, each time in a process of its own and with its random numbers seeded: first with
    casts inserted, to find every dtype that is refused, and then with patches, if there are any to try: first for what
    is refused, then for each warning that it knows an edit for, one patch each. What the script prints is shown once,
    on stderr; stdout gets the diffs. Nothing is written without --write.

    Exit status: 0 if a patch is proven, or if there is nothing to fix; 1 if not; 2 for wrong usage.
    """

    name = "fix"
    usage = "dtypetrace fix [options] (script.py | -m module) [args ...]"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        arguments.add_script(
            parser,
            "fix what python -m module runs",
            "a file, or with -m a module's name; everything after it is passed to the script",
        )
        add("--write", action="store_true", help="change the files, if the patch is proven")
        add("--steps", type=arguments.count("--steps"), metavar="N", help="end each run after N optimizer steps")
        add(
            "--budget",
            type=arguments.duration,
            metavar="TIME",
            help="end all runs after this time (90s, 2m), with what is proven by then (default: 4 minutes after the "
            "first run, or the time of 4 more runs)",
        )
        arguments.add_source(parser)

    def __call__(self, options: argparse.Namespace) -> SystemExit:
        program = arguments.program(options, self.usage)
        source = arguments.source_folder(options)
        status = program.refused()
        if status is not None:
            return SystemExit(status)
        from . import fixing, signals

        request = fixing.Request(
            [program.name, *program.argv[1:]],
            as_module=options.as_module,
            steps=options.steps,
            source=str(source) if source else None,
            write=options.write,
            budget=options.budget,
        )
        with signals.said("fix"):
            return SystemExit(fixing.fix(request))
