"""The forms for other programs: GitHub's annotations, SARIF, and the JSON report's published schema."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import recordings
import validated
from recordings import RecordingBuilder

from dtypetrace import report, saved
from dtypetrace.commands import arguments
from dtypetrace.records import Frame, Place, Recording
from dtypetrace.render import annotations, sarif
from dtypetrace.results import conclude

ROOT = Path(__file__).parents[2]
RUN = [sys.executable, "-m", "dtypetrace"]


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """A float32 tensor meets float16 weights; the program lies in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    b = RecordingBuilder(file=str(tmp_path / "sub" / "train.py"))
    x = b.made("float32", text="x = «torch.ones(4, 4)»")
    w = b.made("float16", "cast", explicit=True, text="net = «net.half()»").as_parameter("net.weight")
    b.refused("linear", x, w, text="y = «net(x)»")
    return conclude(b.recording)


# ---------------------------------------------------------------- github


def test_an_annotation_stands_at_the_birth(judged):
    first, summary = report.FORMATS["github"](judged.recording, judged.findings).split("\n")
    head, _, text = first.removeprefix("::").partition("::")
    kind, _, properties = head.partition(" ")
    assert kind == "error"
    place = dict(p.split("=") for p in properties.split(","))
    assert place == {
        "file": "sub/train.py", "line": "1", "endLine": "1", "col": "5", "endColumn": "21", "title": "dtypetrace DT101"
    }  # fmt: skip
    assert "%0Afloat32 is born here: ones() without a dtype%0A" in text
    assert "%0Asub/train.py:3: float32" in text and "%0Ahelp: " in text
    assert summary == "1 error in 1 step (0 ops)"


def test_files_are_named_from_the_checkout(judged, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path / "sub"))
    assert "file=train.py," in report.FORMATS["github"](judged.recording, judged.findings)
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path / "elsewhere"))
    assert f"file={tmp_path}/sub/train.py," in report.FORMATS["github"](judged.recording, judged.findings)


def test_a_finding_without_a_line_is_annotated_without_one():
    text = annotations.github(Recording(not_seen=("other threads",)), [recordings.bare("plan")])
    assert text.startswith(
        "::notice title=dtypetrace DT401::autocast is on and the model is float16\nnot seen: other threads\n"
    )


def test_the_line_is_the_users_own_where_there_is_one():
    own, library = Frame("/p/a.py", 3, "f", True), Frame("/lib/b.py", 4, "g", False)
    assert annotations.lead([(library, "made"), (own, "meets")]) == (own, "meets")
    assert annotations.lead([(library, "made")]) == (library, "made")
    assert annotations.lead([(Frame("", 0, "", True), "x")]) is None


def test_text_of_the_program_starts_no_command():
    """A newline or a colon in a module's name would else begin a command, or a property of one."""
    recording, findings = recordings.hostile("a\n::error::b,c=d%0Ae\x1b[31m")
    lines = annotations.github(recording, findings).split("\n")
    assert len([line for line in lines if line.startswith("::")]) == len(findings)
    head = lines[0].removeprefix("::").partition("::")[0]
    assert "\x1b" not in lines[0] and "c=d" not in head.replace("%2Cc=d", "")


# ---------------------------------------------------------------- sarif and json


def test_a_sarif_log_has_the_birth_the_flow_and_the_edit(judged):
    log = json.loads(report.FORMATS["sarif"](judged.recording, judged.findings))
    run = log["runs"][0]
    (result,) = run["results"]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "DT101"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "sub/train.py", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 1, "startColumn": 5, "endLine": 1, "endColumn": 21}
    steps = result["codeFlows"][0]["threadFlows"][0]["locations"]
    assert [s["location"]["physicalLocation"]["region"]["startLine"] for s in steps] == [1, 3]
    assert validated.faults("sarif", log) == []


def test_edits_are_replacements_by_file(judged):
    recording, (found,) = recordings.many(3, findings=1)
    result = sarif.log(recording, [found])["runs"][0]["results"][0]
    (change,) = result["fixes"][0]["artifactChanges"]
    assert change["replacements"] == [
        {
            "deletedRegion": {"startLine": 3, "startColumn": 5, "endLine": 3, "endColumn": 6},
            "insertedContent": {"text": "y"},
        }
    ]


def test_a_fingerprint_outlives_lines_that_are_added_above(judged):
    (found,) = judged.findings
    moved = dataclasses.replace(found, flow=tuple(dataclasses.replace(s, place=_lower(s.place)) for s in found.flow))
    lines = {
        file: {str(int(n) + 7): text for n, text in own.items()} for file, own in judged.recording.sources.lines.items()
    }
    below = dataclasses.replace(judged.recording, sources=dataclasses.replace(judged.recording.sources, lines=lines))
    marks = [
        sarif.log(r, [f])["runs"][0]["results"][0]["partialFingerprints"]
        for r, f in ((judged.recording, found), (below, moved))
    ]
    assert marks[0] == marks[1]


def _lower(place: Place) -> Place:
    return Place(
        tuple(dataclasses.replace(f, line=f.line + 7, end_line=(f.end_line or f.line) + 7) for f in place.stack)
    )


@pytest.mark.parametrize("text", ["net", "</script>\"'&", "a b\n%", "‮rtl", "\ud800"])
def test_both_schemas_hold_for_any_text(text):
    validated.check(*recordings.hostile(text))


@pytest.mark.parametrize(
    "make", [lambda: recordings.many(40), lambda: (Recording(), [recordings.bare("plan")]), lambda: (Recording(), [])]
)
def test_both_schemas_hold(make):
    validated.check(*make())


def test_the_published_schema_is_what_the_records_are():
    from tools import report_schema

    assert json.loads(report.SCHEMA_FILE.read_text("utf-8")) == report_schema.schema(), "python -m tools.report_schema"


def test_the_schema_refuses_a_wrong_report():
    recording, findings = recordings.many(3)
    data = report.to_json(recording, findings)
    for change in ({"schema": 2}, {"more": 1}, {"findings": [{**data["findings"][0], "severity": "fatal"}]}):
        assert validated.faults("json", {**data, **change})
    assert validated.faults("json", {k: v for k, v in data.items() if k != "operators"})
    assert validated.faults("sarif", {"version": "2.1.0", "runs": [{"tool": {}}]})


# ---------------------------------------------------------------- the options


def test_the_options_name_the_formats_that_there_are():
    assert set(arguments.FORMATS) == set(report.FORMATS)


def show(*words, cwd):
    return subprocess.run(
        [*RUN, *words], cwd=cwd, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True, timeout=60
    )


def test_show_prints_and_writes_each_form(judged, tmp_path):
    saved.save(tmp_path / "run.trace", judged)
    log = show("show", "run.trace", "--format", "sarif", cwd=tmp_path)
    assert json.loads(log.stdout)["version"] == "2.1.0"
    ended = show("show", "run.trace", "--format", "github", "--output", "out.txt", cwd=tmp_path)
    assert ended.stdout.startswith("error[DT101]")
    assert (tmp_path / "out.txt").read_text().startswith("::error ")
