"""The data: plain, frozen, comparable; and schema 1 of the JSON report, on findings made by hand and by real runs."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle

import programs
import pytest

from dtypetrace import records
from dtypetrace.records import Edit, Finding, Fix, FlowStep, Frame, Operand, Origin, Place, Raised, Recording
from dtypetrace.records.plain import to_plain

USER = Frame("/p/train.py", 7, "main", True, 5, 7, 12)
LIBRARY = Frame("/venv/site-packages/lib.py", 3, "Lib.forward", False, 1, 4, 2)
PLACE = Place((LIBRARY, USER))
ORIGIN = Origin("factory", "mask", "ones", Place((USER,)))
OPERAND = Operand(0, "mask", "float32", (2, 3), "cpu", None, ORIGIN)
FINDING = Finding(
    code="DT101",
    kind="collision",
    severity="error",
    title="they disagree",
    phase="forward",
    op="linear",
    aten="addmm.default",
    module="net.0",
    count=2,
    predicted=False,
    site=PLACE,
    operands=(OPERAND, Operand(1, "0.weight", "float16", (3, 3), "cpu", "parameter", ORIGIN)),
    culprit=OPERAND,
    flow=(FlowStep(Place((USER,)), "cat", "", "float16 + float32", "float32", "promotion"),),
    fix=Fix(
        "dtype",
        PLACE,
        (Edit("/p/train.py", (7, 5), (7, 12), "ones(3)", "ones(3, dtype=x.dtype)"),),
        True,
        "give it a dtype",
        ("or cast",),
    ),
    exception=Raised("RuntimeError", "no"),
    notes=("a fact",),
)

# ---------------------------------------------------------------- the values


@pytest.mark.parametrize(
    "kind",
    [k for k in vars(records).values() if isinstance(k, type) and dataclasses.is_dataclass(k)],
    ids=lambda k: k.__name__,
)
def test_every_record_is_frozen_and_small(kind):
    assert kind.__dataclass_params__.frozen
    assert "__slots__" in vars(kind)


def test_a_record_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        FINDING.code = "DT102"


def test_a_recording_survives_pickle_and_compares_by_value():
    recording = Recording((PLACE,), not_seen=("threads",), meta={"ops": 3})
    assert pickle.loads(pickle.dumps(recording)) == recording
    assert pickle.loads(pickle.dumps(FINDING)) == FINDING
    assert hash(FINDING) == hash(pickle.loads(pickle.dumps(FINDING)))


def test_a_place_is_its_innermost_frame():
    assert (PLACE.file, PLACE.line, PLACE.column, PLACE.end_line, PLACE.end_column, PLACE.function) == (
        "/venv/site-packages/lib.py", 3, 1, 4, 2, "Lib.forward",
    )  # fmt: skip
    assert PLACE.user_frame is USER
    assert Place((LIBRARY,)).user_frame is LIBRARY


def test_a_place_without_a_stack_is_nowhere():
    nowhere = Place()
    assert (nowhere.file, nowhere.line, nowhere.column, nowhere.end_line, nowhere.end_column, nowhere.function) == (
        "",
        0,
        None,
        None,
        None,
        "",
    )
    assert nowhere.user_frame is None


def test_an_origin_reads_like_its_place():
    assert (ORIGIN.file, ORIGIN.line, ORIGIN.function) == ("/p/train.py", 7, "main")


# ---------------------------------------------------------------- schema 1


def test_a_finding_as_json():
    plain = json.loads(json.dumps(to_plain(FINDING)))
    stack = [
        {"file": "/venv/site-packages/lib.py", "line": 3, "function": "Lib.forward", "user": False},
        {"file": "/p/train.py", "line": 7, "function": "main", "user": True},
    ]
    place = {
        "file": "/venv/site-packages/lib.py",
        "line": 3,
        "column": 1,
        "end_line": 4,
        "end_column": 2,
        "function": "Lib.forward",
        "stack": stack,
    }
    user = {
        "file": "/p/train.py",
        "line": 7,
        "column": 5,
        "end_line": 7,
        "end_column": 12,
        "function": "main",
        "stack": stack[1:],
    }
    origin = {"kind": "factory", "name": "mask", "op": "ones", **user}
    mask = {
        "index": 0,
        "name": "mask",
        "dtype": "float32",
        "shape": [2, 3],
        "device": "cpu",
        "holder": None,
        "origin": origin,
    }
    edit = {
        "file": "/p/train.py",
        "start": [7, 5],
        "end": [7, 12],
        "before": "ones(3)",
        "after": "ones(3, dtype=x.dtype)",
    }
    expected = {
        "code": "DT101",
        "kind": "collision",
        "severity": "error",
        "title": "they disagree",
        "phase": "forward",
        "op": "linear",
        "aten": "addmm.default",
        "module": "net.0",
        "count": 2,
        "predicted": False,
        "site": place,
        "operands": [
            mask,
            {**mask, "index": 1, "name": "0.weight", "dtype": "float16", "shape": [3, 3], "holder": "parameter"},
        ],
        "culprit": mask,
        "flow": [
            {"place": user, "op": "cat", "module": "", "from": "float16 + float32", "to": "float32", "how": "promotion"}
        ],
        "fix": {
            "kind": "dtype",
            "place": place,
            "edits": [edit],
            "safe": True,
            "why": "give it a dtype",
            "alternatives": ["or cast"],
        },
        "exception": {"type": "RuntimeError", "message": "no"},
        "notes": ["a fact"],
    }
    assert known(plain, expected) == expected


def known(value, expected):
    """A value less the fields that schema 1 does not promise: others may be added."""
    if isinstance(expected, dict):
        return {k: known(value[k], e) for k, e in expected.items() if k in value}
    if isinstance(expected, list) and len(value) == len(expected):
        return [known(v, e) for v, e in zip(value, expected)]
    return value


def test_what_is_absent_is_null():
    bare = dataclasses.replace(FINDING, aten=None, culprit=None, fix=None, exception=None, operands=(), flow=())
    plain = to_plain(bare)
    assert [plain[k] for k in ("aten", "culprit", "fix", "exception", "operands", "flow")] == [
        None,
        None,
        None,
        None,
        [],
        [],
    ]


@pytest.mark.parametrize("text", ['</script>"\\', "naïve ☃ \U0001f600", "\u202eright to left", "a\nb\tc\x00", "\udcff"])
def test_hostile_strings_come_back_as_they_went(text):
    plain = to_plain(dataclasses.replace(FINDING, module=text))
    assert json.loads(json.dumps(plain))["module"] == text


KINDS = (
    "collision promotion downcast round-trip zero-gradient lost-update underflow overflow gradient-dtype plan".split()
)
ORIGINS = "factory cast conversion parameter load input worker autocast reinterpret promotion".split()
HOWS = "value cast attribute promotion autocast copy".split()
PHASES = "forward recompute backward optimizer other".split()


def check_report(report: dict) -> None:
    """Asserts schema 1: the fields, their types and what their values may be."""
    assert report["schema"] == 1
    assert isinstance(report["meta"], dict)
    assert all(isinstance(reason, str) for reason in report["not_seen"])
    for finding in report["findings"]:
        check_finding(finding)


def check_finding(f: dict) -> None:
    assert len(f["code"]) == 5 and f["code"].startswith("DT") and f["code"][2:].isdigit()
    assert f["kind"] in KINDS and f["severity"] in ("error", "warning", "note") and f["phase"] in PHASES
    for key in ("title", "op", "module"):
        assert isinstance(f[key], str)
    assert f["title"] and f["op"]
    assert f["aten"] is None or isinstance(f["aten"], str)
    assert type(f["count"]) is int and f["count"] >= 1
    assert type(f["predicted"]) is bool
    check_place(f["site"])
    for operand in f["operands"]:
        check_operand(operand)
    assert f["culprit"] is None or f["culprit"] in f["operands"]
    for step in f["flow"]:
        assert {"place", "op", "module", "from", "to", "how"} <= set(step)
        assert step["how"] in HOWS
        check_place(step["place"])
    if f["fix"] is not None:
        assert {"kind", "place", "edits", "safe", "why", "alternatives"} <= set(f["fix"])
        assert type(f["fix"]["safe"]) is bool and f["fix"]["why"]
        check_place(f["fix"]["place"])
        for edit in f["fix"]["edits"]:
            assert set(edit) == {"file", "start", "end", "before", "after"}
    if f["exception"] is not None:
        assert set(f["exception"]) == {"type", "message"}


def check_place(place: dict) -> None:
    assert {"file", "line", "column", "end_line", "end_column", "function", "stack"} <= set(place)
    if not place["stack"]:
        assert place["file"] == "" and place["line"] == 0
        return
    assert place["file"].startswith("<") or os.path.isabs(place["file"])
    assert type(place["line"]) is int and place["line"] >= 1
    for column in (place["column"], place["end_column"]):
        assert column is None or type(column) is int and column >= 1
    if None not in (place["column"], place["end_column"], place["end_line"]):
        assert (place["line"], place["column"]) < (place["end_line"], place["end_column"])
    first = place["stack"][0]
    assert {k: first[k] for k in ("file", "line", "function")} == {k: place[k] for k in ("file", "line", "function")}
    for frame in place["stack"]:
        assert set(frame) == {"file", "line", "function", "user"}
        assert type(frame["user"]) is bool
        assert f"{os.sep}site-packages{os.sep}torch{os.sep}" not in frame["file"]


def check_operand(operand: dict) -> None:
    assert {"index", "name", "dtype", "shape", "device", "holder", "origin"} <= set(operand)
    assert type(operand["index"]) is int and isinstance(operand["name"], str) and operand["name"]
    assert not operand["dtype"].startswith("torch.")
    assert all(type(n) is int for n in operand["shape"])
    assert operand["holder"] in ("parameter", "buffer", "gradient", "state", None)
    assert {"kind", "name", "op"} <= set(operand["origin"])
    assert operand["origin"]["kind"] in ORIGINS
    check_place(operand["origin"])


RUNS = {
    "clean": "nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()",
    "forward": "nn.Linear(2, 2).half()(torch.ones(1, 2))",
    "weight": "model = nn.Sequential(nn.Linear(2, 2))\nmodel(torch.ones(1, 2).half())",
    "backward": "y = torch.ones(2, requires_grad=True)\nloss = F.huber_loss(y, torch.zeros(2, dtype=torch.float64))\nloss.backward()",
    "optimizer": "p = nn.Parameter(torch.ones(2).half())\no = torch.optim.AdamW([p])\np.grad = torch.ones(2).half()\np.grad.data = torch.ones(2)\no.step()",
    "scalar": "torch.ones(2).half().masked_fill(torch.ones(2) > 0, -1e9)",
    "kernel": "torch.linalg.svd(torch.ones(2, 2).half())",
    "state": "nn.LSTM(2, 2)(torch.ones(1, 1, 2), (torch.ones(1, 1, 2).half(), torch.ones(1, 1, 2).half()))",
    "handled": "try:\n    nn.Linear(2, 2).half()(torch.ones(1, 2))\nexcept RuntimeError:\n    pass",
    "list": "a = torch.ones(2)\ntorch._foreach_lerp_([a, a], [a, a.half()], 0.5)",
}


@pytest.mark.parametrize("name", RUNS)
def test_the_report_of_a_real_run(name, tmp_path):
    program = programs.run(tmp_path, RUNS[name])
    file = tmp_path / "out.json"
    program.trace.to_json(file)
    report = json.loads(file.read_text())
    check_report(report)
    if name not in ("clean", "backward"):
        assert report["findings"]
        assert report["findings"][0]["site"]["file"] == program.file
        assert report["findings"][0]["severity"] == ("note" if name == "handled" else "error")


def test_a_scalar_operand(tmp_path):
    operand = to_plain(programs.run(tmp_path, "x = torch.ones(2).half()\nx.masked_fill(x > 0, -1e9)").only.culprit)
    assert operand["dtype"] == "python float" and operand["shape"] == [] and operand["name"] == "-1e9"


def test_the_python_objects_have_the_same_names(tmp_path):
    program = programs.run(tmp_path, RUNS["forward"])
    finding = program.only

    def compare(value, plain):
        if isinstance(plain, dict):
            for key, inner in plain.items():
                compare(
                    getattr(
                        value,
                        "source" if key == "from" else key,
                        getattr(value, "place", None) and getattr(value.place, key, None),
                    ),
                    inner,
                )
        elif isinstance(plain, list):
            for item, inner in zip(value, plain, strict=True):
                compare(item, inner)
        else:
            assert value == plain

    compare(finding, to_plain(finding))
