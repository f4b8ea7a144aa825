"""A compiled graph is run in three ways at once; nothing here is compiled."""

from __future__ import annotations

import pytest
import torch

from dtypetrace.records.compiled import Measured, rounding
from dtypetrace.reference import graph_runs

aten, prims = torch.ops.aten, torch.ops.prims


class Rounds:
    """Kernels that keep what is made by some nodes for others unrounded."""

    def __init__(self, early):
        self.early = early

    def in_loop(self, name):
        return True


def graph(*calls):
    """A graph from its operators; the arguments that are strings are nodes."""
    made, nodes = torch.fx.Graph(), {}
    for name, func, *args in calls:
        if func is None:
            nodes[name] = made.placeholder(name)
        else:
            nodes[name] = made.call_function(func, tuple(nodes.get(a, a) if isinstance(a, str) else a for a in args))
            nodes[name].name = name
    made.output(tuple(nodes.values()))
    return list(made.nodes)


def run(nodes, given, early=None, masks=None):
    rounds = Rounds({n.name: set() for n in nodes} | (early or {}))
    with torch.no_grad():
        return graph_runs.run(nodes, graph_runs.Given(given, {}, {}, masks or {}), rounds)


PRODUCTS = ("x", None), ("w", None), ("mul", aten.mul.Tensor, "x", "w"), ("add", aten.add.Tensor, "mul", "x")


def test_a_value_is_rounded_where_its_kernel_rounds_it():
    x, w = torch.tensor([1.0078125]).bfloat16(), torch.tensor([1.0078125]).bfloat16()
    exact = x.double() * w.double()
    kept = run(graph(*PRODUCTS), {"x": x, "w": w}, {"add": {"mul"}})
    way = kept.values["mul"]
    assert way.exact == exact and way.eager == way.kernel == exact.bfloat16()
    assert way.early.dtype is torch.float32 and way.early == exact.float()
    assert kept.values["add"].early == exact.float() + x.float()
    barred = run(graph(*PRODUCTS), {"x": x, "w": w})
    assert barred.values["add"].kernel == barred.values["add"].eager


def test_a_cast_rounds_nothing_in_float64():
    nodes = graph(
        ("x", None),
        ("half", prims.convert_element_type.default, "x", torch.float16),
        ("back", prims.convert_element_type.default, "half", torch.float32),
    )
    x = torch.tensor([1.0001])
    way = run(nodes, {"x": x}, {"back": {"half"}}).values["back"]
    assert way.exact == x.double() and way.kernel == x and way.eager == x.half().float()


def test_what_a_graph_writes_into_is_copied():
    nodes = graph(("x", None), ("add_", aten.add_.Tensor, "x", "x"))
    x = torch.ones(2)
    assert list(graph_runs.written(nodes[1])) == ["x"]
    assert run(nodes, {"x": x}).values["add_"].kernel.tolist() == [2, 2] and x.tolist() == [1, 1]


def test_a_kernel_that_refuses_float64_takes_what_eager_gives():
    nodes = graph(("x", None), ("bits", aten.view.dtype, "x", torch.int16))
    x = torch.ones(2).bfloat16()
    way = run(nodes, {"x": x}).values["bits"]
    assert way.exact is way.eager and way.exact.dtype is torch.int16


@pytest.mark.parametrize(
    ("func", "why"),
    [
        (aten.mul.Tensor, ""),
        (prims.convert_element_type.default, ""),
        (torch.sin, "it calls sin"),
    ],
)
def test_what_may_be_called_again(func, why):
    node = graph(("x", None), ("y", func, "x"))[1]
    assert graph_runs.unrepeatable(node) == why


def test_random_numbers_are_not_drawn_again():
    nodes = graph(("x", None), ("noise", aten.rand_like.default, "x"), ("mask", aten.gt.Scalar, "noise", 0.5))
    before = torch.random.get_rng_state()
    assert list(run(nodes, {"x": torch.ones(2)}).values) == ["x"]
    known = run(nodes, {"x": torch.ones(2)}, masks={"mask": torch.tensor([True, False])})
    assert known.values["mask"].exact.tolist() == [True, False]
    assert torch.equal(torch.random.get_rng_state(), before)


def test_far_is_what_rounding_and_eager_do_not_explain():
    unit = rounding(["float32", "bfloat16"])
    assert unit == 2**-8
    far = lambda *numbers: Measured(0, *numbers).is_far(unit)
    assert not far(0.02, 0.004, 0.02) and far(0.2, 0.004, 0.2) and not far(0.4, 0.16, 0.4)
    assert far(0, 0, 0, 0.5, 0.0) and not far(0, 0, 0, 0.5, 0.5)
