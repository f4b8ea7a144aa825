"""Watching changes nothing: not the process after the block, not the program's values, exceptions or random numbers in it.

First what is left behind, however the block ends; then what is kept alive and what grows; then exceptions; then programs
that are run with and without a trace and have to end bit for bit the same; then which phase, module and line an op gets.
"""

from __future__ import annotations

import copy
import gc
import io
import signal
import subprocess
import sys
import threading
import time
import traceback
import tracemalloc
import warnings
import weakref
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import torch.nn.utils.prune
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.checkpoint import checkpoint

import dtypetrace

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _quick():
    """One thread; and the collector passes over what was there before the test, which is most of what it would look at."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    torch.set_num_threads(threads)


def mlp(width: int = 8) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, width))


def whole(trace) -> None:
    """The trace recorded to its end."""
    assert trace._watch.recorder.broken is False, trace.recording.not_seen


# ---------------------------------------------------------------- how a block can end


class Raises(nn.Module):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error
        self.inner = mlp()

    def forward(self, x):
        self.inner(x)
        raise self.error


class RaisesInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, error):
        ctx.error = error
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        raise ctx.error


class Refused(torch.autograd.Function):
    """Its backward multiplies matrices of two dtypes."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad @ torch.ones(8, 8, dtype=torch.float64)


def succeed(model, x, error):
    model(x).sum().backward()


def raise_after_forward(model, x, error):
    model(x)
    raise error


def raise_in_forward(model, x, error):
    nn.Sequential(model, Raises(error))(x)


def raise_in_pre_hook(model, x, error):
    def hook(module, args):
        raise error

    model[2].register_forward_pre_hook(hook)
    model(x)


def raise_in_hook(model, x, error):
    def hook(module, args, result):
        raise error

    model[0].register_forward_hook(hook)
    model(x)


def raise_in_custom_backward(model, x, error):
    RaisesInBackward.apply(model(x), error).sum().backward()


def raise_in_tensor_hook(model, x, error):
    def hook(grad):
        raise error

    y = model(x)
    y.register_hook(hook)
    y.sum().backward()


def raise_in_recompute(model, x, error):
    calls = []

    def part(x):
        calls.append(x.shape)
        if len(calls) > 1:
            raise error
        return model(x)

    checkpoint(part, x, use_reentrant=False).sum().backward()


def raise_in_optimizer(model, x, error):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(x).sum().backward()

    def closure():
        raise error

    optimizer.step(closure)


def refuse_in_forward(model, x, error):
    model(x.double())


def refuse_in_backward(model, x, error):
    Refused.apply(model(x)).sum().backward()


RAISING = [
    raise_after_forward,
    raise_in_forward,
    raise_in_pre_hook,
    raise_in_hook,
    raise_in_custom_backward,
    raise_in_tensor_hook,
    raise_in_recompute,
    raise_in_optimizer,
]
ENDINGS = [
    (succeed, None),
    *((ending, kind) for ending in RAISING for kind in (ValueError, KeyboardInterrupt, SystemExit)),
    (refuse_in_forward, RuntimeError),
    (refuse_in_backward, RuntimeError),
]
endings = pytest.mark.parametrize(("ending", "kind"), ENDINGS, ids=lambda value: getattr(value, "__name__", None))


def process() -> dict:
    """All that a trace touches in the process, or could."""
    import torch._dynamo.eval_frame as dynamo

    shared = {
        f"{module.__name__}.{name}": dict(value)
        for module in (torch.nn.modules.module, sys.modules["torch.optim.optimizer"])
        for name, value in vars(module).items()
        if name.startswith("_global_") and isinstance(value, dict)
    }
    assert len(shared) >= 9
    return shared | {
        "function modes": torch.overrides._get_current_function_mode_stack(),
        "dispatch modes": _python_dispatch._get_current_dispatch_mode_stack(),
        "flags of the dispatch modes": [v for k, v in vars(_python_dispatch).items() if k.startswith("_is_in_")],
        "stance": dynamo._stance,
        "default dtype": torch.get_default_dtype(),
        "filters": list(warnings.filters),
        "showing": (warnings.showwarning, warnings._showwarnmsg, warnings._showwarnmsg_impl, warnings.warn),
        "functions": (torch.set_default_dtype, torch.compile, nn.Parameter.__dict__["__new__"], torch.Tensor.backward),
        "scripted": tuple(kind.__dict__["__call__"] for kind in (torch._C.ScriptFunction, torch._C.ScriptMethod)),
        "functions in C": (
            torch._C._set_default_dtype,
            torch._C._set_default_tensor_type,
            torch._C._log_api_usage_once,
        ),
        "reducer": ForkingPickler._extra_reducers.get(torch.Tensor),
        "hooks": (sys.excepthook, threading.excepthook, list(sys.meta_path), sys.gettrace(), sys.getprofile()),
        "grad": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()),
        "autocast": (
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            torch.is_autocast_cache_enabled(),
        ),
        "checks": torch._C._is_torch_function_enabled(),
    }


def end(ending, kind, watch=None):
    """Runs one ending in the block, on a new model. Returns weak references to what took part."""
    torch.manual_seed(0)
    model, x = mlp(), torch.rand(4, 8)
    error = kind("stop") if kind else None
    raised = None
    try:
        if watch is None:
            ending(model, x, error)
        else:
            with watch:
                ending(model, x, error)
    except BaseException as caught:
        raised = caught
    assert type(raised) is (kind or type(None))
    if kind is not RuntimeError:
        assert raised is error
    if raised is not None:
        raised.__traceback__ = None  # a graph that holds an exception that holds its frames is never freed
    return [weakref.ref(v) for v in (model, x, *model.parameters(), *(m for m in model.modules()))]


@endings
def test_the_process_is_left_as_it_was_found(ending, kind):
    before = process()
    end(ending, kind)
    random = torch.get_rng_state()
    assert process() == before, "the ending itself leaves something behind"
    trace = dtypetrace.trace()
    end(ending, kind, trace)
    assert process() == before
    assert torch.equal(torch.get_rng_state(), random)
    whole(trace)


