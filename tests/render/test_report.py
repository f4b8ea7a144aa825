"""What is shown: the console text on every kind of stream, and JSON files that are written whole or not at all."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import stat
import subprocess
import sys
import types
from pathlib import Path

import programs
import pytest

from dtypetrace import report
from dtypetrace.records import Finding, FlowStep, Frame, Operand, Origin, Place, Raised, Recording, Refused
from dtypetrace.render.layout import Display

ROOT = Path(__file__).parents[2]
MASK = """
unet = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).half()
noisy = torch.ones(2, 3, dtype=torch.float16)
mask = torch.ones(2, 1)
x = torch.cat([noisy, mask], 1)
unet(x)
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return programs.run(tmp_path_factory.mktemp("report"), MASK)


def text(program) -> str:
    return report.text(program.recording, program.findings)


# ---------------------------------------------------------------- one block


def test_a_block_shows_the_story_in_order(program):
    """Title, place, the user's lines from the birth to the collision, facts, torch's own words, the remedy."""
    lines = text(program).splitlines()
    order = [
        r"error\[DT101\]: unet\.0 got a float32 input for its float16 weights$",
        r"  --> .*program\.py:5:1   unet\.0   \(forward\)$",
        r"3 \| mask = torch\.ones\(2, 1\)$",
        r"  \|        \^{16} float32 is born here: ones\(\) without a dtype$",
        r"4 \| x = torch\.cat\(\[noisy, mask\], 1\)$",
        r"  \|     -{27} float16 and float32 meet: the result is float32$",
        r"5 \| unet\(x\)$",
        r"  \| -{7} float32 `x` \[2, 4\] meets float16 0\.weight \[4, 4\] in `linear`$",
        r"  = note: 0\.weight is float16 because of the cast at .*program\.py:1:8$",
        r"  = note: `x` is float32, but ",
        r"  = note: torch raised RuntimeError: mat1 and mat2 must have the same dtype, but got Float and Half$",
        r"help: .*float16.*program\.py:3:8\)$",
        r"1 error \(\d+ ops\)$",
        r"What it means: dtypetrace explain DT101$",
    ]
    at = 0
    for pattern in order:
        while at < len(lines) and not re.match(pattern, lines[at]):
            at += 1
        assert at < len(lines), f"{pattern!r} is not there, or not in order, in:\n{text(program)}"


def test_the_spans_stand_under_what_they_mean(program):
    lines = text(program).splitlines()
    spans = [marked(above, below) for above, below in zip(lines, lines[1:]) if re.match(r" +\| *[-^]", below)]
    assert spans == ["torch.ones(2, 1)", "torch.cat([noisy, mask], 1)", "unet(x)"]


def marked(above: str, below: str) -> str:
    """What stands above the marks of a line."""
    marks = re.search(r"(?<=\| ) *([-^+~]+)", below)
    return above[marks.start(1) : marks.end(1)]


def test_the_title_states_and_the_help_advises(program):
    lines = text(program).splitlines()
    assert not re.search(r"\b(should|must|use|try|cast)\b", lines[0])
    helps = [line for line in lines if line.startswith(("help:", "  or:"))]
    assert helps and not [line for line in helps if line.rstrip(")").endswith("?")]


def test_repr_is_the_console_text(program):
    assert repr(program.trace) == text(program)


def test_tabs_and_characters_outside_ascii_keep_the_spans_in_place(tmp_path):
    shown = text(
        programs.run(tmp_path, "if True:\n\té = torch.ones(2, 2)\n\tü = torch.ones(2, 2).half()\n\tx = ('ä', é @ ü)")
    )
    above, below = next((a, b) for a, b in zip(shown.splitlines(), shown.splitlines()[1:]) if "meets" in b)
    assert marked(above, below) == "é @ ü"


