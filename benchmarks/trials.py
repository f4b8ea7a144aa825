"""What the trials at a run's end cost: a program's time under `dtypetrace run` with them, over that without.

    python benchmarks/trials.py [SET ...]

The programs of sets of tests/evidence, one by one, each in a fork of a process that has imported torch. Their time is that of the
processor, from the program's first line to the judged findings; the start, which takes most of the time of such small programs, is
measured once and added. Programs with damage are those with a finding of severity warning that raise nothing. Exits with 1 if a bar
is missed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median

import torch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT), str(ROOT / "tests" / "evidence")]
import judgements  # noqa: E402
from overhead import Row, table  # noqa: E402

import dtypetrace  # noqa: E402
from dtypetrace import tracing  # noqa: E402

RUNS = 2
ENV = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
SETS = ("suspects",)


def measured(text: str, tries: bool) -> tuple[float, bool] | None:
    """Seconds of the program and of what is said of it, and whether it has damage; None for one that raises."""
    if not tries:
        tracing._with_trials = lambda recording, *_: recording
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.py"
        file.write_text(text)
        os.chdir(folder)
        begin = time.process_time()
        code = compile(text, str(file), "exec", dont_inherit=True)
        try:
            with dtypetrace.trace(precision="values") as trace:
                exec(code, {"__name__": "__main__", "__file__": str(file)})
        except BaseException:
            return None
        damage = any(f.severity == "warning" for f in trace.findings)
        return time.process_time() - begin, damage


def in_a_fork(text: str, tries: bool) -> tuple[float, bool] | None:
    """The same, in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        found = None
        with contextlib.suppress(BaseException), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = measured(text, tries)
        os.write(writing, json.dumps(found).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return json.loads(said or "null")


def fastest(text: str, tries: bool) -> tuple[float, bool] | None:
    """The fastest of some runs."""
    found = [in_a_fork(text, tries) for _ in range(RUNS)]
    return None if None in found else min(found)


def start() -> float:
    """Seconds of `dtypetrace run` with a script that only imports torch."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.py"
        file.write_text("import torch\n")
        before = os.times()
        subprocess.run(
            [sys.executable, "-m", "dtypetrace", "run", str(file)], cwd=folder, env=ENV, stderr=subprocess.DEVNULL
        )
        after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> int:
    torch.set_num_threads(1)
    with dtypetrace.trace(precision="values") as trace:  # imports what a report needs
        (torch.ones(4).half() * 70_000).sum()
    assert trace.findings
    programs = [p for name in sys.argv[1:] or SETS for p in judgements.sets()[name]()]
    silent = [p.text for p in programs if p.case is not None and p.case.expect != "collision"]
    begins = min(start() for _ in range(RUNS))
    runs = [(fastest(text, True), fastest(text, False)) for text in silent]
    known = [(tried, plain) for tried, plain in runs if tried and plain]

    show = "{:.3f}x".format
    rows = []
    for damage, what in ((True, "with damage"), (False, "without a warning")):
        added = [(tried[0], plain[0]) for tried, plain in known if tried[1] is damage]
        ratios = [(begins + tried) / (begins + plain) for tried, plain in added]
        rows.append(Row(f"{len(ratios)} programs {what}: with trials, over without", median(ratios), show, 1.1, 1.05))
        rows.append(Row("  the dearest of them", max(ratios), show))
        rows.append(
            Row(
                f"  the same without the start, which takes {begins:.1f} s",
                median(tried / plain for tried, plain in added),
                show,
            )
        )
    print(table("dtypetrace run of whole programs, on the CPU", rows), flush=True)
    return int(any(row.verdict == "MISSED" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
