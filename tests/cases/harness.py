"""Run case scripts whose root cause is known, and judge what dtypetrace says about them.

A case is one runnable script. Its docstring carries `key: value` lines, its code end-of-line markers:

    # BORN       the line on which the wrong dtype came into being
    # COLLIDES   the line of the case from which the refusing op is reached

    title     one line
    expect    collision   plain Python raises; the first finding is a collision that names BORN and COLLIDES
              silent:KIND plain Python exits 0; the first finding of severity warning or more is of that KIND and names BORN
              clean       plain Python exits 0; no finding of severity warning or more, at most ten notes
    born_in   FILE_SUFFIX:FUNCTION, where the dtype is born inside a library
    culprit   the culprit's parameter or buffer name, as in named_parameters() of the outermost module called
    needs     comma-separated importable modules
    fix_at    further lines that a good patch may change, beside the statements of BORN and COLLIDES
    modes     what the case is fit for: diagnose, continue (healed, run to its end), fix (patched); all three unless it says so

Each run is of a copy named program.py in an empty folder with the markers blanked, so nothing can read the answer.

    python tests/cases/harness.py [-k TEXT] [PATH ...]             the cases themselves, under plain Python
    python tests/cases/harness.py --diagnose [-k TEXT] [PATH ...]  what dtypetrace says of them
    python tests/cases/harness.py --continue ...                   healed: the script runs to its end, each cause is reported once
    python tests/cases/harness.py --dry ...                        in a dry run: the first finding is that of a real run
    python tests/cases/harness.py --checked ...                    what-if shows each proposed change clean
    python tests/cases/harness.py --advice ...                     the diffs that are shown, followed one after the other: the script then ends well
    python tests/cases/harness.py --fix ...                        patched: plain Python ends well, and nothing else was changed
"""
from __future__ import annotations

import argparse
import ast
import difflib
import functools
import importlib.util
import io
import json
import os
import re
import sys
import tempfile
import tokenize
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
import warm

ROOT = HERE.parents[1]
SERIOUS = ("error", "warning")
TIMEOUT = 180
MOST_RUNS = 3
"""Of `fix`: one healed, the others patched. One more compares the steps of the program as it is with higher precision, only
where those of a patch lose something: as in a program that trains bfloat16 weights."""
COMPARED = "the healed run again, now with this check"


@dataclass(frozen=True)
class Case:
    path: Path
    meta: dict[str, str]
    text: str  # without its markers
    born: tuple[int, ...]
    collides: tuple[int, ...]

    @property
    def expect(self) -> str:
        return self.meta["expect"]

    @property
    def missing(self) -> list[str]:
        """Modules that the case needs and this interpreter lacks."""
        needs = re.findall(r"[\w.]+", self.meta.get("needs", ""))
        return [name for name in needs if importlib.util.find_spec(name) is None]


@dataclass(frozen=True)
class Run:
    status: int
    stdout: str
    stderr: str

    @property
    def last(self) -> str:
        """The last line of stderr: of a traceback, the exception's own."""
        return next((line.strip() for line in reversed(self.stderr.splitlines()) if line.strip()), "")


@functools.cache
def load(path: Path) -> Case:
    """Read a case; the tokenizer, not a search, finds the markers, which a string may contain too."""
    source = path.read_text()
    meta = dict(re.findall(r"^(\w+):[ \t]*(.+?)[ \t]*$", ast.get_docstring(ast.parse(source)) or "", re.M))
    lines, born, collides = source.splitlines(keepends=True), [], []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and re.search(r"\b(BORN|COLLIDES)\b", token.string):
            row, column = token.start
            if re.match(r"#\s*BORN\b", token.string):
                born.append(row)
            if re.search(r"\bCOLLIDES\b", token.string):
                collides.append(row)
            lines[row - 1] = lines[row - 1][:column].rstrip() + "\n"
    return Case(path.resolve(), meta, "".join(lines), tuple(born), tuple(collides))


def find(paths: list[Path] | None = None, text: str = "") -> list[Path]:
    """The case files under some paths (by default all), whose path contains the text."""
    files = (file for path in paths or [HERE] for file in (path.rglob("case_*.py") if path.is_dir() else [path]))
    return sorted(file for file in files if text in str(file))