def test_wide_characters_take_two_columns(tmp_path):
    shown = text(programs.run(tmp_path, "x = torch.ones(2, 2)\nh = torch.ones(2, 2).half()\ns = '漢字'; x @ h"))
    above, below = next((a, b) for a, b in zip(shown.splitlines(), shown.splitlines()[1:]) if "meets" in b)
    assert below.index("-") == above.index("x @") + 2
    assert below.count("-") == len("x @ h")


def test_a_place_in_a_library_is_shown_at_the_user_s_line(tmp_path):
    folder = tmp_path / "site-packages" / "lib"
    folder.mkdir(parents=True)
    (folder / "lib.py").write_text("def mix(a, b):\n    return a @ b\n")
    before = f"import sys; sys.path.insert(0, {str(folder)!r})"
    try:
        program = programs.run(tmp_path, "import lib\nx = torch.ones(2, 2)\nlib.mix(x, x.half())", before=before)
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("lib", None)
    shown = text(program)
    assert "3 | lib.mix(x, x.half())" in shown
    assert re.search(r"--> .*program\.py:3, in lib/lib\.py:2:12", shown)


def test_an_operand_of_the_wrong_kind_has_no_other_side(tmp_path):
    """What an index or a label must be does not depend on the other operands."""
    shown = text(
        programs.run(tmp_path, "labels = torch.zeros(2, dtype=torch.int32)\nF.cross_entropy(torch.ones(2, 4), labels)")
    )
    assert re.search(r"cross_entropy refuses int32 `labels` \[2\]", shown)
    assert "int32 is born here: zeros() got dtype=int32" in shown


# ---------------------------------------------------------------- made by hand


def place(line: int = 3, file: str = "/nowhere/train.py") -> Place:
    return Place((Frame(file, line, "main", True, 5, line, 12),))


def operand(name: str, dtype: str, **more) -> Operand:
    return Operand(more.pop("index", 0), name, dtype, (2, 3), "cpu", None, Origin("factory", None, "ones", place()))


def finding(**more) -> Finding:
    x, w = operand("x", "float32"), operand("w", "float16", index=1)
    known = dict(
        code="DT101", kind="collision", severity="error", title="they disagree", phase="forward", op="linear", aten=None, module="net", count=1,
        predicted=False, site=place(9), operands=(x, w), culprit=x, flow=(FlowStep(place(), "ones", "", "float32", "float32", "value"),
        FlowStep(place(9), "linear", "net", "float32", "float16", "value")), fix=None, exception=Raised("RuntimeError", "no"),
    )  # fmt: skip
    return Finding(**known | more)


def test_nothing_found_is_one_line():
    recording = Recording(meta={"steps": 1, "ops": 6520})
    assert report.text(recording, ()) == "dtypetrace: no dtype problem found in 1 step (6,520 ops)"


def test_what_was_not_seen_is_said():
    assert report.text(Recording(not_seen=("other threads",)), ()).splitlines()[0] == "not seen: other threads"


def test_the_last_line_says_what_to_type_next():
    """The repair where there is one; else, and where no program is known, what the finding means."""

    def last(refused, **changes):
        shown = report.lines(Recording(refused=refused), (finding(**changes),), program="train.py --lr 1")
        return [line for line, _ in shown][-3:]

    left = Refused("linear", None, "forward", "", 0, (), "RuntimeError", "no", "p", "DT101", "agree", left=True)
    assert last((left,)) == [
        "What it means: dtypetrace explain DT101",
        "More may follow: dtypetrace run --autofix train.py --lr 1  # shows the errors after this one, too; changes no file",
        "Fix it: dtypetrace fix train.py --lr 1",
    ]
    silent = last((), code="DT201", kind="promotion", severity="warning", exception=None)
    assert silent[-1] == "What it means: dtypetrace explain DT201"
    assert report.text(Recording(refused=(left,)), (finding(),)).endswith("dtypetrace explain DT101")
    assert [line for line, _ in report.lines(Recording(), (), program="train.py")] == [
        "dtypetrace: no torch operation ran, so nothing was judged (0 ops)"
    ]


