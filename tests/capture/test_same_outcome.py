"""Programs give the same values, warnings and random numbers with a trace and without."""

from __future__ import annotations

import pytest
import torch
import torch.nn.utils.prune
from harmless import mlp, outcome, quick, whole  # noqa: F401 - fixtures
from harmless_programs import (
    PROGRAMS,
    Functions,
    Operators,
    generators,
    higher_order_operators,
    threads,
    transformer_encoder,
    work,
)
from outcomes import OPTIONS, EmptyPair
from torch import nn

import dtypetrace


@pytest.fixture
def every_warning():
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(always)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_the_program_ends_the_same(program, every_warning):
    program()  # what torch does only the first time
    untraced = outcome(program)
    assert outcome(program) == untraced, "the program itself does not end the same twice"
    trace = dtypetrace.trace()
    assert outcome(program, trace) == untraced
    whole(trace)
    assert not [f for f in trace.findings if f.kind == "collision"], trace
    assert trace.recording.ops or program in (threads,)
    trace.to_networkx(), repr(trace)


def beside_an_empty_mode(make):
    """What torch shows beside an empty pair of modes, where that differs: 2.8 and 2.9 then call ``detach`` more often in C++."""
    return [make()] if torch.torch_version.TorchVersion(torch.__version__) < (2, 10) else []


class Both:
    """A function mode and a dispatch mode, one in the other."""

    def __init__(self):
        self.modes = [Functions(), Operators()]
        self.seen = [mode.seen for mode in self.modes]

    def __enter__(self):
        for mode in self.modes:
            mode.__enter__()

    def __exit__(self, *error):
        for mode in reversed(self.modes):
            mode.__exit__(*error)


def a_device():
    return torch.device("cpu")


@pytest.mark.parametrize(
    ("program", "mode"),
    # torch.cond itself fails in a dispatch mode, with or without a trace
    [(p, m) for p in (work, transformer_encoder, generators) for m in (Functions, Operators, Both, a_device)]
    + [(higher_order_operators, Functions), (higher_order_operators, a_device)],
    ids=lambda f: f.__name__,
)
def test_the_program_ends_the_same_inside_modes_of_its_own(program, mode, every_warning):
    """The program's own modes see the same functions and operators whether they lie around the trace or in it."""
    program()

    def seen(order: slice, *watch):
        around = mode()
        return outcome(program, *(around, *watch)[order]), getattr(around, "seen", None)

    try:
        expected = seen(slice(None))
    except (RuntimeError, AssertionError) as error:
        pytest.skip(f"torch {torch.__version__} itself fails in this mode: {type(error).__name__}")
    for order in (slice(None), slice(None, None, -1)):
        trace = dtypetrace.trace()
        got = seen(order, trace)
        assert got == expected or got in beside_an_empty_mode(lambda order=order: seen(order, EmptyPair()))
        whole(trace)
        assert trace.findings == ()


class Packed(nn.Parameter):
    """A parameter with a property of its own, as quantization libraries make them: no ``__torch_dispatch__``."""

    def __new__(cls, data, kind="nf4"):
        self = torch.Tensor._make_subclass(cls, data, False)
        self.kind = kind
        return self

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_parameter_of_a_class_of_its_own():
    def program():
        module = nn.Linear(4, 4)
        module.weight = Packed(torch.randn(4, 4))
        y = module(torch.randn(2, 4))
        return y, type(module.weight).__name__, type(y).__name__, module.weight.kind, (module.weight * 2).detach()

    untraced = outcome(program)
    trace = dtypetrace.trace()
    assert outcome(program, trace) == untraced
    whole(trace)


def lines_of_a_debug_mode(watch) -> int:
    debug_mode = pytest.importorskip("torch.utils._debug_mode").DebugMode
    model = mlp()
    with debug_mode() as debug, watch:
        model(torch.ones(2, 8)).sum().backward()
    return debug.debug_string().count("\n")


def test_what_any_dispatch_mode_changes_a_trace_changes_in_the_same_way():
    watched = [lines_of_a_debug_mode(watch()) for watch in (EmptyPair, dtypetrace.trace)]
    assert watched[0] == watched[1]


@pytest.fixture
def mesh(tmp_path):
    """One process that is a whole job."""
    distributed = pytest.importorskip("torch.distributed")
    pytest.importorskip("torch.distributed.tensor")
    distributed.init_process_group(
        "gloo", store=distributed.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    yield distributed.device_mesh.init_device_mesh("cpu", (1,))
    distributed.destroy_process_group()


def test_a_module_of_distributed_tensors_is_cast_while_it_is_watched(mesh):
    """``module.to`` swaps such weights, which torch refuses for tensors with weak references."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    def program():
        model = nn.Linear(4, 4)
        model.weight = nn.Parameter(distribute_tensor(torch.arange(16.0).view(4, 4), mesh, [Shard(0)]))
        model.bias = nn.Parameter(distribute_tensor(torch.ones(4), mesh, [Replicate()]))
        weight = model.weight
        model.to(torch.float64)
        loss = model(distribute_tensor(torch.ones(2, 4, dtype=torch.float64), mesh, [Replicate()])).sum()
        loss.backward()
        local, gradient = model.weight.to_local(), model.weight.grad.to_local()
        return type(weight).__name__, weight is model.weight, local.detach(), gradient, loss.full_tensor().detach()

    untraced = outcome(program)
    for option in ("plain", "reference"):
        trace = dtypetrace.trace(**OPTIONS[option])
        assert outcome(program, trace) == untraced
        whole(trace)
        assert trace.findings == ()


def test_graphs_traced_inside_the_block():
    from torch.fx.experimental.proxy_tensor import make_fx

    def program():
        model, x = mlp(), torch.randn(4, 8)
        graph = make_fx(model)(x)
        exported = torch.export.export(model, (x,))
        symbolic = torch.fx.symbolic_trace(model)
        return graph.code, exported.graph_module.code, symbolic.code, graph(x), exported.module()(x), symbolic(x)

    program()
    untraced = outcome(program)
    trace = dtypetrace.trace()
    assert outcome(program, trace) in [untraced, *beside_an_empty_mode(lambda: outcome(program, EmptyPair()))]
    whole(trace)
