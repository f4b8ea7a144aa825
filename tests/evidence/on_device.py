"""The programs of the evidence on another device: each alone and under `dtypetrace run`, with that device as torch's default.

    python tests/evidence/on_device.py cuda [--jobs 15] [--set NAME ...] [-k TEXT]

Prints how many run there as they do on a CPU, how many of those end, raise and print the same when they are watched, and of how many
the same errors and warnings are said as on a CPU; then each that differs. A program that computes on two devices at once, since it
also has arrays or autocast of the CPU, is not fit for this.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import judgements

NOT_FIT, OTHERWISE = "not fit", "otherwise"


def run(device: str, arguments: list[str]) -> None:
    """Runs a script or a module in this process, with a device as torch's default."""
    import torch

    torch.set_default_device(device)
    sys.path[0], sys.argv = os.getcwd(), arguments
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(arguments[0], run_name="__main__")


def outcome(device: str, name: str, program: judgements.Program) -> list[str]:
    """How a program differs on a device when it is watched, and what is said of it there; empty if in nothing."""
    harness = judgements.harness
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder, "program.py"), Path(folder, "out.json")
        file.write_text(program.text)
        there = lambda *arguments: harness.run([__file__, "--run", device, *arguments], Path(folder))
        alone = there(str(file))
        if program.case is None or harness.verify(program.case, file, alone) or "same device" in alone.stderr:
            return [NOT_FIT]
        watched = there("-m", "dtypetrace", "run", "--json", str(out), str(file))
        found = harness.findings_of(out)
        same = (watched.status, watched.stdout) == (alone.status, alone.stdout) and found is not None
        if not same or alone.status and alone.last not in watched.stderr:
            again = there(str(file))
            stable = (again.status, again.stdout) == (alone.status, alone.stdout)
            return [OTHERWISE if stable else NOT_FIT, watched.last]
        said = [judgements.judgement(f, file) for f in found or ()]
    known = judgements.read(name).get(program.name, {}).get("default", [])
    serious = lambda js: [
        {k: j[k] for k in ("code", "born", "at")} for j in js if j["severity"] in judgements.harness.SERIOUS
    ]
    return judgements.difference(serious(known), serious(said))


def main() -> None:
    if sys.argv[1:2] == ["--run"]:
        return run(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("device")
    parser.add_argument("--jobs", type=int, default=judgements.JOBS)
    parser.add_argument("--set", nargs="*", default=[n for n in judgements.sets() if n not in ("unseen", "notebooks")])
    parser.add_argument("-k", default="", metavar="TEXT")
    asked = parser.parse_args()
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # else the server that forks the runs has used the device
    programs = [(name, p) for name in asked.set for p in judgements.sets()[name]() if asked.k in p.name]
    with ThreadPoolExecutor(asked.jobs) as pool:
        outcomes = list(pool.map(lambda one: outcome(asked.device, *one), programs))
    fit = [o for o in outcomes if o[:1] != [NOT_FIT]]
    harmless = [o for o in fit if o[:1] != [OTHERWISE]]
    print(
        f"{len(fit)} of {len(programs)} run on {asked.device} as on a CPU; {len(harmless)} of them in a trace as alone"
    )
    print(f"of {harmless.count([])} the same is said as on a CPU")
    for (name, program), lines in zip(programs, outcomes):
        if lines and lines[:1] != [NOT_FIT]:
            print(f"{name}/{program.name}", *lines, sep="\n    ")


if __name__ == "__main__":
    main()