def test_repeats_are_a_count_and_the_summary_counts_findings():
    shown = report.text(
        Recording(meta={"steps": 2, "ops": 3}), (finding(count=7), finding(severity="note"), finding(severity="note"))
    )
    assert shown.startswith("error[DT101]: they disagree (7 times)\n")
    assert shown.endswith("1 error, 2 notes in 2 steps (3 ops)\nWhat it means: dtypetrace explain DT101")


def test_ten_blocks_at_most():
    shown = report.text(Recording(), tuple(finding(site=place(n)) for n in range(1, 18)))
    assert shown.count("error[DT101]") == 10
    assert "7 more in the report" in shown


def test_without_the_source_the_place_and_the_story_remain():
    shown = report.text(Recording(), (finding(),))
    assert "3 | " in shown and "born here" in shown and "meets float16 `w` [2, 3] in `linear`" in shown


@pytest.mark.parametrize(
    "bare",
    [
        finding(culprit=None),
        finding(culprit=None, flow=(), operands=(), exception=None, site=Place(), module=""),
        finding(flow=()),
        finding(operands=(operand("x", "float32"),)),
        finding(site=Place(), flow=(FlowStep(Place(), "linear", "", "float32", "float32", "value"),)),
    ],
)
def test_whatever_is_absent_is_left_out(bare):
    shown = report.text(Recording(), (bare,))
    assert "None" not in shown
    assert shown.startswith("error[DT101]: they disagree")


def test_a_long_message_is_cut_and_a_message_of_many_lines_is_one():
    shown = report.text(Recording(), (finding(exception=Raised("RuntimeError", "one\n  two\n" + "x" * 1000)),))
    said = " ".join(shown.partition("torch raised ")[2].partition("help:")[0].split())
    assert said.startswith("RuntimeError: one two xxx") and len(said) < 260 and said.endswith("...")


@pytest.mark.parametrize("hostile", ["[bold red]", "[/]", ":smile:", "%s {x}", "</script>"])
def test_hostile_names_are_shown_as_they_are(hostile):
    out = io.StringIO()
    report.console(trace_of(finding(module=hostile)), file=out)
    assert hostile in out.getvalue()


@pytest.mark.parametrize("steers", ["\x1b[2J", "\x9b31m", "\r", "\x00", "\u202e", "\u2066"])
def test_what_controls_a_terminal_is_shown_as_an_escape(steers):
    """A saved trace may come from a stranger."""
    out = io.StringIO()
    file = f"/nowhere/{steers}.py"
    report.console(
        trace_of(
            finding(module=steers, title=steers, site=place(9, file), notes=(steers,), exception=Raised(steers, steers))
        ),
        file=out,
    )
    assert steers[0] not in out.getvalue() and steers[0].encode("unicode_escape").decode() in out.getvalue()


def trace_of(*findings: Finding, **meta):
    return types.SimpleNamespace(recording=Recording(meta=meta), findings=findings)


def test_three_notes_for_the_exception(program):
    notes = report.notes_for(program.only)
    assert len(notes) == 3
    assert notes[0].startswith("dtypetrace DT101: ")
    assert notes[1].endswith("program.py:3: float32 is born here: ones() without a dtype")
    assert notes[2].startswith("dtypetrace help: ")
    assert program.error.__notes__ == notes


def test_notes_of_a_finding_without_a_culprit():
    assert report.notes_for(finding(culprit=None)) == ["dtypetrace DT101: they disagree"]


# ---------------------------------------------------------------- width

LONG = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first_projection_of_the_residual_stream = nn.Linear(4, 4)
    def forward(self, hidden_states_of_the_prompt, offset):
        return self.first_projection_of_the_residual_stream(torch.cat([hidden_states_of_the_prompt[..., :2], offset.expand(2, 2)], dim=-1) * 1.0) # é
