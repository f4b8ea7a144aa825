"""What compiled code makes of each call, as rows of a table, and compared between two runs."""

from __future__ import annotations

from dataclasses import replace

from dtypetrace.compare.differences import compare
from dtypetrace.records import Frame, Place, Recording
from dtypetrace.records.compiled import Graph, Node, Region, Step
from dtypetrace.render import differences, listings

FORWARD = Graph(
    "forward",
    (
        Node("input", "bfloat16", -1, ""),
        Node("aten.mul.Tensor", "bfloat16", 0, "", (0, 0), step=0, seq=1),
        Node("aten.amax.default", "bfloat16", 0, "", (1,), (0,), ("saved",), step=1, seq=2, memory="bfloat16"),
    ),
)
BACKWARD = Graph("backward", (Node("aten.mul.Tensor", "bfloat16", 0, "", seq=1),))
STEPS = (Step("mul", "bfloat16", 0, ""), Step("amax", "bfloat16", 0, ""))
RECORDING = Recording(
    places=(Place((Frame("x.py", 3, "f", True),)),), regions=(Region("f", 0, STEPS, (FORWARD, BACKWARD)),)
)


def test_each_call_has_a_row():
    rows = [
        (r.region, r.op, r.phase, r.line, r.says, r.kernel, r.saved, r.memory) for r in listings.compiled(RECORDING)
    ]
    assert rows == [
        ("f", "mul", "forward", 3, "bfloat16", "float32", "", ""),
        ("f", "amax", "forward", 3, "bfloat16", "bfloat16", "bfloat16", "bfloat16"),
        ("f", "mul", "backward", 3, "", "bfloat16", "", ""),
    ]


def test_two_ledgers_are_compared():
    rounded = replace(FORWARD, nodes=(*FORWARD.nodes[:2], replace(FORWARD.nodes[2], unrounded=())))
    other = replace(RECORDING, regions=(replace(RECORDING.regions[0], graphs=(rounded, BACKWARD)),))
    assert compare(RECORDING, RECORDING).same
    found = compare(RECORDING, other)
    (change,) = found.compiled
    assert (change.op, change.changed) == ("mul", (("is handed on in", "float32", "bfloat16"),))
    assert "compiled mul (forward)  x.py:3: is handed on in float32 in a, bfloat16 in b" in differences.text(
        found, ("a", "b")
    )