def run(arguments: list[str], folder: Path) -> Run:
    """Run a script or module in a folder, with the checkout importable and nothing asked of the network."""
    models = re.search(r"\b(diffusers|transformers|peft)\b", (folder / "program.py").read_text()) is not None
    ended = warm.run(arguments, folder, models=models, timeout=TIMEOUT)
    return Run(ended.returncode, ended.stdout, ended.stderr)


def write(case: Case, folder: Path) -> Path:
    program = folder / "program.py"
    program.write_text(case.text)
    return program


def same(file: str | None, program: Path) -> bool:
    return bool(file) and os.path.realpath(file) == os.path.realpath(program)


def verify(case: Case, program: Path, plain: Run) -> str:
    """What is wrong with the case itself, judged by its plain run; empty if nothing is."""
    if case.expect == "clean" or case.expect.startswith("silent:"):
        if plain.status:
            return f"plain Python exits {plain.status}: {plain.last}"
        return ""  # a silent case without BORN is about a setting, which has no line of birth
    if case.expect != "collision":
        return f"expect is {case.expect!r}, neither collision, silent:KIND nor clean"
    lines = [int(line) for file, line in re.findall(r'File "([^"]+)", line (\d+)', plain.stderr) if same(file, program)]
    if plain.status == 0:
        return "plain Python does not raise"
    if not set(lines) & set(case.collides):
        return f"the traceback goes through lines {lines}, not COLLIDES {case.collides}: {plain.last}"
    return "" if case.born or "born_in" in case.meta else "neither BORN nor born_in"


def lines_in(place: dict, program: Path) -> list[int]:
    """Lines of the program among a Place's frames, innermost first; the place itself leads where its stack does not repeat it."""
    frames = list(place.get("stack") or [])
    if not frames or (frames[0].get("file"), frames[0].get("line")) != (place.get("file"), place.get("line")):
        frames.insert(0, place)
    return [frame["line"] for frame in frames if same(frame.get("file"), program)]


def born_right(case: Case, finding: dict, program: Path) -> bool:
    """Whether the finding's culprit is the right one and its origin the right line (or library function)."""
    culprit = finding.get("culprit") or {}
    origin = culprit.get("origin") or {}
    if wanted := case.meta.get("culprit"):
        names = [str(culprit.get("name")), str(origin.get("name"))]
        if not any(name == wanted or name.endswith("." + wanted) for name in names):
            return False
    if where := case.meta.get("born_in"):
        suffix, function = where.rsplit(":", 1)
        return str(origin.get("file", "")).endswith(suffix) and str(origin.get("function", "")).split(".")[-1] == function
    return bool(lines := lines_in(origin, program)) and lines[0] in case.born


def said(finding: dict, program: Path) -> str:
    """One finding in words short enough for an assertion's message."""
    culprit = finding.get("culprit") or {}
    origin = culprit.get("origin") or {}
    return (
        f"{finding.get('severity')} {finding.get('kind')} at lines {lines_in(finding.get('site') or {}, program)}, blames {culprit.get('name')!r}, "
        f"{origin.get('kind')} {origin.get('name') or ''} at {Path(str(origin.get('file'))).name}:{origin.get('line')}"
    )


def invalid(file: Path) -> list[str]:
    """How a written report differs from its schema; nothing where jsonschema is not installed."""
    if importlib.util.find_spec("jsonschema") is None:
        return []
    import validated

    return validated.faults(json.loads(file.read_text()))


