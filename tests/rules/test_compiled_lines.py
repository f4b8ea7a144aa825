"""What compiled code makes of each call, as rows of a table, and compared between two runs."""

from __future__ import annotations

from dataclasses import replace

from dtypetrace.compare.differences import compare
from dtypetrace.records import Frame, Op, Place, Recording
from dtypetrace.records.compiled import Graph, Node, Region, Step
from dtypetrace.render import differences, listings, module_tree, timeline
from dtypetrace.tables.operators import COMPILED

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


def test_the_tree_and_the_timeline_show_what_is_inside_compiled_code():
    call = Op("compiled Net", COMPILED, "forward", "net", 0, (), ("float32",), 2)
    graph = Graph(
        "forward",
        (
            Node("input", "bfloat16", -1, ""),
            Node("aten.mm.default", "bfloat16", 0, "a", (0, 0), nbytes=8),
            Node("aten.reshape.default", "bfloat16", 0, "a", (1,), nbytes=8),
            Node("aten.add.Tensor", "bfloat16", 0, "___stack0.1", (1, 1), nbytes=8),
            Node("prims.convert_element_type.default", "float32", 0, "", (3,), nbytes=16),
        ),
    )
    again = replace(graph, phase="backward", nodes=graph.nodes[:2])
    backward = replace(call, phase="backward", of=0)
    recording = Recording(
        places=RECORDING.places,
        modules=("net", "net.a", "net.h.0", "net.h.1"),
        ops=(call, backward),
        regions=(Region("forward", 0, (), (graph, again), call=0),),
    )
    (net,) = module_tree.tree(recording)
    assert dict(net.computed) == {"bfloat16": 32, "float32": 32} and dict(net.gradients) == {"bfloat16": 16}
    a, h = net.children
    assert dict(a.computed) == dict(h.computed) == {"bfloat16": 16} and [c.name for c in h.children] == ["1"]
    strips = timeline.timeline(recording, listings.ops(recording)).strips
    assert [(s.phase, s.shares) for s in strips] == [
        ("forward", [("bf16", 67), ("f32", 33)]),
        ("backward", [("bf16", 100)]),
    ]
