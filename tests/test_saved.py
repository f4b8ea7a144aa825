"""Saved traces: what is written is read back whole; what is no trace is reported in one line."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import dtypetrace
from dtypetrace.errors import TraceFileError
from dtypetrace.records import Recording, Results, schema
from dtypetrace.saved import FORMAT, load


@pytest.fixture
def trace():
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)).half()
    with pytest.raises(RuntimeError), dtypetrace.trace(model) as t:
        mask = torch.ones(3, 4)
        model(torch.randn(3, 4).half() * mask)
    return t


def test_a_saved_trace_is_the_same_trace(trace, tmp_path):
    trace.save(tmp_path / "t.json")
    again = dtypetrace.load(tmp_path / "t.json")
    assert again.findings == trace.findings
    checks = tuple(replace(c, above=None) for c in trace.recording.spot_checks)  # what is above is not saved
    assert replace(again.recording, meta={}) == replace(trace.recording, meta={}, spot_checks=checks)
    assert repr(again) == repr(trace)
    assert "mask = torch.ones(3, 4)" in repr(again)
    assert again.to_networkx().number_of_nodes() == trace.to_networkx().number_of_nodes()


def test_saving_a_loaded_trace_gives_the_same_file(trace, tmp_path):
    trace.save(tmp_path / "a.json")
    dtypetrace.load(tmp_path / "a.json").save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_text() == (tmp_path / "b.json").read_text()


def test_without_source_no_line_of_the_program_is_in_the_file(trace, tmp_path):
    trace.save(tmp_path / "t.json", source=False)
    assert "torch.ones(3, 4)" not in (tmp_path / "t.json").read_text()
    shown = repr(dtypetrace.load(tmp_path / "t.json"))
    assert "torch.ones(3, 4)" not in shown and "float32 is born here" in shown


def test_a_loaded_trace_reads_no_file_that_it_names(trace, tmp_path):
    """A stranger's trace may name any path; only the text that came with it is shown."""
    secret = tmp_path / "secret.txt"
    secret.write_text("hidden\n" * 2000)
    trace.save(tmp_path / "t.json", source=False)
    text = (tmp_path / "t.json").read_text().replace(json.dumps(__file__)[1:-1], str(secret))
    (tmp_path / "t.json").write_text(text)
    shown = repr(dtypetrace.load(tmp_path / "t.json"))
    assert "secret.txt" in shown and "hidden" not in shown


@pytest.mark.timeout(60)
def test_a_loaded_trace_waits_for_no_pipe_that_it_names(trace, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    trace.save(tmp_path / "t.json")
    data = json.loads((tmp_path / "t.json").read_text())
    put(data, "recording", None, "Recording", "sources", [{}, {}])
    for frame in data["frames"]:
        frame[0] = str(tmp_path / "pipe")
    (tmp_path / "t.json").write_text(json.dumps(data))
    loaded = dtypetrace.load(tmp_path / "t.json")
    loaded.report(tmp_path / "out.html")
    assert "pipe" in repr(loaded) and "pipe" in (tmp_path / "out.html").read_text()


def test_numbers_beyond_64_bits_break_no_table(trace, tmp_path):
    """Each count may be as large as 64 bits hold; what the tables work out of two of them is larger."""
    trace.save(tmp_path / "t.json")
    data = json.loads((tmp_path / "t.json").read_text())
    for field in ("count", "shape"):
        put_in(data, "ops", "Op", field, 2**62 if field == "count" else [2**50], every=True)
    (tmp_path / "t.json").write_text(json.dumps(data))
    loaded = dtypetrace.load(tmp_path / "t.json")
    assert loaded.to_dataframe("casts")["bytes"].max() > 2**63
    loaded.report(tmp_path / "out.html")


def put(data, part, number, kind, field, value):
    """Sets a field of a record in a saved trace."""
    record = data[part] if number is None else data[part][number]
    record[data["fields"][kind].index(field)] = value


def put_in(data, table, kind, field, value, every=False):
    """Sets a field in the first record of one of the recording's tables."""
    records = data["recording"][data["fields"]["Recording"].index(table)]
    for record in records if every else records[:1]:
        record[data["fields"][kind].index(field)] = value


def reach(data, line):
    """Lets the first edit of a fix end on another line."""
    of = data["fields"]
    fix = next(f[of["Finding"].index("fix")] for f in data["findings"] if f[of["Finding"].index("fix")])
    fix[of["Fix"].index("edits")][0][of["Edit"].index("end")][0] = line


def damaged(change):
    def apply(data):
        change(data)
        return json.dumps(data)

    return apply


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda data: "", "no saved trace"),
        (lambda data: json.dumps(data)[:-40], "only a part"),
        (lambda data: "[" * 100_000, "no saved trace"),
        (lambda data: '{"a": 1}', "no saved trace"),
        (lambda data: "[]", "no saved trace"),
        (damaged(lambda d: d.update(format=FORMAT + 1)), "newer dtypetrace"),
        (damaged(lambda d: d.pop("places")), "damaged"),
        (damaged(lambda d: d["places"][0].append(10**6)), "damaged"),
        (damaged(lambda d: d["places"][0].append(-1)), "damaged"),
        (damaged(lambda d: d["findings"][0].__delitem__(slice(4, None))), "damaged"),
        (damaged(lambda d: d["findings"][0].__setitem__(0, None)), "damaged"),
        (damaged(lambda d: d["frames"][0].__setitem__(1, "12")), "damaged"),
        (damaged(lambda d: d["frames"][0].__setitem__(1, 2**63)), "64 bits"),
        (damaged(lambda d: d["frames"][0].__setitem__(1, -3)), "Frame.line cannot be -3"),
        (
            damaged(lambda d: put(d, "findings", 0, "Finding", "severity", "grave")),
            "Finding.severity cannot be 'grave'",
        ),
        (
            damaged(lambda d: put(d, "findings", 0, "Finding", "code", "\x1b[31m")),
            "Finding.code cannot be '\\x1b[31m'",
        ),
        (damaged(lambda d: put(d, "findings", 0, "Finding", "phase", "sideways")), "Finding.phase"),
        (damaged(lambda d: put(d, "findings", 0, "Finding", "title", 7)), "str was expected, not int"),
        (damaged(lambda d: put_in(d, "ops", "Op", "place", 10**6)), "Op.place cannot be 1000000"),
        (damaged(lambda d: put_in(d, "ops", "Op", "count", -2)), "Op.count cannot be -2"),
        (damaged(lambda d: put_in(d, "ops", "Op", "shape", [2**40, 2**40])), "Op.shape"),
        (damaged(lambda d: put_in(d, "events", "Event", "parents", [0])), "event 0 comes from a later one"),
        (damaged(lambda d: put_in(d, "events", "Event", "parents", [10**6])), "Event.parents"),
        (damaged(lambda d: d["recording"][d["fields"]["Recording"].index("meta")].update(steps="x")), "meta steps"),
        (damaged(lambda d: put(d, "recording", None, "Recording", "sources", None)), "a Sources of 2 fields"),
        (damaged(lambda d: reach(d, 10**9)), "an edit cannot reach from"),
        (lambda data: json.dumps(data).replace('"format": ', '"format": ' + "1" * 5000, 1), "no saved trace"),
    ],
)
def test_a_file_that_is_none_gets_one_line(trace, tmp_path, make, says):
    path = tmp_path / "t.json"
    trace.save(path)
    path.write_text(make(json.loads(path.read_text())))
    with pytest.raises(TraceFileError) as caught:
        load(path)
    reported = str(caught.value)
    assert says in reported and str(path) in reported and "\n" not in reported


