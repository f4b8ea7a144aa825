"""Runs the demo and quick tests under other Pythons and other versions of torch, each in an environment of its own.

    python -m tools.matrix --torch VERSION ... [--python EXE ...] [--folder F] [--index-url URL]

Every Python runs with the first torch, every torch with the first Python. An environment that could not be made, a
trace, the demo and each file of tests get a line in the table: nothing is called supported that did not run here.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEEDED = ("numpy", "pytest", "pytest-timeout", "filelock", "expecttest", "hypothesis", "ipython")
TESTS = (
    "tests/test_saved.py",
    "tests/test_text.py",
    "tests/capture/test_origins.py",
    "tests/capture/test_block_ends.py",
    "tests/capture/test_same_outcome.py",
    "tests/healing/test_heal.py",
    "tests/rules/test_rules.py",
    "tests/tables/test_refusals.py",
)
"""Quick ones that between them reach every package and most of private torch."""
MINUTES = 20


def run(command: Iterable[str | Path], **settings: object) -> subprocess.CompletedProcess[str]:
    # the environment's own packages and this checkout, nothing else
    surroundings = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "CI")}
    surroundings |= {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    try:
        return subprocess.run(
            [str(word) for word in command],
            capture_output=True,
            text=True,
            env=surroundings,
            cwd=ROOT,
            timeout=MINUTES * 60,
        )
    except OSError as error:
        return subprocess.CompletedProcess([], 127, "", str(error))
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(error.cmd, 124, "", f"took more than {MINUTES} minutes")


def environment(python: str, torch: str, folder: Path, index: list[str]) -> Path | str:
    """The interpreter of an environment, made where it is not there; else what went wrong, in one line."""
    version = run([python, "-c", "import platform; print(platform.python_version())"]).stdout.strip()
    if not version:
        return "this Python does not run"
    home = folder / f"python{version}-torch{torch}"
    if not (home / "ready").exists():
        made = run([python, "-m", "venv", "--clear", home])
        if made.returncode == 0:
            words = [f"torch=={torch}", "-e", f"{ROOT}[models]", *NEEDED]
            made = run([home / "bin" / "python", "-m", "pip", "install", "--quiet", *index, *words])
        if made.returncode != 0:
            told = [line for line in made.stderr.splitlines() if "error" in line.lower()] or ["it could not be made"]
            return told[-1][:160]
        (home / "ready").touch()
    return home / "bin" / "python"


def results(python: Path) -> Iterator[tuple[str, str]]:
    """What ran, and how it ended."""
    told = run(
        [
            python,
            "-W",
            "ignore",
            "-c",
            "import torch, dtypetrace\nwith dtypetrace.trace(): torch.ones(2) @ torch.ones(2)",
        ]
    )
    yield "a trace", "ok" if told.returncode == 0 else told.stderr.strip().splitlines()[-1][:120]
    demo = run([python, "-m", "dtypetrace", "run", "examples/unet_mask.py"])
    yield (
        "demo",
        "ok" if demo.returncode == 1 and "error[DT" in demo.stdout + demo.stderr else f"status {demo.returncode}",
    )
    for file in TESTS:
        done = run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow and not exhaustive", file])
        counts = re.findall(r"(\d+) (passed|failed|error)", done.stdout)
        bad = [f"{number} {what}" for number, what in counts if what != "passed"]
        yield Path(file).stem, "ok" if done.returncode == 0 else ", ".join(bad) or f"status {done.returncode}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="+", default=[sys.executable], metavar="EXE")
    parser.add_argument("--torch", nargs="+", required=True, metavar="VERSION")
    parser.add_argument("--folder", type=Path, default=ROOT / ".matrix")
    parser.add_argument("--index-url", default="")
    options = parser.parse_args()
    index = ["--index-url", options.index_url] if options.index_url else []
    pairs = [(python, options.torch[0]) for python in options.python]
    pairs += [(options.python[0], torch) for torch in options.torch[1:]]
    failed = False
    for python, torch in pairs:
        made = environment(python, torch, options.folder, index)
        print(f"\n{python}, torch {torch}", flush=True)
        for what, ended in results(made) if isinstance(made, Path) else [("environment", made)]:
            failed |= ended != "ok"
            print(f"  {what:24} {ended}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
