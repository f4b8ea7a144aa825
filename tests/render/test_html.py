"""The HTML report as data and as text; how it behaves in a browser is test_browser.py's."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html.parser
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import programs
import pytest
import recordings
import warm

from dtypetrace.records import NO_CHANGE, Recording
from dtypetrace.render import cards, console, html_report

KILO = 1000
MASK = """
import torch
unet = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).half()
noisy = torch.ones(2, 3, dtype=torch.float16)
mask = torch.ones(2, 1)
x = torch.cat([noisy, mask], 1)
unet(x)
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return programs.run(tmp_path_factory.mktemp("html"), MASK)


def page(program) -> html_report.Page:
    return html_report.page(program.recording, program.findings)


class Reader(html.parser.HTMLParser):
    """Collects the elements, and the text outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.text = ""
        self.scripts: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else ""
        self.scripts += [""] if tag == "script" else []

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1] += data
        elif not self._inside:
            self.text += data


# ---------------------------------------------------------------- the view


def test_the_headline_is_the_action(program):
    action = page(program).action
    assert action.text.startswith("Change ") and action.text.endswith(" makes float32, but float16 is needed")
    assert action.why == [
        "Give ones() dtype=torch.float16.",
        "unet.0 got a float32 input for its float16 weights.",
    ]
    assert "program.py:6: mat1 and mat2 must have the same dtype" in action.otherwise
    assert page(program).stopped.endswith("program.py:6")
    assert (action.where.line, action.where.column > 1) == (4, True) and os.path.isabs(action.where.file)
    assert page(program).tone == "error"


def test_without_source_the_headline_has_no_code_of_the_program(program):
    shown = html_report.page(program.recording, program.findings, source=False).action
    assert "torch.ones" not in shown.text and shown.changes == [] and shown.where is None
    assert shown.text.endswith(" line 4: give ones() dtype=torch.float16")


def test_lines_that_stay_are_neutral_in_a_diff_and_the_changed_one_is_named(tmp_path):
    text = "import torch\nnet = nn.Linear(4, 4).half()\nx = torch.ones(\n    2,\n    4,\n)\nnet(x)"
    program = programs.run(tmp_path, text)
    (change,) = page(program).action.changes
    first = next(n for n, (sign, _) in enumerate(change.lines) if sign != " ")
    assert first and change.lines[0][0] == change.lines[-1][0] == " "
    assert f" line {change.line}: " in page(program).action.text
    assert program.recording.line(change.path, change.line) == change.lines[first][1]


def test_a_fix_without_an_edit_is_the_headline_and_its_changes_a_list():
    recording, (f,) = recordings.many(20, findings=1)
    lines = ("before f is made (a.py:3): add `g(); h()`", "a.py:4: call `net(...)` under `autocast`")
    listed = replace(f, fix=replace(f.fix, edits=(), why="keep x in float32", lines=lines), exception=None)
    shown = html_report.page(recording, (listed, f)).action
    assert shown.text == "Keep x in float32"
    assert shown.more == f"1 more finding needs its own change: {f.fix.why} (train.py:{f.fix.edits[0].start[0]})"
    assert shown.steps == list(lines)
    idle = replace(f, fix=replace(f.fix, kind=NO_CHANGE))
    assert html_report.page(recording, (listed, idle)).action.more == "1 more finding, nothing to change"


def test_a_finding_that_the_same_lines_mend_needs_no_change_of_its_own():
    recording, (f,) = recordings.many(20, findings=1)
    lines = ("a.py:1: replace `x` with `y`", "a.py:2: replace `z` with `w`")
    both, one = (replace(f, fix=replace(f.fix, edits=(), lines=typed)) for typed in (lines, lines[1:]))
    assert html_report.page(recording, (both, one)).action.more == ""
    assert html_report.page(recording, (one, both)).action.more.startswith("1 more finding needs its own change")


def test_a_removed_line_is_a_diff_of_its_own(tmp_path):
    text = """
    class Compute: dtype = torch.float16
    model, used = nn.Linear(4, 4), []
    for p in model.parameters():
        p.data = p.data.to(Compute.dtype)
        used.append(p)
    optimizer, scaler = torch.optim.SGD(used, 0.1), torch.amp.GradScaler("cpu")
    with torch.autocast("cpu", torch.float16):
        loss = model(torch.ones(2, 4)).float().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    """
    program = programs.run(tmp_path, text)
    (change,) = page(program).action.changes
    assert change.lines == [
        ("-", "    p.data = p.data.to(Compute.dtype)"),
        (" ", "    used.append(p)"),
    ] and change.numbers == [4, 5]
    assert "4 -     p.data = p.data.to(Compute.dtype)" in console.text(program.recording, program.findings)


def test_the_editor_opens_the_first_line_to_change(tmp_path):
    text = """
    model = nn.Linear(4, 4).to(torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = model(torch.ones(2, 4)).float().mean()
    loss.backward()
    torch.optim.SGD(model.parameters(), 0.1).step()
    """
    shown = page(programs.run(tmp_path, text)).action
    assert shown.code == "DT401" and shown.changes[0].lines == [
        ("-", 'with torch.autocast("cpu", dtype=torch.float16):'),
        ("+", 'with torch.autocast("cpu", dtype=torch.bfloat16):'),
    ]
    assert not shown.steps, "the diff says it"
    assert (shown.where.shown.rpartition("/")[2], shown.where.line) == ("program.py:2", 2)
    assert os.path.isabs(shown.where.file), "not where the weights were made, which is line 1"


def test_the_facts_of_the_run_are_a_line(program):
    facts = page(program).facts
    assert any(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", fact) for fact in facts)
    assert any(fact.startswith("torch 2") for fact in facts) and f"{program.recording.meta['ops']:,} ops" in str(facts)


def test_nothing_found_is_said_too(tmp_path):
    shown = page(programs.run(tmp_path, "nn.Linear(2, 2)(torch.ones(1, 2))"))
    assert (shown.action.text, shown.tone, shown.cards) == ("No dtype problem found.", "clean", [])
    assert [t["id"] for t in shown.tables] == ["operators", "ops"]


def test_an_empty_recording_has_a_page():
    assert "No torch operation ran, so nothing was judged." in Reader(html_report.render(Recording(), ())).text


def test_the_source_window_marks_the_spans_and_the_labels_begin_under_them(program):
    (window,) = page(program).cards[0].windows
    lines = [line for line in window.lines if line and line.marks]
    assert [["".join(t for t, marked in line.pieces if marked)] for line in lines] == [
        ["nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).half()"],  # where the operand that it meets got its dtype
        ["torch.ones(2, 1)"],
        ["torch.cat([noisy, mask], 1)"],
        ["unet(x)"],
    ]
    for line in lines:
        text = "".join(t for t, _ in line.pieces)
        marked = next(t for t, is_marked in line.pieces if is_marked)
        assert [text.index(marked)] == [m.column for m in line.marks]
    assert lines[-1].marks[-1].kind == "end" and "meets float16" in lines[-1].marks[-1].label


def test_the_flow_is_drawn_from_both_births_to_the_collision(program):
    """Its words are told once: by the labels at the source lines, in the boxes only where there are none."""
    (shown,) = page(program).cards
    (mask, cat), (weight,) = shown.flow.lanes
    assert (mask.what, mask.dtype, mask.line, cat.what, cat.dtype) == (
        "ones()",
        "float32",
        4,
        "cat(float16 + float32)",
        "float32",
    )
    assert weight.dtype == "float16" and weight.what == "0.weight: half()"
    assert (shown.flow.end.what, shown.flow.end.dtype) == ("linear()", "float32 ≠ float16")
    words = "born here: ones() without a dtype"
    assert words not in Reader(html_report.render(program.recording, program.findings)).text.split("Findings")[1]
    bare = Reader(html_report.render(program.recording, program.findings, source=False)).text
    assert bare.count(words) == 1


def test_the_diff_is_one_that_git_applies(tmp_path, monkeypatch):
    program = programs.run(tmp_path, MASK)
    monkeypatch.chdir(tmp_path)
    (change,) = page(program).cards[0].changes
    assert "-mask = torch.ones(2, 1)\n+mask = torch.ones(2, 1, dtype=torch.float16)\n" in change.text
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", "apply"], input=change.text, text=True, check=True)
    assert "mask = torch.ones(2, 1, dtype=torch.float16)" in Path(change.path).read_text("utf-8")


def test_a_long_line_is_cut_around_its_span():
    text = "a" * 4000 + "torch.ones(2)" + "b" * 4000
    shown = cards._source_line(1, text, [(recordings.frame(line=1, column=4001, end=4014), "born")], None)
    reported = "".join(t for t, _ in shown.pieces)
    assert len(reported) < 300 and reported[shown.marks[0].column :].startswith("torch.ones(2)")
    assert [t for t, marked in shown.pieces if marked] == ["torch.ones(2)"]


def test_without_source_no_line_of_the_program_is_in_it(program):
    shown = html_report.render(program.recording, program.findings, source=False)
    assert (
        "noisy = torch.ones" not in shown
        and "torch.cat([noisy" not in shown
        and "dtype=torch.float16" not in Reader(shown).text.replace("give ones() dtype=torch.float16", "")
    )
    assert "noisy = torch.ones" not in json.dumps(
        html_report.page(program.recording, program.findings, source=False).tables
    )


@pytest.mark.parametrize("kind", recordings.KINDS)
def test_findings_of_every_kind_are_reported_with_all_or_nothing_known(kind):
    recording, _ = recordings.many(40)
    findings = (recordings.finding(kind), recordings.finding(kind, severity="warning"), recordings.bare(kind))
    read = Reader(html_report.render(recording, findings))
    assert (
        read.text.lower().count("the two operands of a matmul have different dtypes") >= 2
        and "autocast is on and the model is float16" in read.text.lower()
    )
    ids = [a["id"] for _, a in read.tags if "id" in a]
    assert len(ids) == len(set(ids)) and {"DT101-1", "DT101-2", "DT401-1"} <= set(ids)


def test_many_findings_are_all_in_it_and_the_first_ones_with_their_source():
    recording, _ = recordings.many(40)
    findings = tuple(recordings.finding(line=n % 80) for n in range(200))
    shown = html_report.render(recording, findings)
    assert shown.count('<article class="card') == 200 and shown.count('<figure class="source"') == 30
    assert len(shown.encode()) < 750 * KILO


def test_gradients_and_values_have_a_table_where_they_were_measured(tmp_path):
    text = """
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for scale in (1.0, 1e30):
            loss = (model(torch.ones(2, 4)) * scale * scale).sum()
            loss.backward()
            optimizer.step()
    """
    shown = {t["id"]: t for t in page(programs.run(tmp_path, text, numerics=True)).tables}
    assert shown["gradients"]["rows"] == 2 and shown["values"]["rows"] > 0
    json.loads(json.dumps(list(shown.values()), allow_nan=False))
    assert {"gradients", "values"}.isdisjoint(t["id"] for t in page(programs.run(tmp_path, "torch.ones(2) + 1")).tables)


# ---------------------------------------------------------------- the file


def test_nothing_in_it_can_load_anything(program):
    shown = html_report.render(program.recording, program.findings)
    read = Reader(shown)
    policy = next(a["content"] for t, a in read.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy and "unsafe-eval" not in policy
    assert not [
        a
        for t, a in read.tags
        if {"src", "srcset", "data", "background", "ping"} & set(a)
        or t in ("link", "object", "embed", "iframe", "base")
    ]
    assert not [a["href"] for _, a in read.tags if not a.get("href", "#").startswith("#")]
    css = shown[shown.index("<style>") : shown.index("</style>")]
    assert "url(" not in css and "@import" not in css


def test_the_policy_admits_just_the_one_script(program):
    shown = html_report.render(program.recording, program.findings)
    read = Reader(shown)
    (script,) = [
        s
        for s, (_, a) in zip(read.scripts, [t for t in read.tags if t[0] == "script"])
        if a.get("type") != "application/gzip"
    ]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in shown


@pytest.mark.parametrize("text", recordings.HOSTILE, ids=lambda t: ascii(t)[:24])
def test_hostile_strings_change_nothing_of_the_structure(text):
    plain = Reader(html_report.render(*recordings.hostile("harmless")))
    shown = html_report.render(*recordings.hostile(text))
    read = Reader(shown)
    # of words: a dtype in its colour, where a long name may break, a line in a box, a name that could be a word
    within = ("b", "i", "wbr", "text", "code")
    assert [t for t, _ in read.tags if t not in within] == [t for t, _ in plain.tags if t not in within]
    assert [set(a) - {"title"} for t, a in read.tags if t not in within] == [
        set(a) - {"title"} for t, a in plain.tags if t not in within
    ]
    json.loads(gzip.decompress(base64.b64decode(read.scripts[0])))
    shown.encode("utf-8")
    assert not re.search("[\x00\x1b\u202e\ud800-\udfff]", shown)
    assert len(shown.encode()) < 150 * KILO


def test_the_fixed_part_is_small():
    assert len(html_report.render(Recording(), ()).encode()) < 80 * KILO  # 180 is the bar


def test_twenty_thousand_ops_fit():
    started = time.process_time()
    shown = html_report.render(*recordings.many(20_000))
    assert len(shown.encode()) < 1000 * KILO
    assert time.process_time() - started < 40


def test_the_script_is_short():
    for part in Path(html_report.__file__).with_name("templates").glob("*.js"):
        assert len(part.read_text("utf-8").splitlines()) < 300, part.name


# ---------------------------------------------------------------- the doors


def dtypetrace(*words, cwd) -> subprocess.CompletedProcess:
    environment = dict(os.environ, PYTHONPATH=str(Path(html_report.__file__).parents[2]))
    return subprocess.run(
        [sys.executable, *map(str, words)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.mark.slow
def test_run_writes_it_whatever_ends_the_script_and_show_writes_the_same(tmp_path):
    (tmp_path / "script.py").write_text("import torch\nx = torch.ones(2, 2)\nx @ x.half()\n")
    ended = warm.run("-m dtypetrace run --html a.html --save t.trace script.py".split(), tmp_path)
    assert ended.returncode == 1 and "RuntimeError" in ended.stderr
    written = Reader((tmp_path / "a.html").read_text("utf-8"))
    assert "x @ x.half()" in written.text and "script.py" in written.text
    ended = dtypetrace("-c", SHOW, "show", "t.trace", "--html", "b.html", cwd=tmp_path)
    assert ended.stdout.endswith("loaded: False\n"), ended
    assert Reader((tmp_path / "b.html").read_text("utf-8")).text == written.text
    ended = dtypetrace("-c", SHOW, "show", "t.trace", "--html", "c.html", "--no-source", cwd=tmp_path)
    assert "x @ x.half()" not in (tmp_path / "c.html").read_text("utf-8")
    assert not [p.name for p in tmp_path.iterdir() if p.name.endswith(".part")]


SHOW = """
import sys
from dtypetrace.__main__ import main
try:
    main(sys.argv[1:])
except SystemExit:
    print("loaded:", "torch" in sys.modules)
"""


@pytest.mark.slow
def test_a_place_that_cannot_be_written_is_reported_before_the_run(tmp_path):
    (tmp_path / "script.py").write_text("print('ran')\n")
    ended = dtypetrace("-m", "dtypetrace", "run", "--html", "no/such/a.html", "script.py", cwd=tmp_path)
    assert ended.returncode == 2 and ended.stdout == "" and "no such folder" in ended.stderr


def test_the_trace_writes_it(program, tmp_path):
    program.trace.report(tmp_path / "a.html")
    assert "is born here" in Reader((tmp_path / "a.html").read_text("utf-8")).text
    program.trace.report(tmp_path / "b.html", source=False)
    assert "mask = torch.ones" not in (tmp_path / "b.html").read_text("utf-8")


# ---------------------------------------------------------------- text


def test_a_finding_s_text_never_becomes_markup():
    recording, (f,) = recordings.many(20, findings=1)
    shown = html_report.render(recording, (replace(f, notes=("float32 <b>x</b>",)),))
    assert "<b class=f32>float32</b> &lt;b&gt;x&lt;/b&gt;" in shown
