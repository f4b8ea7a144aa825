"""Measures which operators have no effect outside their results: ``python -m tools.repeatable``, some ten minutes.

torch's own samples of its operators, modules and optimizers run, forward and backward, in inference mode (where
composites arrive whole) and in place. Each operator that they call is called a second time on copies. It is named in
the table if every call, refused ones too, left the state of random numbers, files and undeclared arguments as they
were, and gave the same twice. A function written in Python is named if everything that it calls is.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.testing._internal import common_methods_invocations as databases
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from dtypetrace.capture.calls import op_name, readable
from dtypetrace.capture.repeats import TABLE, key

_DTYPES = (torch.float32, torch.bfloat16, torch.complex64, torch.int64, torch.bool)
_MOST_SAMPLES = 6
READ = {
    "kernels of other devices, and what torch's samples do not reach; their sources were read": (
        "_amp_foreach_non_finite_check_and_unscale _cudnn_rnn _efficient_attention_backward "
        "_efficient_attention_forward _flash_attention_backward _flash_attention_forward "
        "_scaled_dot_product_cudnn_attention "
        "_scaled_dot_product_cudnn_attention_backward _scaled_dot_product_efficient_attention "
        "_scaled_dot_product_efficient_attention_backward _scaled_dot_product_flash_attention "
        "_scaled_dot_product_flash_attention_backward _scaled_dot_product_flash_attention_for_cpu "
        "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu_backward "
        "_scaled_dot_product_fused_attention_overrideable "
        "_scaled_dot_product_fused_attention_overrideable_backward _scaled_mm _thnn_fused_gru_cell "
        "_thnn_fused_gru_cell_backward _thnn_fused_lstm_cell _thnn_fused_lstm_cell_backward_impl cudnn_batch_norm "
        "cudnn_batch_norm_backward cudnn_convolution cudnn_convolution_transpose miopen_batch_norm "
        "miopen_batch_norm_backward miopen_convolution native_dropout_backward _fused_adagrad _fused_adam _fused_adamw "
        "_fused_sgd _transformer_encoder_layer_fwd _native_multi_head_attention _nested_tensor_from_mask "
        "_nested_tensor_from_mask_left_aligned _embedding_bag_forward_only "
        "_histogramdd_from_bin_tensors _euclidean_dist"
    ),
    "they write their running statistics, which the reference and healing know of": (
        "_batch_norm_impl_index batch_norm instance_norm native_batch_norm"
    ),
    "a view; a result of which a part is unwritten memory": "as_strided _ctc_loss",
    "Python's in-place operators, which call those without their i": (
        "iadd isub imul imatmul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift"
    ),
    "setting an attribute": "data grad",
    "torchvision's operators without random numbers": (
        "torchvision::_deform_conv2d_backward torchvision::_ps_roi_align_backward torchvision::_ps_roi_pool_backward "
        "torchvision::_roi_align_backward torchvision::_roi_pool_backward torchvision::deform_conv2d torchvision::nms "
        "torchvision::ps_roi_align torchvision::ps_roi_pool torchvision::roi_align torchvision::roi_pool"
    ),
}
"""What cannot be measured here, by the reason why it is named all the same."""
_RUNS_THE_ENGINE = {"backward"}
"""It adds to gradients of tensors that are no arguments of it."""


def main() -> None:
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    operators, functions = _Operators(), _Functions()
    for call in _calls():
        with contextlib.suppress(Exception), operators:
            _backward(call())
        with contextlib.suppress(Exception), functions:
            call()
    clean = {name for name, faults in operators.faults.items() if not faults}
    clean |= {
        name for name, inner in functions.inner.items() if inner and inner <= clean and name not in operators.faults
    }
    clean = {name for name in clean - _RUNS_THE_ENGINE if not name.startswith("profiler::")}  # those open records
    TABLE.write_text(_written(clean), "utf-8")
    for name, faults in sorted(operators.faults.items()):
        if faults:
            print(name, *sorted(faults))


def _written(clean: set[str]) -> str:
    parts = [f"# measured with torch {torch.__version__}: see tools/repeatable.py", *sorted(clean)]
    for why, read in READ.items():
        parts += [f"# {why}", *sorted(set(read.split()) - clean)]
    return "\n".join(parts) + "\n"


# ---------------------------------------------------------------- the calls


def _calls() -> Iterator[Callable[[], Any]]:
    lists = [getattr(databases, n) for n in dir(databases) if n.startswith("foreach") and n.endswith("_db")]
    for info in (*databases.op_db, *(i for db in lists for i in db)):
        for dtype in _DTYPES:
            yield from _of_operator(info, dtype)
    for info in module_db:
        yield from _of_module(info)
    for info in optim_db:
        yield from _of_optimizer(info)
    yield from map(_with_scaler, (torch.float16, torch.bfloat16))


def _of_operator(info: Any, dtype: torch.dtype) -> Iterator[Callable[[], Any]]:
    if dtype not in info.dtypes:
        return
    differentiable = info.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    samples: list[Any] = []
    with contextlib.suppress(Exception):
        samples = list(info.sample_inputs("cpu", dtype, requires_grad=differentiable))
    for s in samples[:: max(1, len(samples) // _MOST_SAMPLES)]:
        yield lambda s=s: info.op(s.input, *s.args, **s.kwargs)
        yield lambda s=s: _in_inference(info.op, s)
        if getattr(info, "inplace_variant", None) is not None:
            yield lambda s=s: _in_inference(info.inplace_variant, s)


def _in_inference(function: Callable[..., Any], sample: Any) -> Any:
    with torch.inference_mode():
        args = tree_map(_copied, (sample.input, *sample.args))
        return function(*args, **sample.kwargs)


def _of_module(info: Any) -> Iterator[Callable[[], Any]]:
    for training in (True, False):
        given: list[Any] = []
        with contextlib.suppress(Exception):
            given = info.module_inputs_func(
                info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
            )
        for one in given:
            if one.forward_input is None:
                continue
            made, call = one.constructor_input, one.forward_input
            module = info.module_cls(*made.args, **made.kwargs).train(training)
            yield lambda module=module, call=call: module(*call.args, **call.kwargs)


def _of_optimizer(info: Any) -> Iterator[Callable[[], Any]]:
    for given in info.optim_inputs_func(device="cpu"):
        for extra in ({}, {"foreach": True}, {"fused": True}):
            options = {**given.kwargs, **extra}
            options.pop("params", None)
            yield lambda options=options: _step(info.optim_cls, options)


def _step(kind: Any, options: dict[str, Any]) -> None:
    parameters = [torch.nn.Parameter(torch.randn(3, 3)), torch.nn.Parameter(torch.randn(2, 2))]
    for p in parameters:
        p.grad = torch.randn_like(p)
    optimizer = kind(parameters, **options)
    optimizer.step()
    optimizer.step()


def _with_scaler(dtype: torch.dtype) -> Callable[[], Any]:
    def steps() -> None:
        model, scaler = torch.nn.Linear(4, 4), torch.amp.GradScaler("cpu")
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            with torch.autocast("cpu", dtype):
                loss = model(torch.randn(2, 4)).sum()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

    return steps


def _backward(made: Any) -> None:
    ends = [t for t in _tensors(made) if t.requires_grad]
    if ends:
        torch.autograd.backward(ends, [torch.ones_like(t) for t in ends])


# ---------------------------------------------------------------- what they do


class _Operators(TorchDispatchMode):
    """By operator: what its calls did beside giving results."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: dict[str, set[str]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not hasattr(func, "_schema") or not all(map(readable, _tensors((args, kwargs)))):
            return func(*args, **kwargs)
        name = key(func.overloadpacket.__name__) if func.namespace == "aten" else func.overloadpacket._qualified_op_name
        found = self.faults.setdefault(name, set())
        again, before = _copies(args, kwargs), _copies(args, kwargs)
        state, files = torch.get_rng_state(), _files()
        drops = _drops(func, args, kwargs)
        try:
            out = func(*args, **kwargs)
        finally:  # a refused call, too, may have drawn numbers first
            if not torch.equal(state, torch.get_rng_state()) and not drops:
                found.add("draws random numbers")
            if _files() != files:
                found.add("writes or opens files")
        if drops or found:
            return out
        declared = _declared(func, args, kwargs)
        for now, old in zip(_tensors((args, kwargs)), _tensors(before)):
            if id(now) not in declared and not _same(now, old):
                found.add("writes to an argument that its schema does not declare")
        del [torch.full((n,), 3.7) for n in (1, 4, 16, 64, 256, 1024, 5, 25)][:]  # so that unwritten memory shows
        if not _same((func(*again[0], **again[1]), again), (out, (args, kwargs))):
            found.add("gives another result")
        return out