def diagnose(case: Case, program: Path, plain: Run, flags: tuple[str, ...] = ()) -> str:
    """What is wrong with dtypetrace's report on the case, or differs from its plain run; empty if nothing is."""
    out = program.parent / "out.json"
    traced = run(["-m", "dtypetrace", "run", *flags, "--json", str(out), str(program)], program.parent)
    try:
        found = json.loads(out.read_text())["findings"]
        faults = invalid(out)
    except (OSError, ValueError, KeyError) as error:
        return f"no JSON report ({error!r}), exit {traced.status}: {traced.last}"
    if faults:
        return f"not as its schema says: {faults[0]}"
    if traced.status != plain.status:
        return f"not transparent: exit {traced.status} for {plain.status}: {traced.last}"
    if traced.stdout != plain.stdout:
        return f"not transparent: stdout {traced.stdout!r} for {plain.stdout!r}"
    if plain.status and plain.last not in map(str.strip, traced.stderr.splitlines()):
        return f"the exception's own line is gone: {plain.last}"
    if case.expect == "clean":
        serious = [finding for finding in found if finding.get("severity") in SERIOUS]
        if serious:
            return f"{len(serious)} false findings: " + "; ".join(said(finding, program) for finding in serious[:3])
        return f"{len(found)} notes" if len(found) > 10 else ""
    if case.expect.startswith("silent:"):
        serious = [finding for finding in found if finding.get("severity") in SERIOUS]
        shown = "; ".join(said(finding, program) for finding in serious[:3])
        right = serious and serious[0].get("kind") in case.expect.partition(":")[2].split("|")
        if "--reference" in flags:  # which has to find it by measurement alone
            right = right and not any("the reference found no damage" in note for note in serious[0].get("notes", ()))
        right = right and (born_right(case, serious[0], program) if case.born or "born_in" in case.meta else True)
        return "" if right and len(serious) <= 2 else f"truth is {case.expect} born {case.meta.get('born_in') or case.born}; said {shown or 'nothing'}"
    if not found or found[0].get("kind") != "collision":
        return f"the first finding is {found[0].get('kind') if found else 'missing'}"
    faults = []
    if not born_right(case, found[0], program):
        faults.append(f"born {case.meta.get('born_in') or case.born} {case.meta.get('culprit', '')}".rstrip())
    if not set(lines_in(found[0].get("site") or {}, program)) & set(case.collides):
        faults.append(f"collides {case.collides}")
    return f"truth is {' and '.join(faults)}; said {said(found[0], program)}" if faults else ""


def fixable(case: Case) -> set[int]:
    """The lines that a good patch may change: the statements of BORN and COLLIDES, and fix_at."""
    lines = {*case.born, *case.collides, *map(int, re.findall(r"\d+", case.meta.get("fix_at", "")))}
    compound = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.For, ast.While, ast.With, ast.If, ast.Try)
    for node in ast.walk(ast.parse(case.text)):
        if isinstance(node, ast.stmt) and not isinstance(node, compound) and lines & set(range(node.lineno, node.end_lineno + 1)):
            lines |= set(range(node.lineno, node.end_lineno + 1))
    return lines


def findings_of(out: Path) -> list[dict] | None:
    try:
        return json.loads(out.read_text())["findings"]
    except (OSError, ValueError, KeyError):
        return None


def heal(case: Case, program: Path) -> str:
    """What is wrong with a healed run; empty if it came to its end and reported each cause once."""
    out = program.parent / "out.json"
    ended = run(["-m", "dtypetrace", "run", "--autofix", "--json", str(out), str(program)], program.parent)
    found = findings_of(out)
    if found is None or ended.status:
        return f"exit {ended.status}: {ended.last}"
    hits = [f for f in found if f.get("kind") == "collision"]
    wrong = [said(f, program) for f in hits if not born_right(case, f, program)]
    seen = {line for f in hits for line in lines_in((f.get("culprit") or {}).get("origin") or {}, program)[:1]}
    if wrong or set(case.born) - seen:
        return f"not reported: {sorted(set(case.born) - seen)}, blamed elsewhere: {wrong[:3]}"
    return "" if 0 < len(hits) <= max(1, len(case.born)) else f"{len(hits)} findings for {len(case.born)} causes"


def fix(case: Case, program: Path) -> str:
    """What is wrong with the patch that `fix --write` makes; empty if it repairs the script and changes nothing else."""
    before, command = program.read_text(), ["-m", "dtypetrace", "fix", "--write", str(program)]
    ended = run(command, program.parent)
    after = program.read_text()
    if after == before:
        return f"nothing was changed, exit {ended.status}: {ended.last}"
    made = re.findall(r"^run \d+: .*", ended.stderr, re.M)
    if (runs := sum(COMPARED not in line for line in made)) > MOST_RUNS:
        return f"fix made {runs} runs"
    if fault := elsewhere(case, before, after):
        return fault
    if (plain := run([str(program)], program.parent)).status:
        return f"the patched script still exits {plain.status}: {plain.last}"
    run(["-m", "dtypetrace", "run", "--json", str(out := program.parent / "out.json"), str(program)], program.parent)
    found = findings_of(out)
    if found is None or any(f.get("kind") == "collision" for f in found):
        return "the patched script still collides, or there is no report"
    run(command, program.parent)
    return "" if program.read_text() == after else "a second fix changed it again"