@endings
def test_nothing_is_kept_alive(ending, kind):
    def alive(references):
        gc.collect()
        return [type(r()) for r in references if r() is not None]

    assert alive(end(ending, kind)) == [], "the ending itself keeps something alive"
    trace = dtypetrace.trace()
    references = end(ending, kind, trace)
    assert alive(references) == []
    assert trace.recording.ops
    trace.findings
    assert alive(references) == []


def test_the_block_frees_what_the_program_frees():
    """A loss and its graph die inside the block when the program drops them, without a collection."""
    model, x = mlp(), torch.rand(4, 8)
    with dtypetrace.trace(model) as trace:
        gc.disable()
        try:
            y = model(x)
            alive = weakref.ref(y)
            y.sum().backward()
            del y
            assert alive() is None
        finally:
            gc.enable()
    whole(trace)


def test_a_trace_that_is_never_closed_ends_with_its_generator():
    def watched():
        with dtypetrace.trace() as trace:
            yield trace

    before = process()
    generator = watched()
    next(generator)
    torch.ones(2) * 2
    del generator
    assert process() == before


def test_filters_that_are_put_back_after_the_block_hold_none_of_ours():
    before = process()
    caught = warnings.catch_warnings()
    with dtypetrace.trace():
        caught.__enter__()
        warnings.simplefilter("ignore")
    caught.__exit__(None, None, None)
    assert process() == before


def test_what_the_program_sets_inside_the_block_stays():
    def show(*args):
        pass

    def compile(model):
        return model

    filters, shows, compiles = warnings.filters[:], warnings.showwarning, torch.compile
    try:
        with dtypetrace.trace():
            warnings.simplefilter("error", ResourceWarning)
            warnings.showwarning = show
            torch.compile = compile
            torch.set_default_dtype(torch.float64)
            handle = nn.modules.module.register_module_forward_hook(lambda *args: None)
        assert warnings.filters[0][0] == "error"
        assert warnings.showwarning is show
        assert torch.compile is compile
        assert torch.get_default_dtype() is torch.float64
        assert list(nn.modules.module._global_forward_hooks) == [handle.id]
        handle.remove()
    finally:
        warnings.filters[:], warnings.showwarning, torch.compile = filters, shows, compiles
        torch.set_default_dtype(torch.float32)


# ---------------------------------------------------------------- what grows


def steps_of_mlp():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.rand(4, 8)

    def step():
        optimizer.zero_grad()
        F.mse_loss(model(x), x).backward()
        optimizer.step()

    return step


def steps_of_autocast():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu")
    x, y = torch.rand(2, 3, 8, 8), torch.tensor([1, 2])

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    return step


def steps_of_checkpoint():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    x = torch.rand(4, 8)

    def step():
        optimizer.zero_grad(set_to_none=False)
        checkpoint(model, x, use_reentrant=False).sum().backward()
        optimizer.step()

    return step


def steps_of_lstm():
    model = nn.LSTM(4, 8, 2, batch_first=True)
    state = None

    def step():
        nonlocal state
        y, state = model(torch.rand(2, 5, 4), state)
        state = tuple(s.detach() for s in state)
        y.sum().backward()

    return step


def steps_that_fail():
    model = mlp()
    x = torch.rand(4, 8)

    def step():
        try:
            model(x.double())
        except RuntimeError:
            pass

    return step


def steps_that_make_modules():
    x = torch.ones(2, 8, requires_grad=True)

    def step():
        nn.MSELoss()(nn.Sequential(nn.Linear(8, 8), nn.ReLU())(x), x).backward()

    return step


def steps_that_widen():
    state = {"x": torch.ones(4, dtype=torch.float16)}

    def step():
        state["x"] = (state["x"].half() + torch.ones(4)) * 0.5

    return step


STEPS = [
    steps_of_mlp,
    steps_of_autocast,
    steps_of_checkpoint,
    steps_of_lstm,
    steps_that_fail,
    steps_that_make_modules,
    steps_that_widen,
]


@pytest.mark.parametrize("make", STEPS)
def test_the_same_step_again_adds_no_record(make):
    torch.manual_seed(0)

    def records():
        gc.collect()
        r = trace._watch.recorder
        r.origins.sweep()
        tables = (
            r.ops,
            r.origins.steps,
            r.places,
            r.refusals.records,
            r.origins.marks,
            r.modules._entries,
            r.modules.roots,
            r.not_seen,
        )
        return [len(table) for table in tables]

    counts = []
    with dtypetrace.trace() as trace:
        step = make()
        for _ in range(20):
            step()
            counts.append(records())
    # what an optimizer makes in its first step is met as such only in its second
    assert counts[2:] == counts[1:2] * 18
    whole(trace)


def test_twenty_steps_need_no_memory():
    sizes = []
    tracemalloc.start()
    try:
        with dtypetrace.trace() as trace:
            step = steps_of_mlp()
            for _ in range(23):
                step()
                gc.collect()
                sys._clear_type_cache()  # Python's own: it holds the attribute names that C++ looks up
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[-1] - sizes[2] < 4_096, sizes
    whole(trace)


# ---------------------------------------------------------------- exceptions


def refuse(model):
    model(torch.ones(2, 8, dtype=torch.float64))


def frames(error: BaseException) -> list[tuple[str, int]]:
    """The traceback's frames outside torch."""
    return [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__) if "/torch/" not in f.filename]


def test_the_exception_that_leaves_is_the_one_that_was_raised():
    model = mlp()
    caught = []

    class Remembers(nn.Module):
        def forward(self, x):
            try:
                return model(x)
            except RuntimeError as error:
                caught.append(error)
                raise

    def leave(watch):
        with pytest.raises(RuntimeError) as info:
            with watch:
                refuse(Remembers())
        return info.value

    plain = leave(torch.enable_grad())
    trace = dtypetrace.trace()
    error = leave(trace)
    assert error is caught[1]
    assert (type(error), str(error), error.args) == (type(plain), str(plain), plain.args)
    assert frames(error) == frames(plain)
    assert (error.__cause__, error.__context__, error.__suppress_context__) == (None, None, False)
    assert error.__notes__ and not hasattr(plain, "__notes__")
    assert any("DT101" in note for note in error.__notes__)
    assert [f.severity for f in trace.findings] == ["error"]


