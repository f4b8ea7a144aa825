"""What `dtypetrace run` adds to a script that only imports torch, over plain Python.

    python benchmarks/start.py [--rounds N]

Exits with 1 if the bar is missed. Seconds of the processor, user and system, for a whole process; minima over interleaved rounds. All
modules are compiled in a first run of each, as an installed package is.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from overhead import Row, seconds, table, times_over

ROOT = Path(__file__).parents[1]


def spent(words: list[str], folder: str, environment: dict[str, str]) -> float:
    """Seconds of the processor that a Python process takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], cwd=folder, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=8)
    rounds = parser.parse_args(argv).rounds
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "script.py").write_text("import torch\n")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment.update(PYTHONPATH=str(ROOT), PYTHONPYCACHEPREFIX=str(Path(folder) / "compiled"))
        commands = {"plain": ["script.py"], "run": ["-m", "dtypetrace", "run", "script.py"]}
        for words in commands.values():
            spent(words, folder, environment)
        for _ in range(rounds):
            for name, words in commands.items():
                best[name] = min(best.get(name, float("inf")), spent(words, folder, environment))
    over = best["run"] / best["plain"]
    rows = [
        Row(
            "dtypetrace run of a script that only imports torch, over plain Python",
            over,
            times_over,
            1.15,
            1.08,
            "1.28x",
        ),
        Row("  what it adds", best["run"] - best["plain"], seconds),
    ]
    print(table("start", rows), flush=True)
    return int(rows[0].verdict == "MISSED")


if __name__ == "__main__":
    sys.exit(main())