first_transformer_block_of_the_decoder = Block().half()
offset_of_every_position_in_the_batch = torch.ones(1, 2) * torch.linspace(0.0, 1.0, 2)[None] * torch.linspace(0.0, 1.0, 2)[None].expand(1, 2)
first_transformer_block_of_the_decoder(torch.ones(2, 4, dtype=torch.float16), offset_of_every_position_in_the_batch[..., :2].contiguous())
"""


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    folder = (
        tmp_path_factory.mktemp("a_folder_whose_name_is_long") / "and_one_more_folder_below_it_of_another_long_name"
    )
    folder.mkdir()
    return programs.run(folder, "import torch\n" + LONG)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_everything_fits_the_width(width, long):
    page = report.text(long.recording, long.findings, width)
    shown = page.partition("\nhelp: ")[0].splitlines()  # below it is a line to copy, which stays whole
    assert max(map(len, shown)) <= width
    assert max(map(len, shown)) > width - 12  # and uses it
    # the spans still stand under what they mean, shortened with dots
    spans = [marked(above, below) for above, below in zip(shown, shown[1:]) if re.match(r" *\d+ \|", above)]
    assert spans[0] == "torch.ones(1, 2)"
    calls = (
        "torch.cat([hidden_states_of_the_prompt[..., :2], offset.expand(2, 2)], dim=-1)",
        "self.first_projection_of_the_residual_stream(torch.cat([hidden_states_of_the_prompt[..., :2], offset.expand(2, 2)], dim=-1) * 1.0)",
    )
    for call, span in zip(calls, spans[1:3], strict=True):
        head, tail = span[: width // 3 - 5], span[-width // 3 + 5 :]
        assert call.startswith(head) and call.endswith(tail), span
    # all of the text is there, wherever the lines break
    reported = " ".join(" ".join(re.sub(r"^ *\|", "", line) for line in page.splitlines()).split())
    for fact in (
        "float32 is born here: ones() without a dtype",
        "float16 and float32 meet: the result is float32",
        "in `linear`",
        "`input` is float32; float16 was chosen on purpose, and float32 comes from a default",
        "note: torch raised RuntimeError: mat1 and mat2 must have the same dtype, but got Float and Half",
        "What it means: dtypetrace explain DT101",
    ):
        assert fact in reported, reported
    # a path that does not fit keeps its end, by which a file is known
    assert all(re.search(r"program\.py:\d+", line) for line in shown if line.lstrip().startswith("-->"))


def test_a_wide_page_shortens_nothing(long):
    shown = report.text(long.recording, long.findings, 400)
    for number in (8, 10):
        assert f"{number} | {long.text.splitlines()[number - 1]}\n" in shown
    assert shown.count("...") == 3  # line 8's own, where it is read, and before and after it is changed


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_spans_stay_in_place_where_characters_become_escapes(encoding, tmp_path):
    program = programs.run(tmp_path, "é = torch.ones(2, 2)\nü = torch.ones(2, 2).half()\nx = ('漢', é @ ü)")
    shown = [line for line, _ in report.lines(program.recording, program.findings, Display(120, encoding))]
    above, below = next((a, b) for a, b in zip(shown, shown[1:]) if "meets" in b)
    if encoding == "ascii":
        assert marked(above, below) == r"\xe9 @ \xfc"
    assert all(line.isascii() for line in shown) is (encoding == "ascii")


def test_a_comment_is_no_part_of_a_call_over_several_lines(tmp_path):
    shown = text(
        programs.run(tmp_path, "x = torch.ones(  # '#' of rows\n  2, 2)\nh = torch.ones(2, 2).half()\nx @ h")
    ).splitlines()
    number = next(n for n, line in enumerate(shown) if "born here" in line)
    assert marked(shown[number - 1], shown[number]) == "torch.ones("


def test_a_chain_over_several_lines_is_shown_from_its_beginning(tmp_path):
    shown = text(
        programs.run(
            tmp_path, "x = (\n    torch.ones(2, 2)\n    .add(1)\n    .double()\n)\nh = torch.ones(2, 2).half()\nx @ h"
        )
    )
    assert "2 |     torch.ones(2, 2)\n...\n4 |     .double()\n  |      ^^^^^^^^ float64 is born here" in shown


def test_a_line_of_another_file_says_so(tmp_path, monkeypatch):
    (tmp_path / "helper_of_it.py").write_text("import torch\ndef make():\n    return torch.ones(2, 2)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    try:
        shown = text(
            programs.run(tmp_path, "import helper_of_it\nx = helper_of_it.make()\nh = torch.ones(2, 2).half()\nx @ h")
        )
    finally:
        sys.modules.pop("helper_of_it", None)
    assert re.search(r"^  ::: helper_of_it\.py:3\n3 \|     return .*\n.*\n  ::: program\.py:4\n4 \| x @", shown, re.M)


def test_an_edit_is_shown_as_a_diff(tmp_path):
    for wrong, right in (
        ("y = torch.ones(2, 2)", "y = torch.ones(2, 2, dtype=torch.float16)"),
        ("y = torch.ones(2, 2).int() / 3", "y = (torch.ones(2, 2).int() / 3).to(torch.float16)"),
        ("y = torch.ones(2, 2, dtype=torch.float32)", "y = torch.ones(2, 2, dtype=torch.float16)"),
    ):
        shown = text(
            programs.run(
                tmp_path,
                f"import torch\nx = torch.ones(2, 2).half() @ torch.eye(2).half()\n{wrong}\nnn.Linear(2, 2).half()(x @ y)",
            )
        )
        assert f"\n  |\n3 - {wrong}\n3 + {right}\n" in shown.partition("help:")[2], shown


def test_a_new_line_is_shown_with_the_one_it_stands_before(tmp_path):
    shown = text(
        programs.run(
            tmp_path,
            "import torch\ndef careful():\n    torch.set_default_dtype(torch.float64)\n    return 1\n"
            "try:\n    careful()\n    nn.Linear(2, 2)(torch.ones(2, 2, dtype=torch.float32))\n"
            "finally:\n    torch.set_default_dtype(torch.float32)",
        )
    )
    assert shown.partition("help:")[2].splitlines()[2:4] == [
        "4 +     torch.set_default_dtype(torch.float32)",
        "4 |     return 1",
    ], shown


# ---------------------------------------------------------------- streams

SHOW = f"""
import sys, types
sys.path.insert(0, {str(ROOT)!r})
from dtypetrace import report
from dtypetrace.render.layout import Display
from dtypetrace.records import *
place = Place((Frame(sys.argv[1], 2, "main", True, 1, 2, 3),))
f = Finding("DT101", "collision", "error", "they disagree", "forward", "linear", None, "nét", 1, False, place, (), None,
            (FlowStep(place, "ones", "", "float32", "float32", "value"),), None, None)