def test_an_exception_that_the_program_handles_is_left_alone():
    model, errors = mlp(), []
    with dtypetrace.trace() as trace:
        for _ in range(3):
            try:
                refuse(model)
            except RuntimeError as error:
                errors.append(error)
    assert not any(hasattr(e, "__notes__") for e in errors)
    [finding] = trace.findings
    assert (finding.kind, finding.severity, finding.count) == ("collision", "note", 3)


def test_another_exception_than_the_handled_one_gets_no_note():
    with pytest.raises(ValueError, match="other") as info:
        with dtypetrace.trace() as trace:
            try:
                refuse(mlp())
            except RuntimeError:
                pass
            raise ValueError("other")
    assert not hasattr(info.value, "__notes__")
    assert [f.severity for f in trace.findings] == ["note"]


def test_an_exception_raised_from_the_refused_one_gets_the_notes():
    with pytest.raises(ValueError) as info:
        with dtypetrace.trace() as trace:
            try:
                refuse(mlp())
            except RuntimeError as error:
                cause = error
                raise ValueError("the batch is bad") from error
    assert info.value.__cause__ is cause
    assert not hasattr(cause, "__notes__")
    assert info.value.__notes__
    assert [f.severity for f in trace.findings] == ["error"]


def test_notes_of_the_programs_own_stay_first():
    with pytest.raises(RuntimeError) as info:
        with dtypetrace.trace():
            try:
                refuse(mlp())
            except RuntimeError as error:
                error.add_note("in epoch 3")
                raise
    assert info.value.__notes__[0] == "in epoch 3"
    assert len(info.value.__notes__) > 1


@pytest.mark.parametrize(
    "ending",
    [raise_in_forward, raise_in_custom_backward, raise_in_tensor_hook, raise_in_recompute],
    ids=lambda f: f.__name__,
)
def test_tracebacks_lead_through_the_same_lines(ending):
    def raised(watch):
        torch.manual_seed(0)
        with pytest.raises(ValueError) as info:
            with watch:
                ending(mlp(), torch.rand(4, 8), ValueError("stop"))
        return info.value

    plain, error = raised(torch.enable_grad()), raised(dtypetrace.trace())
    assert frames(error) == frames(plain)
    assert [type(e) for e in chain(error)] == [type(e) for e in chain(plain)]


def chain(error):
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def test_two_open_traces_in_one_thread():
    with dtypetrace.trace() as outer:
        with pytest.raises(RuntimeError) as info:
            with dtypetrace.trace():
                raise AssertionError("the block ran")
        mlp()(torch.rand(2, 8))
    message = str(info.value)
    assert "already open" in message and f"{__file__}:" in message and "\n" not in message
    assert outer.recording.ops and outer.findings == ()
    with pytest.raises(RuntimeError) as info:
        with outer:
            pass
    assert "\n" not in str(info.value)


@pytest.mark.parametrize(
    "model", [lambda x: x, [nn.Linear(2, 2)], nn.Linear, "model"], ids=["function", "list", "class", "text"]
)
def test_a_model_that_is_no_module(model):
    with pytest.raises(TypeError, match="torch.nn.Module") as info:
        dtypetrace.trace(model)
    assert "\n" not in str(info.value)


# ---------------------------------------------------------------- programs that must end the same


def train(model, loss_of, steps=3, make=torch.optim.AdamW):
    optimizer = make(model.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, [p.grad for p in model.parameters()], model.state_dict(), optimizer.state_dict()


def mlp_with_dropout_and_adamw():
    model = nn.Sequential(mlp(), nn.Dropout(0.3), nn.LayerNorm(8))
    return train(model, lambda m: F.mse_loss(m(torch.randn(4, 8)), torch.randn(4, 8)))


def every_optimizer():
    found = []
    for name in ("SGD", "Adam", "Adagrad", "RMSprop", "NAdam", "Adafactor", "Muon"):
        make = getattr(torch.optim, name)
        model = nn.Linear(8, 8, bias=name != "Muon")
        found.append(train(model, lambda m: m(torch.randn(4, 8)).square().mean(), 2, make))
    for extra in ({"foreach": True}, {"fused": True}):
        found.append(
            train(
                nn.Linear(8, 8),
                lambda m: m(torch.randn(4, 8)).square().mean(),
                2,
                lambda p, lr: torch.optim.AdamW(p, lr=lr, **extra),
            )
        )
    return found


def swapped_tensors():
    """Conversion swaps the weights of wrapper subclasses with what they became; torch refuses it for what is held weakly."""
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model = mlp()
        first = model(torch.randn(2, 8)).sum().item()
        model.double().load_state_dict({name: t + 1 for name, t in model.state_dict().items()})
        losses = train(model, lambda m: m(torch.randn(4, 8, dtype=torch.float64)).square().mean(), 2)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    wrapped = nn.Linear(2, 2, bias=False)
    wrapped.weight = nn.Parameter(TwoTensor(torch.ones(2, 2), torch.ones(2, 2)))
    wrapped.to(torch.float64)
    x, y, held = torch.ones(2), torch.zeros(3), torch.ones(1)
    torch.utils.swap_tensors(x, y)
    reference = weakref.ref(held)
    with pytest.raises(RuntimeError, match="weakref associated") as refused:
        torch.utils.swap_tensors(held, x)
    return first, losses, wrapped.weight.a, wrapped.weight.dtype, x, y, str(refused.value), reference() is held


def lbfgs_with_a_closure():
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    x = torch.randn(4, 8)

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x)
        loss.backward()
        return loss

    return [optimizer.step(closure).detach() for _ in range(2)], model.state_dict()


def conv_net_under_autocast():
    step = steps_of_autocast()
    for _ in range(3):
        step()
    cells = dict(zip(step.__code__.co_freevars, (c.cell_contents for c in step.__closure__)))
    return cells["model"].state_dict(), [p.grad for p in cells["model"].parameters()], cells["scaler"].state_dict()


def float16_model():
    model = mlp().half()
    return train(model, lambda m: m(torch.randn(4, 8).half()).float().square().mean(), make=torch.optim.SGD)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = mlp()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return x + self.drop(self.inner(x))


