"""One run of a program with a reference in a process of its own, for ``dtypetrace plan``: with some modules in float32,
or with a patched text. It leaves a trace."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ..program import AfterImport, Program, show
from ..records import Results
from . import patched_program


def main() -> None:
    """Runs the request in ``sys.argv[1]``."""
    request = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    program = Program(request["words"], as_module=request["as_module"])
    patched_program.patch(program, request["texts"], request["encodings"])
    begun: list[Any] = []

    def start() -> None:
        from ..tracing import Trace

        begun.append(
            Trace(
                whole_script=True,
                script=program.file or None,
                steps=request["steps"],
                reference=True,
                keep_wide=tuple(request["keep"]),
            )
        )
        begun[0].start()

    watch = AfterImport("torch", start)
    watch.install()
    # imported before the program runs, because its folder may hold a file of any name
    from .. import saved

    error = program.execute()
    watch.remove()
    for trace in begun:
        trace.stop(error)
        saved.save(request["trace"], Results(trace.unjudged))
    ending = show(error) if type(error) is not KeyboardInterrupt else error  # plan itself says that
    if isinstance(ending, SystemExit):
        raise ending


if __name__ == "__main__":
    main()
