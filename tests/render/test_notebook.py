"""What cells show: small, static, readable as text; and the magic and the frame, in a kernel that runs."""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from pathlib import Path

import programs
import pytest
import recordings

from dtypetrace.render import notebook

ROOT = Path(__file__).resolve().parents[2]


def text_of(html: str) -> str:
    """What is left where a page drops styles and drawings, as code-hosting pages do."""

    class Text(HTMLParser):
        found, hidden = "", 0

        def handle_starttag(self, tag, attrs):
            self.hidden += tag in ("style", "svg", "script")

        def handle_endtag(self, tag):
            self.hidden -= tag in ("style", "svg", "script")

        def handle_data(self, data):
            self.found += "" if self.hidden else data

    reader = Text()
    reader.feed(html)
    return reader.found


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    text = "model = nn.Linear(4, 4).half()\nx = torch.ones(2, 4)\ny = x * 2\nmodel(y)"
    return programs.run(tmp_path_factory.mktemp("notebook"), text)


def test_a_trace_shows_verdict_finding_source_and_change(program):
    shown = text_of(program.trace._repr_html_())
    order = [
        "error[DT101]",
        "got a float32 input for its float16 weights",
        "2 | x = torch.ones(2, 4)",
        "^^^^^^^^^^^^^^^^ float32 is born here",
        "help: ",
    ]
    at = [shown.index(part) for part in order]
    assert at == sorted(at)


def test_the_marks_stand_under_what_they_mean(program):
    lines = text_of(program.trace._repr_html_()).splitlines()
    above, below = next((a, b) for a, b in zip(lines, lines[1:]) if "is born here" in b)
    assert above[below.index("^") : below.rindex("^") + 1] == "torch.ones(2, 4)"


def test_a_finding_shows_itself(program):
    shown = program.only._repr_html_()
    assert "float32 is born here" in text_of(shown) and len(shown) < 30_000


def test_why_shows_its_text(program):
    why = program.trace.why("model.weight")
    assert repr(why) in text_of(why._repr_html_())


@pytest.mark.parametrize("text", recordings.HOSTILE, ids=lambda t: ascii(t)[:24])
def test_hostile_strings_stay_text(text):
    recording, findings = recordings.hostile(text)
    for shown in (notebook.trace_html(recording, findings), notebook.finding_html(findings[0])):
        assert "<script" not in shown and "<img" not in shown and "<!--" not in shown
        assert shown.count("<div") == shown.count("</div>")


@pytest.mark.parametrize("kind", recordings.KINDS)
def test_findings_of_every_kind_show_themselves(kind):
    assert "autocast is on" in text_of(recordings.bare(kind)._repr_html_())
    assert "a fact about float16" in text_of(recordings.finding(kind)._repr_html_())


def test_show_needs_a_notebook(program):
    with pytest.raises(RuntimeError, match=r"show\(\) needs a notebook; write the report to a file with report"):
        program.trace.show()


# ---------------------------------------------------------------- in a kernel

CELLS = [
    "import torch, dtypetrace\n%load_ext dtypetrace\nmodel = torch.nn.Linear(4, 4).half()",
    "%%dtypetrace t\nx = torch.ones(2, 4)\ny = x * 2\nmodel(y)",
    "print(t)\nprint(t.findings[0].culprit.origin.line)",
    "%%dtypetrace\nz = torch.ones(2)\nz + 1",
    "t.show()",
    "%%dtypetrace not a name\npass",
    "with dtypetrace.trace() as u:\n    q = torch.ones(2, 2)\n    q @ q.half()",
    "print(u)",
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The cells after they ran in a kernel of its own, errors included."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS])
    book.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    client = nbclient.NotebookClient(
        book,
        timeout=120,
        kernel_name="python3",
        allow_errors=True,
        resources={"metadata": {"path": str(tmp_path_factory.mktemp("kernel"))}},
    )
    client.execute(env=environment)
    return book.cells


def outputs(cell, kind: str) -> list:
    return [o for o in cell.outputs if o.output_type == kind]


@pytest.mark.slow
def test_the_magic_watches_a_cell_and_shows_what_it_found(ran):
    (shown,) = outputs(ran[1], "display_data")
    assert "got a float32 input for its float16 weights" in text_of(shown.data["text/html"])
    assert "error[DT101]" in shown.data["text/plain"]


@pytest.mark.slow
def test_the_error_of_the_cell_goes_on_without_frames_of_ours(ran):
    (error,) = outputs(ran[1], "error")
    assert error.ename == "RuntimeError" and "must have the same dtype" in error.evalue
    reported = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback))
    assert "render/notebook.py" not in reported and "tracing.py" not in reported and "model(y)" in reported


@pytest.mark.slow
def test_lines_in_cells_are_named_as_they_are_seen(ran):
    printed = outputs(ran[2], "stream")[0].text
    assert (
        "--> In [2]:4" in printed
        and "(In [2]:2:" in printed
        and "ipykernel" not in printed
        and not re.search(r"\d{5}\.py", printed)
    )
    assert printed.rstrip().endswith("\n2")
    assert "2 | x = torch.ones(2, 4)" in printed and "`model` got" in printed, (
        "the cell's own text, not the magic's call"
    )
    assert "--> In [7]:3" in outputs(ran[7], "stream")[0].text


@pytest.mark.slow
def test_the_last_expression_of_a_watched_cell_is_shown(ran):
    (result,) = outputs(ran[3], "execute_result")
    assert result.data["text/plain"] == "tensor([2., 2.])"
    assert "no dtype problem found" in outputs(ran[3], "display_data")[0].data["text/html"]


@pytest.mark.slow
def test_show_is_a_frame_without_access_to_the_page(ran):
    (shown,) = outputs(ran[4], "display_data")
    frame = shown.data["text/html"]
    assert '<iframe sandbox="allow-scripts"' in frame and "srcdoc=" in frame and "allow-same-origin" not in frame
    assert not outputs(ran[4], "stream"), "no warning of IPython's"


@pytest.mark.slow
def test_a_wrong_name_for_the_trace_is_reported_in_one_line(ran):
    assert (
        outputs(ran[5], "stream")[0].text
        == "UsageError: %%dtypetrace not a name: give a variable's name for the trace, or nothing\n"
    )