def checkpointed(**options):
    blocks = nn.ModuleList(Block() for _ in range(3))

    def loss_of(model):
        x = torch.randn(4, 8, requires_grad=True)
        for block in model:
            x = checkpoint(block, x, **options)
        return x.square().mean()

    return train(blocks, loss_of)


def checkpoint_reentrant():
    return checkpointed(use_reentrant=True)


def checkpoint_non_reentrant():
    return checkpointed(use_reentrant=False)


def checkpoint_without_early_stop():
    with torch.utils.checkpoint.set_checkpoint_early_stop(False):
        return checkpointed(use_reentrant=False)


def checkpoint_without_random_state():
    return checkpointed(use_reentrant=False, preserve_rng_state=False)


def checkpoint_under_autocast():
    with torch.autocast("cpu", torch.bfloat16):
        return checkpointed(use_reentrant=False), checkpointed(use_reentrant=True)


def multihead_attention():
    model = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)

    def loss_of(m):
        x = torch.randn(2, 5, 8)
        y, weights = m(x, x, x, need_weights=True)
        return (y.sum() + weights.square().sum()) + m(
            x, x, x, need_weights=False, key_padding_mask=torch.zeros(2, 5).bool()
        )[0].mean()

    return train(model, loss_of)


def transformer_encoder():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False)
    return train(model, lambda m: m(torch.randn(2, 5, 8)).square().mean())


def transformer_decoder():
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 2)
    return train(model, lambda m: m(torch.randn(2, 5, 8), torch.randn(2, 3, 8)).square().mean())


def scaled_dot_product_attention():
    q = torch.randn(2, 2, 5, 8, requires_grad=True)
    y = F.scaled_dot_product_attention(q, q * 2, q + 1, dropout_p=0.2) + F.scaled_dot_product_attention(
        q, q, q, is_causal=True
    )
    y.sum().backward()
    return y, q.grad


def lstm_and_gru():
    lstm, gru, cell = nn.LSTM(4, 8, 2, dropout=0.2, bidirectional=True), nn.GRU(16, 8), nn.LSTMCell(8, 8)

    def loss_of(m):
        y, (h, c) = m[0](torch.randn(5, 2, 4))
        y, _ = m[1](y)
        packed = nn.utils.rnn.pack_padded_sequence(torch.randn(5, 2, 4), torch.tensor([5, 3]))
        return y.sum() + h.sum() * c.sum() + m[0](packed)[0].data.mean() + m[2](y[0])[0].sum()

    return train(nn.ModuleList([lstm, gru, cell]), loss_of)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x**3 * factor

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2 * ctx.factor, None


def custom_function():
    return train(mlp(), lambda m: Cube.apply(m(torch.randn(4, 8)), 2.0).mean())


def double_backward_and_hooks():
    model, seen = mlp(), []
    x = torch.randn(4, 8, requires_grad=True)
    model[0].register_full_backward_hook(lambda m, i, o: seen.append(o[0].clone()))
    model[2].weight.register_hook(lambda g: g * 2)
    model[2].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    y = model(x).square().sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    g.square().sum().backward()
    return seen, x.grad, [p.grad for p in model.parameters()], torch.autograd.functional.jacobian(model[0], x)


def saved_tensor_hooks_and_anomaly():
    model = mlp()
    with (
        torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t),
        torch.autograd.detect_anomaly(check_nan=False),
    ):
        model(torch.randn(4, 8)).sum().backward()
    return [p.grad for p in model.parameters()]


def moving_average():
    model = nn.Sequential(mlp(), nn.BatchNorm1d(8))
    average = copy.deepcopy(model)
    averaged = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    found = train(model, lambda m: m(torch.randn(4, 8)).square().mean())
    with torch.no_grad():
        for a, p in zip(average.parameters(), model.parameters()):
            a.lerp_(p, 0.1)
    averaged.update_parameters(model)
    return found, average.state_dict(), averaged.state_dict()


def saved_bytes():
    model = nn.Sequential(mlp(), nn.BatchNorm1d(8))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}, file
    )
    file.seek(0)
    loaded = torch.load(file)
    other = nn.Sequential(mlp(), nn.BatchNorm1d(8)).half()
    other.load_state_dict(loaded["model"])
    third = nn.Sequential(mlp(), nn.BatchNorm1d(8))
    third.load_state_dict(loaded["model"], assign=True)
    return file.getvalue(), other.state_dict(), third(torch.ones(4, 8)), sorted(vars(next(third.parameters())))


def functional_transforms():
    from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vjp, vmap

    model = mlp()
    parameters = dict(model.named_parameters())
    x = torch.randn(4, 8)

    def loss(parameters, x):
        return functional_call(model, parameters, (x,)).square().sum()

    return (
        functional_call(model, {k: p.detach() * 2 for k, p in parameters.items()}, (x,)),
        vmap(grad(loss), in_dims=(None, 0))(parameters, x),
        vmap(model)(x),
        vmap(lambda x: F.dropout(x, 0.5), randomness="different")(x),
        jacrev(lambda x: loss(parameters, x))(x),
        jacfwd(lambda x: loss(parameters, x))(x[:1]),
        jvp(model, (x,), (torch.ones_like(x),)),
        vjp(model, x)[0],
    )


def forward_mode():
    import torch.autograd.forward_ad as fwAD

    model, x = mlp(), torch.randn(4, 8)
    with fwAD.dual_level():
        return tuple(fwAD.unpack_dual(model(fwAD.make_dual(x, torch.ones_like(x)))))


def inference_mode():
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(256, 4)).eval()
    with torch.inference_mode():
        y = model(torch.randn(2, 3, 8, 8))
        z = F.scaled_dot_product_attention(y[None], y[None], y[None])
    assert y.is_inference() and z.is_inference()
    return y, z


def in_place_and_views():
    x = torch.randn(6, 4, requires_grad=True)
    y = x * 2
    y[1:3].add_(1).mul_(3)
    y.view(-1)[::2].clamp_(min=0)
    buffer = torch.zeros(6, 4, dtype=torch.float16)
    buffer[...] = y.detach()
    buffer.index_put_((torch.tensor([0, 0]),), torch.ones(2, 4).half(), accumulate=True)
    y.sum().backward()
    return y, x.grad, buffer, y._version, buffer._version


