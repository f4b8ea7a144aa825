"""What operators do follows from torch's schema where it is known, else from names of operators that exist."""

from __future__ import annotations

import operator
from pathlib import Path

import pytest
import torch

import dtypetrace
from dtypetrace.records import Input, Op
from dtypetrace.tables import operators

HOMES = (torch, torch.Tensor, torch.nn.functional, torch.ops.aten)


def op(aten: str, *inputs: str, outputs: tuple[str, ...] = ("float32",), effect: str = "", written=()) -> Op:
    operands = tuple(Input(dtype) for dtype in inputs)
    return Op("call", aten, "forward", "", -1, operands, outputs, 1, effect=effect, written=written)


KNOWN = (*HOMES, torch.Tensor, torch.ops.prims, torch.ops.quantized, torch._C._nn, operator)
COMPILED = "getitem inductor_random inductor_seeds inductor_lookup_seed iota _low_memory_max_pool_with_offsets"


@pytest.mark.parametrize("name", sorted(operators.names(*operators._TAGS) - set(COMPILED.split())))
def test_every_name_in_the_table_is_one_of_torch_or_python(name):
    assert any(hasattr(home, n) for home in KNOWN for n in (name, f"{name}_", f"__{name}__")), name


def test_every_tag_in_the_table_is_described_there():
    text = (Path(operators.__file__).parent / "operators.txt").read_text("utf-8")
    described = {
        tag for line in text.splitlines() if line.startswith("# ") for tag in line[2:].partition(": ")[0].split(", ")
    }
    assert operators._TAGS.keys() <= described


def test_cast_methods_cast_to_the_dtype_they_name():
    for method, dtype in operators.CAST_METHODS.items():
        assert getattr(torch.zeros(1), method)().dtype is getattr(torch, dtype)


def test_names_decide_where_no_schema_was_recorded():
    assert operators.is_move(op("view.default", "float32")) and not operators.is_move(op("mul.Tensor", "float32"))
    assert operators.destination(op("add_.Tensor", "float32", "float32")) == 0
    assert operators.destination(op("add.out", "float32", "float32", "float32")) == 2
    assert operators.destination(op("__iand__.Tensor", "bool", "bool")) == -1


def test_a_recorded_schema_comes_before_names():
    assert operators.is_move(op("some_library_view.default", "float32", effect="view"))
    assert not operators.is_move(op("view.dtype", "int32", effect="view"))
    assert operators.destination(op("quiet_write.default", "float32", "float32", effect="write", written=(1,))) == 1
    assert operators.destination(op("native_batch_norm.default", *["float32"] * 5, effect="new", written=(3, 4))) == -1


def test_views_and_writes_are_recorded_with_their_ops():
    x, kept, noise = torch.ones(4, 3), torch.zeros(3, 4), torch.zeros(4, 3)
    with dtypetrace.trace() as t:
        x.unfold(0, 2, 1)
        torch.add(x, x, out=kept.t())
        torch._foreach_add_([kept, kept.clone()], 1.0)
        x.squeeze_()
        torch.ops.aten.rrelu_with_noise(x, noise, training=True)  # a new tensor, and beside it the noise is written
        x * 2
    seen = {o.aten.partition(".")[0]: (o.effect, o.written) for o in t.recording.ops}
    assert seen["unfold"] == seen["t"] == seen["squeeze_"] == ("view", ())
    assert seen["add"] == ("write", (2,))
    assert seen["_foreach_add_"] == ("write", (0, 1))
    assert seen["mul"] == ("new", ())
    assert seen["rrelu_with_noise"] == ("new", (1,))