class _Functions(TorchFunctionMode):
    """By outermost torch function: the operators that it calls."""

    def __init__(self) -> None:
        super().__init__()
        self.inner: dict[str, set[str]] = defaultdict(set)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "dropout_p" in (kwargs or {}) or hasattr(func, "__code__") and "dropout_p" in func.__code__.co_varnames:
            return func(*args, **(kwargs or {}))  # it may draw random numbers, and be refused after that
        called = _Called()
        try:
            with called:
                return func(*args, **(kwargs or {}))
        finally:
            self.inner[key(op_name(func))] |= called.names


class _Called(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not _drops(func, args, kwargs or {}):
            self.names.add(key(func.overloadpacket.__name__))
        return func(*args, **(kwargs or {}))


def _tensors(value: Any) -> list[torch.Tensor]:
    return [t for t in tree_leaves(value) if isinstance(t, torch.Tensor)]


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _copies(args: Any, kwargs: Any) -> Any:
    """Copies of a call's arguments, those that are one tensor as one."""
    made: dict[int, Any] = {}

    def copy(value: Any) -> Any:
        if id(value) not in made:
            made[id(value)] = _copied(value)
        return made[id(value)]

    return tree_map(copy, (args, kwargs))


def _files() -> tuple[int, str]:
    """How many files are open, and how many bytes this process has written."""
    with open("/proc/self/io") as file:
        written = next(line for line in file if line.startswith("wchar"))
    return len(os.listdir("/proc/self/fd")), written


def _given(func: Any, args: Any, kwargs: Any) -> Iterator[tuple[Any, Any]]:
    for n, argument in enumerate(func._schema.arguments):
        yield argument, args[n] if n < len(args) else kwargs.get(argument.name)


def _drops(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call drops numbers by its dropout probability: the reference asks for that itself."""
    return any(a.name in ("dropout", "dropout_p") and value for a, value in _given(func, args, kwargs))


def _declared(func: Any, args: Any, kwargs: Any) -> set[int]:
    """The ids of the tensors that a call writes to by its schema."""
    writes = [v for a, v in _given(func, args, kwargs) if a.alias_info is not None and a.alias_info.is_write]
    return set(map(id, _tensors(writes)))


def _same(one: Any, other: Any) -> bool:
    """Whether two results are equal, apart from how kernels round by where their memory lies."""
    pairs = list(zip(tree_leaves(one), tree_leaves(other), strict=True))
    return all(_equal(a, b) if isinstance(a, torch.Tensor) else a == b or a != a for a, b in pairs)


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype is not other.dtype or not readable(one):
        return one.shape == other.shape and one.dtype is other.dtype
    wide = [t.detach().resolve_conj().to(torch.complex128 if t.is_complex() else torch.float64) for t in (one, other)]
    return torch.allclose(*wide, rtol=1e-3, atol=1e-4, equal_nan=True)


if __name__ == "__main__":
    main()
