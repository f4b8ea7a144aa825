"""One watched and healed run of a program in a process of its own, with some of its files patched; or one with a
reference in higher precision, for ``dtypetrace plan``.

``repair.runs`` starts ``python -m dtypetrace.commands.healed_run REQUEST.json`` for the run that finds the problems and
for each run that tries a patch. Patched text is compiled under its original path, so relative imports, data files and
``inspect.getsource`` work as usual. Processes that the program spawns see the files on disk. To compare two runs, what
the program computes and prints is written down (``records.ledger``).
"""

from __future__ import annotations

import io
import json
import random
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import Any

from ..program import AfterImport, Program, show
from ..records import Results
from ..records.ledger import Ledger, empty
from ..repair.runs import Ended
from . import patched_program

_MOST_PRINTED = 100_000


def main() -> None:
    """Runs the request in ``sys.argv[1]``. The answer says how the program ended; it is written next to the saved
    trace."""
    request = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    program = Program(request["words"], as_module=request["as_module"])
    patched_program.patch(program, request["texts"], request["encodings"])
    ledger = empty()
    run = _HealedRun(request, program, ledger)
    # a program that draws different numbers in every run could not be compared with itself
    random.seed(0)
    seeds = AfterImport("numpy", lambda: sys.modules["numpy"].random.seed(0))
    seeds.install()
    watch = AfterImport("torch", run.start)
    watch.install()
    # imported before the program runs, because its folder may hold a file of any name; healing needs the rules
    from .. import report, saved

    sys.stdout = printed = _Printed(sys.stdout.encoding)
    error = program.execute()
    for armed in (watch, seeds):
        armed.remove()
    trace = run.stop(error)
    run.look_at_variables()
    ledger["printed"] = "".join(printed.begin)
    ending = show(error) if type(error) is not KeyboardInterrupt else error  # fix itself says that
    answer: dict[str, Any] = {
        "status": ending.code if isinstance(ending, SystemExit) else 130,
        "error": _ended(error),
        "ledger": ledger,
        "failure": run.failure,
    }
    if trace is not None:
        saved.save(request["trace"], Results(trace.unjudged), source=False)
        answer["root"] = str(trace.root)
    report.write_atomically(request["answer"], json.dumps(answer))


def _ended(error: BaseException | None) -> Ended | None:
    if error is None or isinstance(error, SystemExit) and not error.code:
        return None
    frames = [(f.filename, f.lineno or 0) for f in traceback.extract_tb(error.__traceback__)]
    return {"type": type(error).__name__, "message": str(error), "frames": frames[::-1]}


class _HealedRun:
    """The trace of the run; it begins once the program has imported torch."""

    def __init__(self, request: dict[str, Any], program: Program, ledger: Ledger) -> None:
        self.request, self.program, self.ledger = request, program, ledger
        self.trace: Any = None
        self.failure = ""

    def start(self) -> None:
        import torch

        from ..healing.ledger import LedgerHealer
        from ..rules import ruling
        from ..tracing import Trace

        torch.manual_seed(0)
        asked = self.request
        whole = {"script": self.program.file or None, "source": asked["source"], "steps": asked["steps"]}
        if asked["keep"] is not None:
            self.trace = Trace(whole_script=True, reference=True, keep_wide=tuple(asked["keep"]), **whole)
            self.trace.start()
            return
        self.trace = Trace(
            whole_script=True,
            numerics=True,
            compare_steps=asked["compare_steps"],
            compile="on" if asked["compiled"] else None,
            autofix=partial(LedgerHealer, judge=ruling, ledger=self.ledger),
            **whole,
        )
        self.trace.start()

    def look_at_variables(self) -> None:
        """Adds the tensors that the program's own file holds at its end, once the trace is closed."""
        if self.trace is None:
            return
        from ..healing.ledger import variables

        try:
            self.ledger["variables"] = variables(vars(sys.modules["__main__"]))
        except Exception:
            self.failure = traceback.format_exc()

    def stop(self, error: BaseException | None) -> Any:
        try:
            if self.trace is not None:
                self.trace.stop(error)
        except Exception:
            self.failure = traceback.format_exc()
        return self.trace


class _Printed(io.TextIOWrapper):
    """Standard output that also keeps the beginning of what is printed."""

    def __init__(self, encoding: str) -> None:
        super().__init__(io.FileIO(1, "w", closefd=False), encoding, "backslashreplace", write_through=True)
        self.begin: list[str] = []
        self.left = _MOST_PRINTED

    def write(self, text: str) -> int:
        if self.left > 0:
            self.begin.append(text[: self.left])
            self.left -= len(text)
        return super().write(text)


if __name__ == "__main__":
    main()
