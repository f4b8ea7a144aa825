"""dtypetrace names the right line in every case script; cases/harness.py says what a case is and how it is judged.

A case takes three to six seconds: `pytest -n 2 tests/test_cases.py`, or `-k` with a part of a case's name.
"""

import html
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dtypetrace import saved
from dtypetrace.records import Edit
from dtypetrace.records.text import LIVE
from dtypetrace.repair.candidates import BEST, gather
from dtypetrace.source.patch import Patch

sys.path.insert(0, str(Path(__file__).parent / "cases"))
import harness
from samples import one_in, rest

pytestmark = pytest.mark.slow


def name(path: Path) -> str:
    return path.relative_to(harness.HERE).with_suffix("").as_posix()


def sampled() -> list:
    """One in five of the public cases and of those with damage; of the variants and the other healthy programs one in
    eight."""
    paths = harness.find()
    own = [p for p in paths if p.parent != harness.HERE and p.parent.name != "silent"]
    left = {*rest(8, own), *rest(5, [p for p in paths if p not in own])}
    return [pytest.param(p, id=name(p), marks=pytest.mark.exhaustive if p in left else ()) for p in paths]


@pytest.mark.parametrize("path", sampled())
def test_case(path):
    if missing := harness.load(path).missing:
        pytest.skip(f"needs {', '.join(missing)}")
    fault = harness.judge(path, traced=True)
    assert not fault, fault


# `harness.py --continue` and `--fix` take them all
HEALED = "case_multi_three_faults case_checkpoint_recompute"
PATCHED = "case_multi_three_faults case_load_assign_half"


@pytest.mark.parametrize(
    ("stem", "mode"), [(s, "continue") for s in HEALED.split()] + [(s, "fix") for s in PATCHED.split()]
)
def test_a_healed_case_goes_on_and_a_patched_one_is_repaired(stem, mode):
    path = harness.HERE / f"{stem}.py"
    if missing := harness.load(path).missing:
        pytest.skip(f"needs {', '.join(missing)}")
    fault = harness.in_mode(path, mode)
    assert not fault, fault


TRAINING = "case_seed_lora_adamw_underflow case_seed_lora_prodigy case_seed_scaler_bf16_lora case_seed_unscale_fp16"


@pytest.mark.parametrize(
    "stem",
    ["case_seed_lora_sgd", "case_silent_bf16_lost_update"]
    + [pytest.param(stem, marks=pytest.mark.exhaustive) for stem in TRAINING.split()],
)
def test_advice_about_training_is_typed_and_the_run_is_clean_in_three_rounds(stem, tmp_path):
    """Edits are applied, lines of the help are typed as they are printed; then the weights learn."""
    case = harness.load(harness.HERE / f"{stem}.py")
    if case.missing:
        pytest.skip(f"needs {', '.join(case.missing)}")
    program = harness.write(case, tmp_path)
    fault = harness.followed(case, program)
    assert not fault, fault
    assert not (ended := harness.run([str(program)], tmp_path)).status, ended.last


COLLISIONS = [
    path for path in harness.find() if path.parent == harness.HERE and harness.load(path).expect == "collision"
]
ONE_DECISION = "case_latents_lerp case_multi_three_faults"


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=() if p.stem in ONE_DECISION.split() else pytest.mark.exhaustive) for p in COLLISIONS],
    ids=name,
)
def test_run_autofix_fix_and_html_advise_the_same(path, tmp_path):
    """One decision: the first collision's advice is the same in a plain and a healed run, on the page, and in `fix`."""
    case = harness.load(path)
    if case.missing:
        pytest.skip(f"needs {', '.join(case.missing)}")
    program = harness.write(case, tmp_path)
    first = {}
    for flags in ((), ("--autofix",)):
        out = tmp_path / "out.json"
        views = ["--json", str(out), "--html", "page.html", "--save", "run.trace"]
        harness.run(["-m", "dtypetrace", "run", *flags, *views, str(program)], tmp_path)
        (first[flags], *_) = [f for f in harness.findings_of(out) if f["kind"] == "collision"]
    plain, healed = first.values()
    assert plain["fix"]["why"] == healed["fix"]["why"] and plain["fix"]["edits"] == healed["fix"]["edits"]
    page = html.unescape(re.sub(r"<[^>]*>", "", (tmp_path / "page.html").read_text("utf-8")))
    why = plain["fix"]["why"].replace("`", "")
    said = lambda text: text in page or text[:1].upper() + text[1:] in page  # a sentence on the first screen
    assert said(why) or all(map(said, why.split(": ", 1)))  # with its reason as a sentence of its own
    recording = replace(saved.load(tmp_path / "run.trace").recording, text=LIVE)
    problem = gather(recording, Patch())[0]
    edits = [{"before": e["before"], "after": e["after"]} for e in plain["fix"]["edits"]]
    assert [{"before": e.before, "after": e.after} for e in problem.fixes[BEST].edits] == edits