def random_numbers():
    generator = torch.Generator().manual_seed(7)
    return (
        torch.randn(3), torch.rand(3, generator=generator), torch.randperm(9), torch.bernoulli(torch.full((5,), 0.5)),
        torch.multinomial(torch.ones(5), 3), torch.empty(4).uniform_(), torch.distributions.Gamma(2.0, 3.0).sample((3,)),
        nn.init.trunc_normal_(torch.empty(4)), torch.nn.utils.parametrizations.orthogonal(nn.Linear(4, 4)).weight, generator.get_state(),
    )  # fmt: skip


def data_loader():
    data = torch.utils.data.TensorDataset(torch.arange(12.0).view(6, 2), torch.arange(6))
    return list(torch.utils.data.DataLoader(data, 4, shuffle=True))


def with_a_default_dtype():
    torch.set_default_dtype(torch.float64)
    try:
        model = mlp()
        y = model(torch.randn(4, 8))
        y.sum().backward()
        return y, [p.grad for p in model.parameters()]
    finally:
        torch.set_default_dtype(torch.float32)


def dtypes_changed_under_way():
    model = mlp()
    model.half().float().to(torch.bfloat16)
    model[0].weight.data = model[0].weight.data.float()
    model[0].bias.data = model[0].bias.data.float()
    y = model[0](torch.randn(4, 8)).bfloat16()
    y.sum().backward()
    model.requires_grad_(False)
    return (
        y,
        model.state_dict(),
        [p.grad for p in model.parameters()],
        [id(p) == id(q) for p, q in zip(model.parameters(), model.parameters())],
    )


def sparse_nested_and_quantized():
    sparse = torch.eye(4).to_sparse().requires_grad_()
    y = torch.sparse.mm(sparse, torch.randn(4, 4))
    y.sum().backward()
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
    embedding = nn.Embedding(8, 4, sparse=True)
    embedding(torch.tensor([1, 1, 3])).sum().backward()
    quantized = torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8)
    return (
        y,
        sparse.grad.to_dense(),
        (nested * 2).values(),
        embedding.weight.grad.to_dense(),
        quantized.int_repr(),
        quantized.dequantize(),
    )


def parametrized_and_pruned():
    norms = nn.utils.parametrizations
    model = nn.Sequential(
        norms.weight_norm(nn.Linear(8, 8)), norms.spectral_norm(nn.Linear(8, 8)), nn.utils.weight_norm(nn.Linear(8, 8))
    )
    torch.nn.utils.prune.l1_unstructured(model[0], "bias", 0.3)
    return train(model, lambda m: m(torch.randn(4, 8)).square().mean())


def lazy_modules():
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.Flatten(), nn.LazyLinear(5))
    y = model(torch.randn(2, 3, 8, 8))
    return train(model, lambda m: m(torch.randn(2, 3, 8, 8)).mean()), y


def scripted():
    @torch.jit.script
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.relu() * 2

    return f(torch.randn(4)), torch.jit.trace(mlp(), torch.randn(4, 8))(torch.ones(4, 8))


def meta_and_fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with torch.device("meta"):
        model = mlp()
    shape = model(torch.empty(4, 8, device="meta")).shape
    with FakeTensorMode() as fake:
        inside = mlp()
        y = inside(torch.randn(4, 8))
        y.sum().backward()
        real = fake.from_tensor(torch.ones(2, 2))
        told = (type(y).__name__, y.shape, y.dtype, type(real @ real).__name__, inside[0].weight.grad.shape)
    return shape, told, model.to_empty(device="cpu")[0].weight.shape


class Logged(torch.Tensor):
    """A subclass that wraps another tensor and keeps a log of the operators that reach it."""

    log: list = []

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad
        )

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        cls.log.append(str(func))
        args, kwargs = tree_map(lambda t: t.inner if isinstance(t, cls) else t, (args, kwargs or {}))
        return tree_map(lambda t: cls(t) if isinstance(t, torch.Tensor) else t, func(*args, **kwargs))


class Named(torch.Tensor):
    """A subclass that keeps a log of the functions that it is passed to."""

    log: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.log.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


