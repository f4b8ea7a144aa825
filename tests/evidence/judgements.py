"""Golden judgements: what is said of each program of the evidence, as data and without words, and how much of it is right.

A judgement is one finding less its sentences: code, kind, severity, the lines of birth and of the operation, the culprit, the
principle that named it, the edits. `golden/SET.json` holds them as they were last looked at. A difference is either mended or
signed: renew the file and let the reviewer see the line that changed.

    python tests/evidence/judgements.py                  compare all sets with their golden files
    python tests/evidence/judgements.py --write          renew the files; read the difference
    python tests/evidence/judgements.py --score          how many are right in each set, by default and with --reference;
                                                         false warnings on healthy programs
    python tests/evidence/judgements.py --set NAME -k TEXT   a part

A set is a folder of cases (tests/cases/harness.py says what a case is), the programs of tests/reference/unseen.py, the
catalogue of refusals, or the notebooks' cells. Blind batches come here once they have been counted, a folder each.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import re
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
sys.path[:0] = [str(TESTS.parent), str(TESTS), str(TESTS / "cases"), str(TESTS / "reference")]
import harness  # noqa: E402  (the script runs outside pytest, too)

GOLDEN = HERE / "golden"
MODES = {"default": (), "reference": ("--reference",)}
JOBS = 2
"""Programs at a time: each one imports torch."""

Judgement = dict[str, Any]


@dataclass(frozen=True)
class Program:
    """A program of a set: its text without markers, and the case that knows the truth, where there is one."""

    name: str
    text: str
    case: harness.Case | None = None


# ---------------------------------------------------------------- the sets


def sets() -> dict[str, Callable[[], list[Program]]]:
    """The sets of programs that run as scripts, by name."""
    found = {"cases": lambda: _folder(harness.HERE)}
    for folder in sorted((HERE / "sets").iterdir()):
        if folder.is_dir():
            found[folder.name] = lambda folder=folder: _folder(folder)
    return found | {"unseen": _unseen, "notebooks": _notebooks}


def _folder(folder: Path) -> list[Program]:
    programs = []
    for path in harness.find([folder]):
        case = harness.load(path)
        if not case.missing:
            programs.append(Program(path.relative_to(folder).with_suffix("").as_posix(), case.text, case))
    return programs


def _unseen() -> list[Program]:
    import unseen

    programs = []
    for one in unseen.PROGRAMS:
        text = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n" + one.text.lstrip("\n")
        born = tuple(n for n, line in enumerate(text.splitlines(), 1) if "# BORN" in line)
        expect = "silent:" + "|".join(one.expect) if one.expect else "clean"
        clear = re.sub(r"  # BORN.*", "", text)
        case = harness.Case(Path(one.name), {"expect": expect, "needs": one.needs}, clear, born, ())
        if not case.missing:
            programs.append(Program(one.name, clear, case))
    return programs


def _notebooks() -> list[Program]:
    """The cells of each notebook as one script, without magics; it ends with the first cell that raises on purpose."""
    programs = []
    for path in sorted((TESTS.parent / "notebooks").glob("*.ipynb")):
        cells = []
        for cell in json.loads(path.read_text())["cells"]:
            if cell["cell_type"] == "code":
                cells.append(re.sub(r"^%.*\n?", "", "".join(cell["source"]), flags=re.M))
                if "raises-exception" in cell["metadata"].get("tags", ()):
                    break
        programs.append(Program(path.stem, "\n\n".join(cells) + "\n"))
    return programs


# ---------------------------------------------------------------- what is said


def judgement(finding: dict, program: Path | str, first: int = 1) -> Judgement:
    """A finding of the JSON report without words; lines are counted from ``first``, the first line of the program."""
    culprit = finding.get("culprit") or {}
    origin = culprit.get("origin") or {}
    fix = finding.get("fix") or {}
    return {
        "code": finding["code"],
        "kind": finding["kind"],
        "severity": finding["severity"],
        "born": _where(origin, program, first),
        "origin": origin.get("kind"),
        "at": _where(finding.get("site") or {}, program, first),
        "culprit": culprit.get("name"),
        "dtype": culprit.get("dtype"),
        "principle": finding.get("principle"),
        "edits": [_edit(e, program, first) for e in fix.get("edits") or ()],
    }


def _where(place: dict, program: Path | str, first: int) -> int | str | None:
    """The program's innermost line; for a place that the program did not reach, the library's function."""
    frames = [place, *(place.get("stack") or ())]
    lines = [f["line"] for f in frames if harness.same(f.get("file"), Path(program))]
    if lines:
        return lines[0] - first + 1
    return f"{Path(place['file']).name}:{place.get('function')}" if place.get("file") else None


def _edit(edit: dict, program: Path | str, first: int) -> str:
    line = edit["start"][0] - first + 1 if harness.same(edit["file"], Path(program)) else Path(edit["file"]).name
    return f"{line}: {edit['before']} -> {edit['after']}"


def run(program: Program, flags: tuple[str, ...]) -> list[Judgement] | str:
    """What `dtypetrace run` says of a program; a text where it wrote no report."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.py"
        file.write_text(program.text)
        out = Path(folder) / "out.json"
        harness.run(["-m", "dtypetrace", "run", *flags, "--json", str(out), str(file)], Path(folder))
        found = harness.findings_of(out)
        return "no report" if found is None else [judgement(f, file) for f in found]