def test_a_trace_of_an_older_version_that_lacks_the_newest_fields_opens(trace, tmp_path):
    path = tmp_path / "t.json"
    trace.save(path)
    data = json.loads(path.read_text())
    del data["fields"]["Op"][-3:]  # effect, written, named
    for op in data["recording"][2]:
        del op[-3:]
    path.write_text(json.dumps(data))
    assert {o.effect for o in load(path).recording.ops} <= {""}


def test_a_failed_save_leaves_what_was_there(trace, tmp_path, monkeypatch):
    path = tmp_path / "t.json"
    path.write_text("before")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        trace.save(path)
    assert path.read_text() == "before" and [p.name for p in tmp_path.iterdir()] == ["t.json"]


def test_an_empty_recording_can_be_saved(tmp_path):
    from dtypetrace.view import SavedTrace

    SavedTrace(Results(Recording())).save(tmp_path / "t.json")
    assert dtypetrace.load(tmp_path / "t.json").findings == ()


def show(*arguments):
    root = Path(dtypetrace.__file__).parents[1]
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dtypetrace", "show", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=root,
    )


def test_show_prints_the_trace_and_imports_no_torch(trace, tmp_path):
    trace.save(tmp_path / "t.json")
    done = show(tmp_path / "t.json", "--json", tmp_path / "report.json", "--fail-on", "error")
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert done.returncode == 1 and "error[DT101]" in done.stdout
    assert imported and not imported & {"torch", "pandas", "numpy"}
    assert json.loads((tmp_path / "report.json").read_text())["findings"][0]["code"] == "DT101"


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_show_of_what_cannot_be_read_is_bad_usage(tmp_path, name):
    done = show(tmp_path / name)
    errors = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert done.returncode == 2 and len(errors) == 1 and errors[0].startswith("dtypetrace: error:")


def test_show_finds_out_what_cannot_be_written_before_it_prints(trace, tmp_path):
    trace.save(tmp_path / "t.json")
    done = show(tmp_path / "t.json", "--html", tmp_path / "missing" / "out.html")
    errors = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert done.returncode == 2 and done.stdout == "" and len(errors) == 1 and "no such folder" in errors[0]


def test_an_operand_of_a_later_call_that_its_op_does_not_have_is_refused():
    made = torch.ones(3)
    with dtypetrace.trace() as t:
        [x.exp() for x in (made, made * 2)]
    (later,) = t.recording.later
    with pytest.raises(ValueError, match="no operand 9"):
        schema.WHOLE[Recording](replace(t.recording, later=(replace(later, index=9),)))