class Handed(Named):
    """The same, but what is made of it is plain: a backward pass that nobody passes one to meets those that it saved."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        made = super().__torch_function__(func, types, args, kwargs)
        return made.as_subclass(torch.Tensor) if isinstance(made, torch.Tensor) else made


def subclasses():
    Logged.log.clear()
    Named.log.clear()
    weight = Logged(torch.randn(8, 8)).requires_grad_()
    y = F.linear(torch.randn(4, 8), weight).relu()
    y.sum().backward()
    named = torch.randn(4, 8).as_subclass(Named)
    z = mlp()(named) + named.half().float()
    z.sum().backward()
    named.to(named.dtype).data = torch.randn(2)
    leaf = torch.ones(4, requires_grad=True)
    (leaf * torch.randn(4).as_subclass(Handed)).sum().backward()
    torch.autograd.grad((leaf.as_subclass(Named) * 2).sum(), leaf)
    z.grad_fn, leaf.grad, named.grad
    return y.inner, weight.grad.inner, Logged.log[:], type(z).__name__, z.as_subclass(torch.Tensor), Named.log[:]


class Functions(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def work():
    model = mlp()
    x = torch.randn(4, 8, dtype=torch.float16)
    y = model(x.to(model[0].weight.dtype))
    y[0] = 1
    checkpoint(model, y, use_reentrant=False).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    return y, model.state_dict(), x.type_as(y), [p.grad for p in model.parameters()]


def modes_of_the_programs_own():
    with Functions() as functions:
        first = work()
    with Operators() as operators:
        second = work()
    with torch.device("meta"):
        device = torch.ones(2).device
    return first, functions.seen, second, operators.seen, str(device), torch.ones(2).device


def higher_order_operators():
    from torch.nn.attention.flex_attention import flex_attention

    x = torch.randn(4, requires_grad=True)
    y = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
    y.sum().backward()
    q = torch.randn(1, 2, 16, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        z = flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score + (i - j))
    return y, x.grad, z


def threads():
    found = {}

    def worker(name):
        model = nn.Linear(4, 4)
        with torch.no_grad():
            model.weight.fill_(name)
            model.bias.zero_()
        y = model(torch.ones(2, 4))
        y.sum().backward()
        found[name] = (y, model.weight.grad, torch.is_grad_enabled())

    workers = [threading.Thread(target=worker, args=(n,)) for n in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    return [found[n] for n in range(3)]


def data_parallel_on_the_cpu():
    return nn.DataParallel(mlp())(torch.randn(4, 8))


def generators():
    def rows(mode):
        with mode:
            for i in range(3):
                yield torch.randn(2) * i

    kept = rows(torch.no_grad())
    first = next(kept)
    dropped = rows(Functions())
    second = next(dropped)
    del dropped
    third = next(kept)
    kept.close()
    return first, second, third, torch.is_grad_enabled(), torch._C._len_torch_function_stack() - watched_by()


def watched_by() -> int:
    """How many function modes dtypetrace has on."""
    return sum(type(m).__module__.startswith("dtypetrace") for m in torch.overrides._get_current_function_mode_stack())


def numbers_and_text():
    x = torch.tensor([1.5, 2.0])
    text = str(x), repr(x.half()), f"{x[0]:.3f}"
    return (
        text,
        x.tolist(),
        float(x[0]),
        int(x[1]),
        bool(x[0] > 1),
        list(x),
        hash(x) == id(x),
        x.numpy().tobytes(),
        len(x),
    )


PROGRAMS = [
    mlp_with_dropout_and_adamw, swapped_tensors, every_optimizer, lbfgs_with_a_closure, conv_net_under_autocast, float16_model,
    checkpoint_reentrant, checkpoint_non_reentrant, checkpoint_without_early_stop, checkpoint_without_random_state, checkpoint_under_autocast,
    multihead_attention, transformer_encoder, transformer_decoder, scaled_dot_product_attention, lstm_and_gru,
    custom_function, double_backward_and_hooks, saved_tensor_hooks_and_anomaly, moving_average, saved_bytes,
    functional_transforms, forward_mode, inference_mode, in_place_and_views, random_numbers, data_loader,
    with_a_default_dtype, dtypes_changed_under_way, sparse_nested_and_quantized, parametrized_and_pruned, lazy_modules, scripted,
    meta_and_fake, subclasses, modes_of_the_programs_own, higher_order_operators, threads, data_parallel_on_the_cpu, generators, numbers_and_text,
]  # fmt: skip


def plain(value):
    """A value as something that == compares to the last bit."""
    if not isinstance(value, torch.Tensor):
        return value
    bits = (
        value.detach()
        .cpu()
        .clone(memory_format=torch.contiguous_format)
        .reshape(-1)
        .view(torch.uint8)
        .numpy()
        .tobytes()
    )
    return value.dtype, tuple(value.shape), value.stride(), value.requires_grad, value.is_leaf, bits


def outcome(program, *watch):
    """All that a program gives, the random state and the warnings at its end."""
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for w in watch:
            w.__enter__()
        try:
            result = program()
        finally:
            for w in reversed(watch):
                w.__exit__(None, None, None)
    words = [(w.category, str(w.message), w.filename, w.lineno) for w in told]
    return [plain(leaf) for leaf in tree_leaves(result)], plain(torch.get_rng_state()), words


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
    untraced = mode()
    expected = outcome(program, untraced)
    for order in (slice(None), slice(None, None, -1)):
        around, trace = mode(), dtypetrace.trace()
        assert outcome(program, *(around, trace)[order]) == expected
        assert getattr(around, "seen", None) == getattr(untraced, "seen", None)
        whole(trace)
        assert trace.findings == ()


# ---------------------------------------------------------------- torch.compile

compile_by_name = torch.compile


class Counts:
    """A backend that runs the graph as it is, and counts."""

    def __init__(self):
        self.graphs = self.runs = 0

    def __call__(self, graph, inputs):
        self.graphs += 1

        def run(*args):
            self.runs += 1
            return graph(*args)

        return run


def compiled_module(backend):
    model = mlp()
    return torch.compile(model, backend=backend), model


def compiled_function(backend):
    model = mlp()
    return torch.compile(lambda x: model(x), backend=backend), model


def compiled_by_name(backend):
    model = mlp()
    return compile_by_name(lambda x: model(x), backend=backend), model


class Around(nn.Module):
    """torch.compile passes over the frames of torch's own modules."""

    def __init__(self):
        super().__init__()
        self.inner = mlp()

    def forward(self, x):
        return self.inner(x)


def compiled_in_place(backend):
    model = Around()
    model.compile(backend=backend)
    return model, model


def compiled_by_decorator(backend):
    model = mlp()

    @torch.compile(backend=backend)
    def f(x):
        return model(x)

    return f, model


def compiled_part(backend):
    model = nn.Sequential(Around(), Around())
    model[0].compile(backend=backend)
    model[1] = torch.compile(model[1], backend=backend)
    return model, model


@pytest.fixture
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("made", ["before", "before, and used", "inside"])
@pytest.mark.parametrize(
    "make",
    [compiled_module, compiled_function, compiled_by_name, compiled_in_place, compiled_by_decorator, compiled_part],
    ids=lambda f: f.__name__,
)
def test_what_is_compiled_runs_eagerly_inside_and_compiled_after(make, made, fresh_dynamo):
    def use(f, model):
        model.zero_grad()
        y = f(x)
        y.sum().backward()
        return [plain(y), *(plain(p.grad) for p in model.parameters())]

    backend, x = Counts(), torch.randn(4, 8)
    if made != "inside":
        f, model = make(backend)
    if made == "before, and used":
        use(f, model)
        assert backend.runs
    runs = backend.runs
    before = process()
    with dtypetrace.trace() as trace:
        if made == "inside":
            f, model = make(backend)
        watched = use(f, model)
        assert backend.runs == runs
    assert process() == before
    whole(trace)
    assert {"linear", "relu"} <= {op.op for op in trace.recording.ops}
    assert any("compile" in reason for reason in trace.recording.not_seen)
    assert use(f, model) == watched
    assert backend.graphs >= 1 and backend.runs > runs