FLIPPED = sorted((harness.HERE / "flipped").glob("case_*.py"))


@pytest.mark.parametrize("path", FLIPPED, ids=name)
def test_flip_moves_the_birth_and_keeps_the_collision(path):
    """The three of a pair are one program: broken on one side, repaired, broken on the other side."""
    flipped, repaired, original = (
        harness.load(harness.HERE / folder / path.name) for folder in ("flipped", "repaired", "")
    )
    assert (original.expect, repaired.expect, flipped.expect) == ("collision", "clean", "collision")

    def marked(case, lines):
        text = case.text.splitlines()
        return {text[line - 1].strip() for line in lines}

    assert flipped.born and not marked(flipped, flipped.born) & marked(original, original.born)
    assert len(flipped.collides) == len(original.collides)


FOLLOWED = "flipped/case_moe_index_put flipped/case_param_new_head"


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=() if name(p) in FOLLOWED.split() else pytest.mark.exhaustive) for p in FLIPPED],
    ids=name,
)
def test_the_diff_that_is_shown_for_a_flipped_case_can_be_followed(path):
    """The other side is broken, so another line is shown; `harness.py --advice` takes every case."""
    if missing := harness.load(path).missing:
        pytest.skip(f"needs {', '.join(missing)}")
    assert not (fault := harness.in_mode(path, "advice")), fault


SILENT = sorted([*harness.HERE.glob("case_silent_*.py"), *(harness.HERE / "silent").glob("case_*.py")])


@pytest.mark.parametrize("path", one_in(12, SILENT, name))
def test_a_diff_that_is_shown_for_silent_damage_leads_to_a_program_that_runs(path, tmp_path):
    case = harness.load(path)
    if case.missing:
        pytest.skip(f"needs {', '.join(case.missing)}")
    program, out = harness.write(case, tmp_path), tmp_path / "out.json"
    watched = ["-m", "dtypetrace", "run", "--json", str(out), str(program)]
    harness.run(watched, tmp_path)
    first = harness.findings_of(out)[0]
    if not first["fix"]["edits"]:
        return  # words
    assert "text" in first["fix"]["checked"]
    patch = Patch(LIVE)
    edits = [Edit(**{**e, "start": tuple(e["start"]), "end": tuple(e["end"])}) for e in first["fix"]["edits"]]
    changes = patch.locate(edits)
    assert len(patch.set(changes)) == len(changes) > 0
    program.write_text(patch.texts[str(program)])
    ended = harness.run(watched, tmp_path)
    again = harness.findings_of(out)
    assert ended.status == 0, ended.last
    changed = [(f["code"], [(e["before"], e["after"]) for e in f["fix"]["edits"]]) for f in (first, *again) if f["fix"]]
    assert changed[0] not in changed[1:]  # a line may have the same mistake twice, for two tensors


def finding(program, line, **other):
    """A right finding about a birth on the given line and a collision on line 9."""
    origin = {"file": str(program), "line": line, "kind": "factory"}
    return {
        "kind": "collision",
        "severity": "error",
        "site": {"file": str(program), "line": 9},
        "culprit": {"name": "x", "origin": origin},
    } | other


@pytest.mark.parametrize(
    ("found", "right"),
    [
        (lambda program: [finding(program, 4)], True),
        (lambda program: [finding(program, 5)], False),
        (lambda program: [finding("/somewhere/else.py", 4)], False),
        (lambda program: [finding(program, 4, site={"file": str(program), "line": 8})], False),
        (lambda program: [finding(program, 4, kind="promotion")], False),
        (lambda program: [finding(program, 5), finding(program, 4)], False),
        (lambda program: [finding(program, 4, culprit=None)], False),
        (lambda program: [], False),
    ],
)
def test_the_judge_refuses_what_is_wrong(found, right, tmp_path, monkeypatch):
    case = harness.Case(tmp_path / "case_x.py", {"expect": "collision"}, "pass\n", born=(4,), collides=(9,))
    program, plain = harness.write(case, tmp_path), harness.Run(1, "out", "Traceback\nRuntimeError: no\n")

    def run(arguments, folder):
        (tmp_path / "out.json").write_text(harness.json.dumps({"findings": found(program)}))
        return plain

    monkeypatch.setattr(harness, "run", run)
    monkeypatch.setattr(harness, "invalid", lambda file: [])  # a made report has only what is judged here
    assert (not harness.diagnose(case, program, plain)) is right