sources = Sources({{sys.argv[1]: {{"2": open(sys.argv[1], encoding="utf-8").read().splitlines()[1]}}}})
report.console(types.SimpleNamespace(recording=Recording(sources=sources), findings=(f,)))
"""


def shown_on(file: Path, *, terminal: bool = False, **environment: str) -> bytes:
    """What a fresh process prints on stderr, a pipe or a terminal."""
    file.write_text("# ä\né = 1  # ☃\n", encoding="utf-8")
    clean = {
        k: v
        for k, v in os.environ.items()
        if k not in ("NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS", "PYTHONIOENCODING", "TTY_COMPATIBLE")
    }
    command = [sys.executable, "-c", SHOW, str(file)]
    if not terminal:
        ended = subprocess.run(command, env=clean | environment, stderr=subprocess.PIPE, timeout=60)
        assert ended.returncode == 0, ended.stderr
        return ended.stderr
    main, end = os.openpty()
    process = subprocess.Popen(command, env=clean | {"TERM": "xterm-256color"} | environment, stderr=end)
    os.close(end)
    shown = b""
    while True:
        try:
            part = os.read(main, 4096)
        except OSError:  # Linux says so where others give an empty read
            break
        if not part:
            break
        shown += part
    os.close(main)
    assert process.wait(60) == 0, shown
    return shown


def test_plain_when_piped(tmp_path):
    shown = shown_on(tmp_path / "p.py", PYTHONIOENCODING="utf-8")
    assert b"\x1b" not in shown
    assert "é = 1  # ☃".encode() in shown


def test_ascii_where_the_stream_is_not_utf8(tmp_path):
    shown = shown_on(tmp_path / "p.py", PYTHONIOENCODING="ascii")
    assert shown.isascii()
    assert rb"\xe9 = 1  # \u2603" in shown and rb"n\xe9t" in shown


def test_colour_on_a_terminal(tmp_path):
    shown = shown_on(tmp_path / "p.py", terminal=True, PYTHONIOENCODING="utf-8")
    assert b"\x1b[1;31merror[DT101]" in shown


def test_no_color_is_honoured(tmp_path):
    shown = shown_on(tmp_path / "p.py", terminal=True, PYTHONIOENCODING="utf-8", NO_COLOR="1")
    assert not re.search(rb"\x1b\[[0-9;]*3[0-9]", shown)
    assert b"error[DT101]" in shown


@pytest.mark.parametrize(("columns", "widest"), [("72", 72), ("40", 60), ("", 120), ("wide", 120)])
def test_a_pipe_is_as_wide_as_columns_say(columns, widest, tmp_path):
    file = tmp_path / ("long_" * 30 + ".py")
    shown = shown_on(file, PYTHONIOENCODING="utf-8", COLUMNS=columns).decode().splitlines()
    assert max(map(len, shown)) == widest


def test_a_terminal_is_as_wide_as_it_is(tmp_path):
    file = tmp_path / ("long_" * 30 + ".py")
    shown = re.sub(
        r"\x1b\[[0-9;]*m", "", shown_on(file, terminal=True, PYTHONIOENCODING="utf-8", COLUMNS="90").decode()
    )
    assert max(map(len, shown.splitlines())) == 90


def test_the_stream_is_the_one_that_was_given(program, capsys, monkeypatch):
    monkeypatch.delenv(
        "COLUMNS", raising=False
    )  # readline, where a test runner imports it, sets it for all that it starts
    out = io.StringIO()
    report.console(program.trace, file=out)
    assert out.getvalue().rstrip("\n") == text(program)
    assert capsys.readouterr() == ("", "")
    report.console(program.trace)
    assert capsys.readouterr().err == out.getvalue()


def test_a_stream_that_takes_latin_1(tmp_path):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    report.console(trace_of(finding(module="é☃")), file=stream)
    stream.flush()
    assert rb"\u2603" in stream.buffer.getvalue() and "é".encode("latin-1") in stream.buffer.getvalue()


# ---------------------------------------------------------------- files


def test_json_is_the_findings(program, tmp_path):
    file = tmp_path / "out.json"
    report.write_json(file, program.recording, program.findings)
    read = json.loads(file.read_text())
    assert read == json.loads(json.dumps(report.to_json(program.recording, program.findings)))
    assert read["findings"][0]["culprit"]["origin"]["line"] == 3


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path):
    file = tmp_path / "out.json"
    for text in ("first", "second"):
        report.write_atomically(file, text)
        assert file.read_text() == text
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]


def test_a_failure_leaves_what_was_there(tmp_path, monkeypatch):
    file = tmp_path / "out.json"
    file.write_text("old")

    def full(*_args):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        report.write_atomically(file, "new")
    assert file.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]


def test_an_interrupt_leaves_what_was_there(tmp_path, monkeypatch):
    file = tmp_path / "out.json"
    file.write_text("old")

    def interrupted(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        report.write_atomically(file, "new")
    assert file.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]


def test_text_that_cannot_be_encoded_leaves_what_was_there(tmp_path):
    file = tmp_path / "out.json"
    file.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        report.write_atomically(file, "\udcff")
    assert file.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]


def test_a_written_file_has_the_rights_that_any_new_file_has(tmp_path):
    old = os.umask(0o027)
    try:
        report.write_atomically(tmp_path / "out.json", "x")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "out.json").stat().st_mode) == 0o640


@pytest.mark.parametrize("leads", ["to a file", "to a link", "to nothing yet", "out of its folder", "by a folder"])
def test_a_link_stays_a_link(tmp_path, leads):
    """Another program may look for the file where the link leads."""
    (tmp_path / "kept").mkdir()
    file, link = tmp_path / "kept" / "out.json", tmp_path / "out.json"
    if leads == "by a folder":
        (tmp_path / "folder").symlink_to("kept")
        link = tmp_path / "folder" / "out.json"
    elif leads == "to a link":
        (tmp_path / "second").symlink_to("kept/out.json")
        link.symlink_to("second")
    else:
        link.symlink_to(os.path.relpath(file, tmp_path) if leads != "out of its folder" else file)
    if leads != "to nothing yet":
        file.write_text("old")
    before = sorted(p for p in tmp_path.rglob("*") if p.is_symlink())
    report.write_atomically(link, "new")
    assert file.read_text() == "new" and not file.is_symlink()
    assert sorted(p for p in tmp_path.rglob("*") if p.is_symlink()) == before
    assert [p.name for p in (tmp_path / "kept").iterdir()] == ["out.json"]


def test_a_file_that_others_may_not_read_stays_so(tmp_path):
    file = tmp_path / "out.json"
    file.touch(0o600)
    report.write_atomically(file, "x")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    report.write_atomically(pipe, "x")
    assert os.read(reading, 9) == b"x" and stat.S_ISFIFO(pipe.stat().st_mode)
    os.close(reading)


def test_a_plain_name_is_written_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report.write_atomically("out.json", "x")
    assert (tmp_path / "out.json").read_text() == "x"


def test_a_finding_made_twice_is_the_same_text(program):
    again = dataclasses.replace(program.only)
    assert report.text(program.recording, (again,)) == text(program)


def test_paths_are_short(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    short = {
        str(tmp_path / "src" / "train.py"): os.path.join("src", "train.py"),
        str(tmp_path.parent / "other.py"): os.path.join("..", "other.py"),
        "/venv/lib/python3.11/site-packages/lib/a.py": "lib/a.py",
        os.__file__: "os.py",
        "<string>": "<string>",
        "/far/away/train.py": "/far/away/train.py",
    }
    for file, expected in short.items():
        assert f"--> {expected}:9:5 " in report.text(Recording(), (finding(site=place(9, file)),))


def test_a_line_with_two_edits_is_shown_as_it_is_in_the_end(tmp_path):
    import programs

    program = programs.run(tmp_path, "import torch\nm = torch.eye(3).half()\ni = torch.linalg.inv(m)\nj = i + 1")
    shown = report.text(program.recording, program.findings)
    assert "i = torch.linalg.inv(m.to(torch.float32)).to(m.dtype)" in shown
    assert (
        sum("torch.linalg.inv(m" in line for line in shown.splitlines()) == 3
    )  # where it fails, and before and after the edit


def test_whether_a_conversion_names_its_dtype_is_reported(tmp_path):
    import programs

    text = "net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).half()\nx = torch.tensor([[1.0, 2.0]]{})\nnet(x)"
    for given, reported in (
        (", dtype=torch.float32", "tensor() got dtype=float32"),
        ("", "tensor() without a dtype"),
    ):
        program = programs.run(tmp_path, text.format(given))
        assert reported in report.text(program.recording, program.findings)