def elsewhere(case: Case, before: str, after: str) -> str:
    """Which lines were changed that a good patch leaves alone; empty if none were."""
    old, new = before.splitlines(), after.splitlines()
    allowed = fixable(case) if "born_in" not in case.meta else set(range(len(old) + 2))
    for tag, a, b, *_ in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        touched = set(range(a + 1, b + 1)) or {a, a + 1}
        if tag != "equal" and not (touched <= allowed or a == b and touched & allowed):
            return f"changed lines {sorted(touched - allowed)}, may change {sorted(allowed)}"
    return ""


def edited(text: str, edits: list[dict]) -> str:
    """A program's text with the edits of a report made, last first."""
    lines = text.splitlines(keepends=True)
    for edit in sorted(edits, key=lambda e: (e["start"], e["end"]), reverse=True):
        (row, column), (end, stop) = edit["start"], edit["end"]
        span, rest = "".join(lines[row - 1 : end]), len(lines[end - 1]) - stop + 1
        assert span[column - 1 : len(span) - rest] == edit["before"], (edit, span)
        lines[row - 1 : end] = [span[: column - 1] + edit["after"] + span[len(span) - rest :]]
    return "".join(lines)


def advice(case: Case, program: Path) -> str:
    """What is wrong with the diffs that are shown for the collisions, each followed as it stands, one round more than there
    are faults; empty if the script then ends well, with no serious finding that the healed script had not."""
    out, before = program.parent / "out.json", case.text
    run(["-m", "dtypetrace", "run", "--autofix", "--json", str(out), str(program)], program.parent)
    known = {f["kind"] for f in findings_of(out) or ()} | {"collision"}
    for _ in range(max(1, len(case.born)) + 2):
        run(["-m", "dtypetrace", "run", "--json", str(out), str(program)], program.parent)
        serious = [f for f in findings_of(out) or () if f.get("severity") in SERIOUS]
        if worse := {f["kind"] for f in serious} - known:
            return f"new findings {sorted(worse)}"
        refused = next((f for f in serious if f["kind"] == "collision"), None)
        if refused is None:
            plain = run([str(program)], program.parent)
            return f"ends with {plain.status}: {plain.last}" if plain.status else elsewhere(case, before, program.read_text())
        edits = (refused.get("fix") or {}).get("edits")
        if not edits:
            return f"words only: {(refused.get('fix') or {}).get('why')}"
        if any(not same(e["file"], program) for e in edits):
            return f"an edit of another file: {edits[0]['file']}"
        program.write_text(edited(program.read_text(), edits))
    return "not done after one round more than there are faults"


def typed(changes: list[str], lines: list[str]) -> list[str]:
    """A program's lines after a reader has typed the changes that a help lists; line numbers are those before."""
    new = dict(enumerate(lines, 1))
    indent = lambda number: re.match(r"\s*", lines[number - 1])[0]
    for change in changes:
        place, number, what = re.fullmatch(r"([^(:]+ \(|)program\.py:(\d+)\)?: (.*)", change, re.S).groups()
        row = int(number)
        if swap := re.fullmatch(r"replace `(.+)` with `(.+)`", what, re.S):
            before, after = swap.groups()
            rows = range(row, row + before.count("\n") + 1)
            text = "".join(new[n] for n in rows)
            assert before in text, (before, text)
            new |= dict.fromkeys(rows, "") | {row: text.replace(before, after)}
        elif region := re.fullmatch(r"call `(\S+)\(\.\.\.\)` under `(.*)`", what):
            call, entered = region.groups()
            assert call + "(" in lines[row - 1]
            new[row] = indent(row) + f"with {entered}: " + new[row].lstrip()
        elif gone := re.fullmatch(r"remove `(.+)`", what):
            assert new[row].strip().partition("#")[0].strip() == gone[1], (gone[1], new[row])
            new[row] = ""
        else:
            line = indent(row) + what.removeprefix("add ").strip("`")
            new[row] = new[row] + line + "\n" if place.startswith("after") else line + "\n" + new[row]
    return list(new.values())


