"""Each function of ``capture/compiled/inductor.py``: what it needs of torch is there and gives what it says.

One function is compiled, in one process, and looked at from all sides.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch._inductor.utils import fresh_cache

import dtypetrace
from dtypetrace.capture.compiled import inductor, ledger


def largest(x, w):
    return (x * w).amax(-1).float().sum()


def run(function=largest):
    torch._dynamo.reset()
    torch.manual_seed(0)
    x, w = (torch.randn(8, 8).bfloat16().requires_grad_() for _ in range(2))
    torch.compile(function)(x, w).backward()
    return x.grad


@pytest.fixture(scope="module")
def compiled():
    """Two ledgers of one function: of code that was compiled, and of code from torch's cache."""
    with fresh_cache():
        traces = []
        for _ in range(2):
            with dtypetrace.trace() as trace:
                run()
            traces.append((trace, trace.recording))
    torch._dynamo.reset()
    return traces


def graphs(trace):
    (captured,) = trace._watch.recorder.ledger.captured
    return captured, captured.compiled["forward"], captured.compiled["backward"]


@pytest.mark.slow
def test_a_captured_graph(compiled):
    captured, _, _ = graphs(compiled[0][0])
    assert inductor.missing() == "" and [n.op for n in captured.nodes] == [
        "input",
        "input",
        "mul",
        "amax",
        "float",
        "sum",
    ]
    assert [n.dtype for n in captured.nodes[2:]] == ["bfloat16", "bfloat16", "float32", "float32"]
    assert {n.stack[0][2] for n in captured.nodes[2:]} == {"largest"}
    assert captured.graph is None and not captured.autocast


@pytest.mark.slow
def test_compiled_graphs(compiled):
    _, forward, backward = graphs(compiled[0][0])
    ops = {n.op: n for n in forward.nodes}
    assert {"aten.mul.Tensor", "aten.amax.default", "prims.convert_element_type.default"} <= {*ops}
    assert ops["aten.amax.default"].steps[-1] == "amax" and ops["aten.amax.default"].seq >= 0
    saved = {name for name, ends in forward.ends.items() if "saved" in ends}
    assert saved and any("returned" in ends for ends in forward.ends.values())
    assert saved == {n.name for n in backward.nodes if n.op == "input" and n.name in saved}


@pytest.mark.slow
def test_the_buffers_of_kernels(compiled):
    _, forward, _ = graphs(compiled[0][0])
    made = {b.node: b for b in forward.buffers if b.node}
    assert {b.dtype for b in made.values()} <= {"bfloat16", "float32"} and all(b.loop for b in made.values())
    (amax,) = [b for b in forward.buffers if b.node == "amax"]
    assert "mul" in amax.nodes and not amax.removed and amax.dtype == "bfloat16"
    (total,) = [b for b in forward.buffers if b.node.startswith("sum")]
    assert dict(total.reads) == {amax.names[0]: False}


@pytest.mark.slow
def test_code_from_torchs_cache_is_worked_out_again(compiled):
    (_, first), (trace, second) = compiled
    captured, _, _ = graphs(trace)
    assert second.not_seen == () and captured.texts and "# File" not in "".join(captured.texts)
    plain = [
        [(n.op, n.dtype, n.unrounded, n.memory) for g in r.regions[0].graphs for n in g.nodes] for r in (first, second)
    ]
    assert plain[0] == plain[1]


def test_without_what_it_needs_the_ledger_says_so(monkeypatch):
    monkeypatch.setattr(inductor, "_PARTS", (*inductor._PARTS, ("torch._inductor.graph", "GraphLowering.gone")))
    monkeypatch.setattr(inductor.COMPILER, "__call__", lambda self, model, inputs, **_: model.forward)
    alone = run()
    with dtypetrace.trace() as trace:
        assert torch.equal(run(), alone)
    assert trace.recording.regions == ()
    assert any(
        "this torch has no torch._inductor.graph.GraphLowering.gone" in text for text in trace.recording.not_seen
    )
    assert ledger._installed == []


def test_without_the_compilers_wrapper_nothing_is_replaced(monkeypatch):
    monkeypatch.setattr(inductor, "COMPILER", None)
    assert inductor.missing() == "torch._TorchCompileInductorWrapper"
    with dtypetrace.trace() as trace:
        torch.ones(2) + 1
    assert trace.recording.regions == () and ledger._installed == []


def test_the_text_of_a_graph_is_without_its_comments_and_the_lines_before_them():
    text = "def forward(self, a):\n\n    # File: x.py:3, code: y = a\n    b = a\n    return b"
    graph = SimpleNamespace(inductor_post_grad_graph_str=text)
    assert inductor.text_of(graph).splitlines() == ["def forward(self, a):", "    b = a", "    return b"]
