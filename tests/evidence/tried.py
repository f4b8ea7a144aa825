"""How many of the decisions that findings name were tried, in the sets of silent faults, and what the trials say.

    python tests/evidence/tried.py                       all sets
    python tests/evidence/tried.py --set third -k TEXT --mode reference
    python tests/evidence/tried.py --follow --set fifth      what is left of the damage when the diff that is shown is typed
    python tests/evidence/tried.py --follow --every 8        of one program in eight

A finding about damaged values says what becomes of the damage without the rounding that it blames. Printed for each
silent case whose finding was tried or should have been: whether the line that the author marked is named, and the figure.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "cases"), str(HERE.parent)]
import harness  # noqa: E402
import judgements  # noqa: E402

SETS = [name for name in judgements.sets() if name != "notebooks"]  # no line is marked in them
KINDS = frozenset({"overflow", "underflow", "lost-update", "precision-loss", "zero-gradient", "downcast"})
"""Findings about damaged values."""
NOT_TRIED = {"missing": "no trial at these lines"}


def decisions(case: harness.Case, flags: tuple[str, ...]) -> list[tuple[str, str, dict | None]]:
    """The warnings about damaged values of one case: code, which line is named, and what was tried."""
    with tempfile.TemporaryDirectory() as folder:
        program = harness.write(case, Path(folder))
        out = Path(folder) / "out.json"
        harness.run(["-m", "dtypetrace", "run", *flags, "--json", str(out), str(program)], Path(folder))
        found = [f for f in harness.findings_of(out) or [] if f["severity"] != "note" and f["kind"] in KINDS]
        setting = not case.born and "born_in" not in case.meta  # which has no line of birth
        line = lambda f: (
            "marked line"
            if setting or harness.born_right(case, f, program)
            else "line that the marked one calls"
            if passes(case, f, program)
            else "another line"
        )
        return [(f["code"], line(f), f["tried"] or NOT_TRIED) for f in found]


def passes(case: harness.Case, finding: dict, program: Path) -> bool:
    """Whether a marked line calls the function or the class in which the named line stands: authors mark either, where
    the one passes the dtype that the other takes (the ninth set's all mark the call)."""
    named = harness.lines_in((finding.get("culprit") or {}).get("origin") or {}, program)[:1]
    nodes = [*ast.walk(ast.parse(case.text))]
    around = {
        n.name for n in nodes if isinstance(n, _DEFINES) and named and n.lineno <= named[0] <= (n.end_lineno or 0)
    }
    calls = [
        n for n in nodes if isinstance(n, ast.Call) and any(n.lineno <= b <= (n.end_lineno or 0) for b in case.born)
    ]
    return any((ast.unparse(call.func).rpartition(".")[2]) in around for call in calls)


_DEFINES = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef


def followed(case: harness.Case) -> str:
    """What becomes of a program whose first diff is typed as it is shown: `removed`, where neither a run nor a run with
    a reference finds damaged values any more; `harms`, where it ends in another way or has a new kind of finding."""
    with tempfile.TemporaryDirectory() as folder:
        program = harness.write(case, Path(folder))
        ends = harness.run([str(program)], Path(folder)).status
        before = [f for mode in judgements.MODES.values() for f in serious(program, mode)]
        edits = next((f["fix"]["edits"] for f in before if f["kind"] in KINDS and (f["fix"] or {}).get("edits")), None)
        if edits is None:
            return "no diff"
        program.write_text(harness.edited(program.read_text(), edits))
        shown = "; ".join(f"{e['start'][0]}: {e['before']} -> {e['after']}" for e in edits)
        if (now := harness.run([str(program)], Path(folder))).status != ends:
            return f"harms: {shown}: ends with {now.status}: {now.last}"
        after = [f for mode in judgements.MODES.values() for f in serious(program, mode)]
        if new := {f["kind"] for f in after} - {f["kind"] for f in before} - KINDS:
            return f"harms: {shown}: {sorted(new)}"
        left = [f"{f['code']} at {f['site']['line']}" for f in after if f["kind"] in KINDS]
        return f"left: {shown}: {left}" if left else f"removed: {shown}"


def serious(program: Path, flags: tuple[str, ...]) -> list[dict]:
    """The warnings and errors of one run."""
    out = program.parent / "out.json"
    harness.run(["-m", "dtypetrace", "run", *flags, "--json", str(out), str(program)], program.parent)
    return [f for f in harness.findings_of(out) or [] if f["severity"] in harness.SERIOUS]


def said(tried: dict) -> str:
    """The trial in a few words."""
    if tried["missing"]:
        return f"not tried: {tried['missing']}"
    gone = "gone" if tried["after"] <= 0.25 * tried["before"] else "STAYS"
    return f"{gone}: {tried['before']:.3g} -> {tried['after']:.3g} ({tried['unit']}, {tried['roundings']} left out)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", dest="name", choices=SETS)
    parser.add_argument("--mode", choices=judgements.MODES, default="default")
    parser.add_argument("-k", default="", metavar="TEXT")
    parser.add_argument("--follow", action="store_true")
    parser.add_argument("--every", type=int, default=1, metavar="N")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for name in (options.name,) if options.name else SETS:
        silent = [p for p in judgements.sets()[name]() if p.case is not None and p.case.expect.startswith("silent")]
        for program in [p for p in silent if options.k in p.name][:: options.every]:
            if options.follow:
                left = followed(program.case)
                counts[left.partition(":")[0]] += 1
                print(f"{name}/{program.name}: {left}", flush=True)
                continue
            for code, line, tried in decisions(program.case, judgements.MODES[options.mode]):
                counts["decisions"] += 1
                counts["tried"] += not tried["missing"]
                counts["gone"] += (gone := said(tried).startswith("gone"))
                counts[f"gone, {line}"] += gone
                counts[line] += 1
                print(f"{name}/{program.name}: {code}, {line}; {said(tried)}", flush=True)
    print("; ".join(f"{what}: {count}" for what, count in counts.items()))


if __name__ == "__main__":
    main()