def followed(case: Case, program: Path, rounds: int = 3) -> str:
    """What is left after the advice of the first serious finding was followed, round after round; empty if nothing is."""
    out, said_first = program.parent / "out.json", []
    for _ in range(rounds + 1):
        run(["-m", "dtypetrace", "run", "--json", str(out), str(program)], program.parent)
        serious = [f for f in findings_of(out) or () if f.get("severity") in SERIOUS]
        if not serious:
            return "" if said_first else "nothing was said"
        fix, lines = serious[0].get("fix") or {}, program.read_text().splitlines(keepends=True)
        said_first.append(f"{serious[0]['code']}: {fix.get('why')}")
        for edit in sorted(fix.get("edits") or (), key=lambda e: e["start"], reverse=True):
            (row, column), (end, stop) = edit["start"], edit["end"]
            rest = lines[end - 1][stop - 1 :] if end <= len(lines) else ""
            lines[row - 1 : end] = [lines[row - 1][: column - 1] + edit["after"] + rest]
        program.write_text("".join(lines if fix.get("edits") else typed(fix.get("lines") or [], lines)))
    return f"not clean after {rounds} rounds: {said_first}"


def first(case: Case, program: Path, *flags: str) -> tuple[str, list[int], str] | None:
    """The first serious finding of a run: its code, the program's lines at which the culprit was born, and its dtype; None without one."""
    out = program.parent / "out.json"
    run(["-m", "dtypetrace", "run", *flags, "--json", str(out), str(program)], program.parent)
    serious = [f for f in findings_of(out) or () if f.get("severity") in SERIOUS]
    out.unlink(missing_ok=True)
    if not serious:
        return None
    culprit = serious[0].get("culprit") or {}
    return serious[0]["code"], lines_in(culprit.get("origin") or {}, program), str(culprit.get("dtype"))


def dry(case: Case, program: Path) -> str:
    """How the first finding of a dry run differs from that of a real one; empty if it does not."""
    real, found = first(case, program, "--autofix"), first(case, program, "--dry-run")
    return "" if real is not None and found == real else f"real {real}, dry {found}"


def checked(case: Case, program: Path) -> str:
    """Which change that is proposed for a real run is not shown clean by what-if, at the refused call and elsewhere; empty
    if all that are shown are."""
    out = program.parent / "out.json"
    run(["-m", "dtypetrace", "run", "--autofix", "--json", str(out), str(program)], program.parent)
    found = [f for f in findings_of(out) or () if f.get("kind") == "collision" and (f.get("fix") or {}).get("edits")]
    unclean = [f for f in found if sum(text.startswith("dtype rules") for text in f["fix"].get("checked", ())) < 2]
    return "; ".join(f"{f['code']} {f['fix'].get('checked')} {f['fix']['edits'][0].get('after')}" for f in unclean)


def in_mode(path: Path, mode: str) -> str:
    """Judge one case in the mode continue or fix; empty if all is right, or the case has no such mode."""
    case = load(path)
    if case.expect != "collision" or mode not in case.meta.get("modes", "continue,fix") + ",dry,checked,advice":
        return ""
    with tempfile.TemporaryDirectory() as folder:
        return {"continue": heal, "fix": fix, "dry": dry, "checked": checked, "advice": advice}[mode](case, write(case, Path(folder)))


def judge(path: Path, *, traced: bool, flags: tuple[str, ...] = ()) -> str:
    """Verify one case and, if traced, diagnose it, with one plain run for both; empty if all is right."""
    case = load(path)
    with tempfile.TemporaryDirectory() as folder:
        program = write(case, Path(folder))
        plain = run([str(program)], program.parent)
        if fault := verify(case, program, plain):
            return "the case itself is wrong: " + fault
        return diagnose(case, program, plain, flags) if traced else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--diagnose", action="store_true")
    parser.add_argument("--continue", dest="mode", action="store_const", const="continue")
    parser.add_argument("--fix", dest="mode", action="store_const", const="fix")
    parser.add_argument("--dry", dest="mode", action="store_const", const="dry")
    parser.add_argument("--checked", dest="mode", action="store_const", const="checked")
    parser.add_argument("--advice", dest="mode", action="store_const", const="advice")
    parser.add_argument("-k", default="", metavar="TEXT")
    options = parser.parse_args()

    def one(path: Path) -> tuple[Path, str]:
        missing = load(path).missing
        return path, f"not installed: {', '.join(missing)}" if missing else in_mode(path, options.mode) if options.mode else judge(path, traced=options.diagnose)

    files = find(options.paths, options.k)
    right = 0
    for path, fault in map(one, files):
        right += not fault
        if fault:
            print(f"FAIL {os.path.relpath(path, HERE)}: {fault}", flush=True)
    print(f"{right}/{len(files)} right")
    return 0 if files and right == len(files) else 1


if __name__ == "__main__":
    sys.exit(main())