def catalogue() -> Iterator[tuple[str, list[Judgement]]]:
    """What is said of each refusal of the catalogue, in this process."""
    import numpy as np
    import torch

    import dtypetrace

    for path in sorted((TESTS / "rules" / "catalogue").glob("test_*.py")):
        sys.path.insert(0, str(path.parent))
        module = importlib.import_module(path.stem)
        for program in getattr(module, "PROGRAMS", ()):
            file, first = program.function.__code__.co_filename, inspect.getsourcelines(program.function)[1]
            torch.manual_seed(0), np.random.seed(0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    with dtypetrace.trace() as t:
                        program.function()
                except Exception:
                    pass
            with tempfile.TemporaryDirectory() as folder:
                t.to_json(out := Path(folder) / "out.json")
                found = harness.findings_of(out) or []
            yield f"{path.stem[5:]}/{program.function.__name__}", [judgement(f, file, first) for f in found]


# ---------------------------------------------------------------- golden files


def read(name: str) -> dict[str, Any]:
    file = GOLDEN / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else {}


def write(name: str, judged: dict[str, Any]) -> None:
    """A line a judgement, so that a difference is read in a review."""
    lines = []
    for program, modes in sorted(judged.items()):
        shown = []
        for mode, found in modes.items():
            body = found if isinstance(found, str) else [json.dumps(j, ensure_ascii=False) for j in found]
            text = json.dumps(body) if isinstance(body, str) else "[" + ",".join(f"\n   {j}" for j in body) + "]"
            shown.append(f"  {json.dumps(mode)}: {text}")
        lines.append(f" {json.dumps(program, ensure_ascii=False)}: {{\n" + ",\n".join(shown) + "\n }")
    GOLDEN.mkdir(exist_ok=True)
    (GOLDEN / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def judged(programs: list[Program], modes: list[str]) -> dict[str, Any]:
    """The judgements of programs, in each mode."""
    jobs = [(p, mode) for p in programs for mode in modes]
    with ThreadPoolExecutor(JOBS) as pool:
        found = list(pool.map(lambda job: run(job[0], MODES[job[1]]), jobs))
    results: dict[str, Any] = {p.name: {} for p in programs}
    for (program, mode), one in zip(jobs, found):
        results[program.name][mode] = one
    return results


def difference(old: Any, new: Any) -> list[str]:
    """The judgements that are gone (-) and those that are new (+)."""
    lines = lambda found: (
        [found] if isinstance(found, str) else [json.dumps(j, ensure_ascii=False) for j in found or ()]
    )
    before, after = lines(old), lines(new)
    return [f"- {line}" for line in before if line not in after] + [f"+ {line}" for line in after if line not in before]


# ---------------------------------------------------------------- how much is right


def fault(case: harness.Case, flags: tuple[str, ...]) -> str:
    """What is wrong with the report on a case; empty if it is right."""
    with tempfile.TemporaryDirectory() as folder:
        program = harness.write(case, Path(folder))
        plain = harness.run([str(program)], program.parent)
        return harness.verify(case, program, plain) or harness.diagnose(case, program, plain, flags)


def score(name: str, programs: list[Program], modes: list[str]) -> list[str]:
    """Lines that say how many of a set are right, and which are not."""
    known = [p for p in programs if p.case is not None]
    lines = []
    for mode in modes:
        with ThreadPoolExecutor(JOBS) as pool:
            faults = list(pool.map(lambda p: fault(p.case, MODES[mode]), known))
        healthy = [f for p, f in zip(known, faults) if p.case.expect == "clean"]
        sick = [f for p, f in zip(known, faults) if p.case.expect != "clean"]
        right = f"{sum(not f for f in sick)}/{len(sick)} faults right"
        lines.append(
            f"{name:12} {mode:10} {right}, {sum(map(bool, healthy))} of {len(healthy)} healthy programs warned"
        )
        lines += [f"    {p.name}: {f}" for p, f in zip(known, faults) if f]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--score", action="store_true")
    parser.add_argument("--set", dest="name", help=f"one of {', '.join([*sets(), 'catalogue'])}")
    parser.add_argument("--mode", choices=MODES, help="one of both")
    parser.add_argument("-k", default="", metavar="TEXT")
    options = parser.parse_args()
    modes = [options.mode] if options.mode else list(MODES)
    differs = False
    for name, programs in sets().items():
        if options.name not in (None, name):
            continue
        chosen = [p for p in programs() if options.k in p.name]
        if options.score:
            print("\n".join(score(name, chosen, modes)), flush=True)
        else:
            differs |= _compare(name, judged(chosen, modes), options.write)
    if options.name in (None, "catalogue") and not options.score:
        found = {p: {"default": j} for p, j in catalogue() if options.k in p}
        differs |= _compare("catalogue", found, options.write)
    return int(differs and not options.write)


def _compare(name: str, new: dict[str, Any], renew: bool) -> bool:
    """Prints how judgements differ from the golden ones; renews them if asked."""
    old, differs = read(name), False
    for program, modes in new.items():
        for mode, found in modes.items():
            if lines := difference(old.get(program, {}).get(mode), found):
                differs = True
                print(f"{name}: {program} ({mode})", textwrap.indent("\n".join(lines), "  "), sep="\n", flush=True)
    if renew:
        merged = {p: old.get(p, {}) | m for p, m in new.items()}
        write(name, {p: m for p, m in old.items() if p not in new} | merged)
    return differs


if __name__ == "__main__":
    sys.exit(main())