@pytest.mark.parametrize("w", [torch.ones(4, 4).half(), torch.ones(3, 4)], ids=["dtype", "shape"])
def test_what_torchscript_raises_keeps_its_text(w):
    f = torch.jit.script(mlp().requires_grad_(False))[0]
    f.weight = nn.Parameter(w, requires_grad=False)
    x = torch.ones(2, 4 if len(w) == 4 else 5)
    with pytest.raises(RuntimeError) as plainly:
        f(x)
    before = process()
    with pytest.raises(RuntimeError) as watched, dtypetrace.trace() as trace:
        f(x)
    assert str(watched.value) == str(plainly.value) and process() == before
    assert [f.severity for f in trace.findings] == (["error"] if w.dtype is torch.float16 else [])


def test_what_is_compiled_and_never_called_is_not_missed(fresh_dynamo):
    """Libraries decorate functions when they are imported."""
    with dtypetrace.trace() as trace:
        compiled_by_decorator(Counts())
        mlp()(torch.randn(4, 8)).sum().backward()
    assert not any("compile" in reason for reason in trace.recording.not_seen)


@pytest.mark.parametrize("inside", ["torch.compile", "by_name", "torch.nn.Module.compile"])
def test_what_is_compiled_while_dynamo_is_not_yet_imported(inside):
    """The first use of torch.compile in the process is inside the block."""
    program = """
        import sys, torch, dtypetrace
        from torch import compile as by_name
        graphs = []
        def backend(graph, inputs):
            graphs.append(graph)
            return graph
        class Double(torch.nn.Module):
            def forward(self, x):
                return x * 2
        with dtypetrace.trace() as trace:
            assert "torch._dynamo" not in sys.modules
            if "HOW" == "torch.nn.Module.compile":
                f = Double()
                f.compile(backend=backend)
            else:
                f = HOW(lambda x: x * 2 + 1, backend=backend)
            f(torch.ones(2))
            assert not graphs
        f(torch.ones(2))
        assert trace._watch.recorder.broken is False
        assert torch._dynamo.eval_frame._stance.stance == "default"
        print(len(graphs))
    """.replace("HOW", inside)
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(line[8:] for line in program.splitlines())],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


# ---------------------------------------------------------------- generators, threads and modes across the block's edges


def held(context):
    with context:
        yield


def test_a_mode_that_a_generator_still_holds_when_the_block_ends():
    before = process()
    mode = Functions()
    with dtypetrace.trace() as trace:
        generator = held(mode)
        next(generator)
    assert torch.overrides._get_current_function_mode_stack() == [mode]
    generator.close()
    assert process() == before
    whole(trace)


def test_a_mode_from_before_that_a_generator_lets_go_inside():
    """torch pops the innermost mode then, whichever that is; here it is the trace's."""
    before = process()
    for mode in (Functions(), Operators()):
        generator = held(mode)
        next(generator)
        with dtypetrace.trace() as trace:
            del generator
            torch.ones(2) * 2
        assert process() == before
        whole(trace)


def test_a_default_device_that_is_set_inside_stays_until_it_is_taken_back():
    before = process()
    with dtypetrace.trace() as trace:
        torch.set_default_device("meta")
        assert torch.ones(2).device.type == "meta"
    assert torch.ones(2).device.type == "meta"
    with dtypetrace.trace() as second:
        assert torch.ones(2).device.type == "meta"
        torch.set_default_device(None)
        assert torch.ones(2).device.type == "cpu"
    assert process() == before
    whole(trace)
    whole(second)


def test_grad_mode_and_autocast_held_across_the_block():
    before = process()
    contexts = [torch.no_grad(), torch.autocast("cpu", torch.bfloat16)]
    with dtypetrace.trace():
        generators = [held(c) for c in contexts]
        for g in generators:
            next(g)
    assert not torch.is_grad_enabled() and torch.is_autocast_enabled("cpu")
    for g in reversed(generators):
        g.close()
    assert process() == before


def test_threads_started_inside_are_told_of_and_may_outlive_the_block():
    go, done = threading.Event(), []

    def worker():
        model = mlp()
        model(torch.ones(2, 8)).sum().backward()
        go.wait(20)
        done.append(model(torch.ones(2, 8)))

    with dtypetrace.trace() as trace:
        thread = threading.Thread(target=worker)
        thread.start()
        mlp()(torch.ones(2, 8))
        while not trace._watch.recorder.not_seen:
            assert thread.is_alive()
    go.set()
    thread.join()
    assert done
    whole(trace)
    assert any("thread" in reason for reason in trace.recording.not_seen)


def test_traces_in_two_threads_at_once():
    """Each watches its own thread."""
    before = process()
    barrier, found = threading.Barrier(2, timeout=20), {}

    def worker(name, dtype):
        with dtypetrace.trace() as trace:
            barrier.wait()
            nn.Linear(2, 2).to(dtype)(torch.ones(2, 2, dtype=dtype))
            barrier.wait()
        found[name] = trace

    threads = [threading.Thread(target=worker, args=(str(d), d)) for d in (torch.float16, torch.float64)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert process() == before
    for name, trace in found.items():
        whole(trace)
        assert {d for op in trace.recording.ops if op.op == "linear" for d in op.outputs} == {
            name.removeprefix("torch.")
        }


# ---------------------------------------------------------------- subclasses that torch hands over as they are


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
    assert outcome(program, trace) == untraced
    whole(trace)


# ---------------------------------------------------------------- phases, modules and lines


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x):
        x = self.first(x).relu()
        return checkpoint(self.second, x, use_reentrant=False)


def line_of(text: str) -> int:
    return next(i for i, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.strip() == text)


