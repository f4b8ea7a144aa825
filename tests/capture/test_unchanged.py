"""What is recorded of casts that changed nothing, and of dtypes that a call named."""

from __future__ import annotations

import pytest
import torch

import dtypetrace


def test_casts_to_the_dtype_that_a_tensor_has_are_remembered_once():
    x, like = torch.ones(3), torch.zeros(3)
    with dtypetrace.trace() as t:
        for _ in range(3):
            y = x * 2
            y.float()
            y.to(like.dtype)
            y.type_as(like)
            y.to("cpu")  # no dtype
    seen = [(u.op, u.dtype, t.recording.ops[u.producer].op, len(u.reads)) for u in t.recording.unchanged]
    assert seen == [("float", "float32", "mul", 0), ("to", "float32", "mul", 1), ("type_as", "float32", "mul", 1)]


def test_a_cast_that_changes_something_is_an_op_and_not_remembered():
    with dtypetrace.trace() as t:
        torch.ones(3).half().to(torch.float32)
    assert not t.recording.unchanged


def test_a_read_knows_the_op_that_made_its_tensor():
    with dtypetrace.trace() as t:
        y = torch.ones(3).half() * 2
        torch.ones(3).to(y.dtype)
    read = next(r for s in t.recording.events for r in s.reads)
    assert t.recording.ops[read.producer].op == "mul"


def test_a_read_that_only_an_outer_call_has_in_common_gives_no_dtype():
    def cast(x, dtype):
        return x.to(dtype)

    def looks(x):
        assert x.dtype is torch.float16

    def whole():
        y = torch.ones(3).half()
        looks(y)
        chosen = {"half": torch.float16}["half"]
        cast(torch.ones(2), chosen)
        cast(torch.ones(2), y.dtype)

    with dtypetrace.trace() as t:
        whole()
    written = [[r.written for r in e.reads] for e in t.recording.events if e.how == "cast"]
    assert written.count(["y.dtype"]) == 1 and sum(map(len, written)) == 1


def test_the_dtype_that_a_call_names():
    with dtypetrace.trace() as t:
        torch.softmax(torch.ones(3), -1, dtype=torch.float32)
        torch.ones(3) * 2
    named = {o.aten: o.named for o in t.recording.ops}
    assert named["_softmax.default"] == "float32" and named["mul.Tensor"] == ""


@pytest.mark.parametrize("named", [torch.as_tensor, torch.asarray])
def test_a_call_that_returns_its_own_tensor_decides_its_dtype(named):
    with pytest.raises(RuntimeError), dtypetrace.trace() as t:
        rows = torch.rand(2, 4)
        kept = named(rows, dtype=torch.float32)
        torch.ones(2, 2, dtype=torch.bfloat16) @ kept
    (finding,) = t.findings
    first = test_a_call_that_returns_its_own_tensor_decides_its_dtype.__code__.co_firstlineno
    assert finding.culprit.origin.place.stack[0].line == first + 4
