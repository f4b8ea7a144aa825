"""Each function of ``capture/compiled/torch_private.py``: what it needs of torch is there and does what it says."""

from __future__ import annotations

import sys

import pytest
import torch
import torch._dynamo.eval_frame as home
from torch import nn

from dtypetrace.capture.compiled import torch_private


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def double(x):
    return x * 2


def test_dynamo_is_known_once_it_is_imported(monkeypatch):
    assert torch_private.imported() is home and torch_private.is_watchable()
    monkeypatch.setitem(sys.modules, torch_private.HOME, None)
    assert torch_private.imported() is None


def test_the_door_says_where_regions_begin_and_end_and_leaves_nothing():
    seen = []

    @torch.compiler.disable
    def alone(x):
        return x + 1

    def f(x):
        return alone(x.sin()).cos()

    def begins(frame, region):
        names = "graph" if torch_private.runs_graph(frame) else torch_private.function_in(frame).__name__
        seen.append(("begins", region, names))

    before = [getattr(home, name) for name in torch_private._EVENTS]
    door = torch_private.Door(begins, lambda frame, region: seen.append(("ends", region)))
    door.install()
    compiled = torch.compile(f, backend="eager")
    result = compiled(torch.ones(2))
    assert torch.equal(result, f(torch.ones(2)))
    door.remove()
    assert [getattr(home, name) for name in torch_private._EVENTS] == before
    begun = [name for what, _, *names in seen if what == "begins" for name in names]
    assert [n for n in begun if n in ("f", "graph", "alone")] == ["f", "graph", "alone", "graph"]
    assert len(begun) == sum(what == "ends" for what, *_ in seen)
    assert seen[0][:2] == ("begins", True) and seen[-1] == ("ends", True)


def test_the_door_closes_when_the_last_region_has_ended():
    seen = []
    before = [getattr(home, name) for name in torch_private._EVENTS]
    door = torch_private.Door(lambda *_: None, lambda frame, region: seen.append(region))

    @torch.compiler.disable
    def closes(x):
        door.remove()
        assert home.set_eval_frame is not before[0]
        return x

    door.install()
    torch.compile(lambda x: closes(x) * 2, backend="eager")(torch.ones(2))
    assert seen[-1] and [getattr(home, name) for name in torch_private._EVENTS] == before


def test_the_call_in_a_region():
    found = []
    door = torch_private.Door(lambda *_: None, lambda frame, region: found.append(torch_private.call_in(frame)))
    door.install()
    x = torch.ones(2)
    y = torch.compile(double, backend="eager")(x)
    door.remove()
    call = found[-1]
    assert call.function is double and call.args[0] is x and call.kwargs == {} and call.result is y


def test_what_is_skipped_is_not_compiled():
    torch._dynamo.utils.counters.clear()
    assert torch_private.skip(double)

    @torch.compile(backend="eager")
    def f(x):
        torch._dynamo.graph_break()
        return x.sin()

    torch.compile(double, backend="eager")(torch.ones(2))
    assert not torch._dynamo.utils.counters["frames"]
    f(torch.ones(2))
    assert torch._dynamo.utils.counters["frames"]["ok"]


def test_modes_that_ignore_compiled_code():
    assert torch_private.leaves_modes_on() == hasattr(torch_private.TorchDispatchMode, "ignore_compile_internals")


def test_compiled_autograd_is_known():
    assert not torch_private.compiled_autograd()
    with torch._dynamo.config.patch(compiled_autograd=True):
        assert torch_private.compiled_autograd()
    with torch._dynamo.compiled_autograd._enable(double):
        assert torch_private.compiled_autograd()


def test_the_engine_calls_what_is_named():
    """Each graph of AOTAutograd's is a function whose backward goes through one of them."""
    called = []
    assert torch_private.BACKWARD_CALLS
    x = torch.ones(2, requires_grad=True)
    y = torch.compile(lambda x: x.sin().sum(), backend="aot_eager")(x)
    assert hasattr(y.grad_fn._forward_cls, "_aot_id")
    for name in torch_private.BACKWARD_CALLS:
        original = getattr(type(y.grad_fn), name)
        setattr(type(y.grad_fn), name, lambda *args, f=original, name=name: (called.append(name), f(*args))[1])
    y.backward()
    assert len(called) == 1


def test_the_call_that_dynamo_could_not_make():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1, 2, 8).half())

        def forward(self, x):
            return nn.functional.scaled_dot_product_attention(x[0], x[0], self.weight)

    net, x = Net(), torch.ones(1, 2, 8)
    with pytest.raises(RuntimeError) as raised:
        torch.compile(net, backend="eager")([x])
    node = torch_private.refused_node(raised.value)
    assert node.target is nn.functional.scaled_dot_product_attention
    given = torch_private.given(raised.value)
    inputs = [n.name for n in node.graph.nodes if n.op == "placeholder"]
    assert {id(given[name]) for name in inputs} == {id(x), id(net.weight)}
    assert torch_private.mapped(node.args, lambda n: n.name) == tuple(n.name for n in node.args)
    assert torch_private.refused_node(ValueError()) is None and torch_private.given(ValueError()) == {}


def test_the_eager_stance():
    ran = []
    restore = torch_private.force_eager(lambda: ran.append(1))
    compiled = torch.compile(double, backend="eager")
    compiled(torch.ones(2))
    assert ran and home._stance.stance == "force_eager"
    with torch_private.stance_off():
        assert home._stance.stance == "default"
    restore()
    assert home._stance.stance == "default"