def test_ops_have_their_phase_module_and_line():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.ones(2, 4)
    with dtypetrace.trace(net) as trace:
        for _ in range(2):
            optimizer.zero_grad()
            loss = net(x).sum()
            loss.backward()
            optimizer.step()
        x * 2
    whole(trace)
    recording = trace.recording
    ops = [(op.phase, op.aten, op.module, recording.places[op.place].line) for op in recording.ops]
    called = line_of("loss = net(x).sum()")
    loss, step = called + 1, called + 2
    first, second = (
        line_of("x = self.first(x).relu()"),
        line_of("return checkpoint(self.second, x, use_reentrant=False)"),
    )
    assert ("forward", "addmm.default", "net.first", first) in ops
    assert ("forward", "relu.default", "net", first) in ops
    assert ("forward", "addmm.default", "net.second", second) in ops
    assert ("forward", "sum.default", "", called) in ops
    assert any(op[:3] == ("recompute", "t.default", "net.second") for op in ops)
    assert ("backward", "mm.default", "net.first", first) in ops
    assert ("backward", "threshold_backward.default", "net", first) in ops
    assert ("backward", "mm.default", "net.second", second) in ops
    assert any(op[0] == "optimizer" and op[1].startswith(("_foreach_add_", "add_")) and op[3] == step for op in ops)
    assert any(op[0] == "other" and op[1] == "mul.Tensor" for op in ops)
    assert {op.phase for op in recording.ops} == {"forward", "recompute", "backward", "optimizer", "other"}
    assert not [op for op in ops if op[0] == "forward" and "backward" in op[1]]
    assert recording.meta["steps"] == 2
    for op in recording.ops:
        if op.phase == "backward" and op.module:
            assert any(f.phase == "forward" and (f.module, f.place) == (op.module, op.place) for f in recording.ops), op
    assert ("backward", "ones_like.default", "", loss) in ops


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_ops_keep_their_module_and_line(reentrant):
    net = mlp()
    x = torch.ones(2, 8, requires_grad=True)
    with dtypetrace.trace(net) as trace:
        y = checkpoint(net, x, use_reentrant=reentrant)
        y.sum().backward()
    whole(trace)
    recording = trace.recording
    forward, again, back = (
        [op for op in recording.ops if op.phase == phase and op.module]
        for phase in ("forward", "recompute", "backward")
    )
    assert {(op.op, op.module) for op in again} == {(op.op, op.module) for op in forward if op.module}
    assert {op.module for op in back} >= {op.module for op in forward if op.aten.startswith("addmm")}
    assert any(
        recording.places[op.place].line == line_of("y = checkpoint(net, x, use_reentrant=reentrant)") for op in forward
    )


def test_a_step_that_an_exception_leaves_is_no_optimizer_phase_after_it():
    net = mlp()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def closure():
        raise ValueError("stop")

    with dtypetrace.trace() as trace:
        with pytest.raises(ValueError, match="stop"):
            optimizer.step(closure)
        torch.ones(2) * 2
        net(torch.ones(2, 8))
    phases = {op.aten: op.phase for op in trace.recording.ops}
    assert (phases["mul.Tensor"], phases["addmm.default"]) == ("other", "forward")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_module_that_an_exception_leaves_is_not_taken_for_running(error):
    def deep(depth):
        net = Raises(error("stop"))
        for _ in range(depth):
            net = nn.Sequential(net)
        return net

    def further(depth, action):
        return further(depth - 1, action) if depth else action()

    inner = nn.Sequential(nn.Tanh())
    with dtypetrace.trace() as trace:
        for depth in range(4):
            for further_down in range(4):
                for action in (lambda: torch.ones(2, 8) * 3, lambda: inner(torch.ones(2, 8))):
                    with pytest.raises(error):
                        deep(depth)(torch.ones(2, 8))
                    further(further_down, action)
    whole(trace)
    modules = {(op.aten, op.module) for op in trace.recording.ops}
    assert {m for aten, m in modules if aten == "mul.Tensor"} == {""}
    assert {m for aten, m in modules if aten == "tanh.default"} == {"inner.0"}


# ---------------------------------------------------------------- backward alone in the block


def test_a_backward_whose_forward_lies_outside():
    model = mlp()
    loss = model(torch.ones(2, 8)).sum()
    with dtypetrace.trace(model) as trace:
        loss.backward()
    whole(trace)
    assert trace.findings == ()
    back = [op for op in trace.recording.ops if op.phase == "backward"]
    assert {"mm.default", "threshold_backward.default"} <= {op.aten for op in back}
    assert {"Sequential.0", "Sequential.2"} <= {op.module for op in back}
    assert all(p.grad is not None for p in model.parameters())
    assert trace.recording.not_seen


def test_a_collision_in_a_backward_whose_forward_lies_outside():
    model = mlp()
    loss = Refused.apply(model(torch.ones(2, 8))).sum()
    with pytest.raises(RuntimeError) as info:
        with dtypetrace.trace(model) as trace:
            loss.backward()
    [finding] = trace.findings
    assert (finding.kind, finding.severity, finding.phase, finding.op) == ("collision", "error", "backward", "matmul")
    assert finding.site.line == line_of("return grad @ torch.ones(8, 8, dtype=torch.float64)")
    assert finding.culprit.dtype == "float64" and finding.culprit.origin.line == finding.site.line
    assert info.value.__notes__


def test_a_collision_in_the_engine_whose_forward_lies_outside():
    """No Python runs there: a loss whose target is float64 widens the gradient of a float16 stream."""
    x = torch.ones(4, 4, dtype=torch.float16, requires_grad=True)
    weight = torch.ones(4, 4, dtype=torch.float16, requires_grad=True)
    loss = F.huber_loss(x @ weight, torch.zeros(4, 4, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="Half|dtype|Double"):
        with dtypetrace.trace() as trace:
            loss.backward()  # refused by the engine
    [finding] = trace.findings
    assert (finding.kind, finding.severity, finding.phase) == ("collision", "error", "backward")
    assert {"float16", "float64"} <= {o.dtype for o in finding.operands}
    assert finding.site.line == line_of("loss.backward()  # refused by the engine")
    whole(trace)


def test_no_interrupt_is_lost_while_tensors_die():
    """A Ctrl-C that arrives in a weak reference's callback would be printed as ignored, and the program would go on."""

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    x = torch.ones(4)
    lost = 0
    try:
        with dtypetrace.trace():
            for attempt in range(300):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-4 + attempt * 3e-6)
                    until = time.monotonic() + 1
                    while time.monotonic() < until:
                        [x + 1 for _ in range(20)]
                    lost += 1
                except KeyboardInterrupt:
                    pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert lost == 0
