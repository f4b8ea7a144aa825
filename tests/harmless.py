"""What the tests of harmlessness share: how blocks end, the state of the process, the outcome of a program."""

from __future__ import annotations

import gc
import sys
import threading
import warnings
import weakref
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
import torch.nn.utils.prune
from torch import nn
from torch.utils import _python_dispatch
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint


@pytest.fixture(autouse=True)
def quick():
    """One thread; and the collector passes over what was there before the test."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    yield
    torch.set_num_threads(threads)


def mlp(width: int = 8) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, width))


def whole(trace) -> None:
    """The trace recorded to its end."""
    assert trace._watch.recorder.broken is False, trace.recording.not_seen


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
        # torch 2.8 adds one of its own whenever it compiles
        "filters": [f for f in warnings.filters if getattr(f[3], "pattern", "") != "torch.distributed"],
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
    with warnings.catch_warnings(record=True) as reported:
        warnings.simplefilter("always")
        for w in watch:
            w.__enter__()
        try:
            result = program()
        finally:
            for w in reversed(watch):
                w.__exit__(None, None, None)
    words = [(w.category, str(w.message), w.filename, w.lineno) for w in reported]
    return [plain(leaf) for leaf in tree_leaves(result)], plain(torch.get_rng_state()), words
