"""Runs the demo and quick tests under other Pythons and other versions of torch, each in an environment of its own.

    python -m tools.matrix --torch VERSION ... [--python EXE ...] [--folder F] [--remove] [--record FILE]

Every Python runs with the first torch, every torch with the first Python. An environment that could not be made, a
trace, the demo and each part of the tests get a line: nothing is called supported that did not run here. What failed
stands in a log beside the environment. ``--remove`` deletes each environment after its tests: one with a CUDA build
has 7 GB. ``--record`` writes each result into a table, in place of an older one for the same two versions.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEEDED = ("numpy", "pytest", "pytest-timeout", "filelock", "expecttest", "hypothesis", "ipython")
TESTS = {
    "capture": (
        "tests/capture/test_origins.py",
        "tests/capture/test_phases.py",
        "tests/capture/test_compiled.py",
        "tests/capture/test_same_outcome.py",
        "tests/capture/test_missing_torch.py",
    ),
    "healing": ("tests/healing/test_heal.py",),
    "judgement": ("tests/rules/test_rules.py", "tests/tables/test_refusals.py"),
    "reports": ("tests/records", "tests/test_saved.py", "tests/test_view.py"),
}
"""Quick ones that between them reach every package and all of private torch."""
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


def environment(python: str, torch: str, folder: Path, index: list[str]) -> tuple[Path, str]:
    """The folder of an environment, made where it is not there, and what went wrong, in one line, or nothing."""
    version = version_of(python)
    home = folder / f"python{version}-torch{torch}"
    if not version:
        return home, "this Python does not run"
    if not (home / "ready").exists():
        made = run([python, "-m", "venv", "--clear", home])
        if made.returncode == 0:
            words = [f"torch=={torch}", "-e", f"{ROOT}[models]", *NEEDED]
            made = run([home / "bin" / "python", "-m", "pip", "install", "--quiet", *index, *words])
        if made.returncode != 0:
            said = [line for line in made.stderr.splitlines() if "error" in line.lower()] or ["it could not be made"]
            return home, said[-1][:160]
        (home / "ready").touch()
    return home, ""


def version_of(python: str) -> str:
    return run([python, "-c", "import platform; print(platform.python_version())"]).stdout.strip()


def results(python: Path, log: Path) -> Iterator[tuple[str, str]]:
    """What ran, and how it ended; ``log`` receives the output of what failed."""
    trace = "import torch, dtypetrace\nwith dtypetrace.trace(): torch.ones(2) @ torch.ones(2)"
    done = run([python, "-W", "ignore", "-c", trace])
    yield "trace", "ok" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["failed"])[-1][:120]
    demo = run([python, "-m", "dtypetrace", "run", "examples/unet_mask.py"])
    yield (
        "demo",
        "ok" if demo.returncode == 1 and "error[DT" in demo.stdout + demo.stderr else f"status {demo.returncode}",
    )
    for part, paths in TESTS.items():
        quick = ["-q", "-p", "no:cacheprovider", "-m", "not slow and not exhaustive"]
        done = run([python, "-m", "pytest", *quick, *paths])
        counts = {what: int(number) for number, what in re.findall(r"(\d+) (passed|failed|error)", done.stdout)}
        if done.returncode != 0:
            with log.open("a", encoding="utf-8") as file:
                file.write(f"==== {part}\n{done.stdout}{done.stderr}\n")
        bad = sum(number for what, number in counts.items() if what != "passed")
        ended = f"{counts.get('passed', 0)} passed" + (f", {bad} failed" if bad else "")
        yield part, ended if counts else f"status {done.returncode}"


def record(file: Path, python: str, torch: str, ended: dict[str, str]) -> None:
    """Writes one line of the table, in place of an older one for the same two versions."""
    head = ["| Python | torch | " + " | ".join(ended) + " |", "|" + "---|" * (len(ended) + 2)]
    rows = file.read_text("utf-8").splitlines()[2:] if file.exists() else []
    key = f"| {python} | {torch} |"
    rows = [row for row in rows if not row.startswith(key)] + [f"{key} " + " | ".join(ended.values()) + " |"]
    rows.sort(key=lambda row: [int(number) for number in re.findall(r"\d+", row)[:6]])
    file.write_text("\n".join([*head, *rows]) + "\n", "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="+", default=[sys.executable], metavar="EXE")
    parser.add_argument("--torch", nargs="+", required=True, metavar="VERSION")
    parser.add_argument("--folder", type=Path, default=ROOT / ".matrix")
    parser.add_argument("--index-url", default="")
    parser.add_argument("--remove", action="store_true", help="delete each environment after its tests")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the results into this table")
    options = parser.parse_args()
    index = ["--index-url", options.index_url] if options.index_url else []
    pairs = [(python, options.torch[0]) for python in options.python]
    pairs += [(options.python[0], torch) for torch in options.torch[1:]]
    failed = False
    for python, torch in pairs:
        print(f"\n{python}, torch {torch}", flush=True)
        home, problem = environment(python, torch, options.folder, index)
        ended = {}
        for what, end in (
            [("environment", problem)]
            if problem
            else results(home / "bin" / "python", home.with_name(home.name + ".log"))
        ):
            ended[what] = end
            failed |= "failed" in end or not (end == "ok" or end.endswith("passed"))
            print(f"  {what:12} {end}", flush=True)
        if options.record and not problem:
            record(options.record, version_of(python), torch, ended)
        if options.remove:
            shutil.rmtree(home, ignore_errors=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
