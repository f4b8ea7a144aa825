"""The one file that uses private torch APIs; what only a dry run replaces is in ``dryrun``.

What torch does not document is taken here. Without the first ones below nothing can be
watched: ``dtypetrace.trace`` then fails at once with one clear line, not deep inside a run. Without one of the others
(``offered``) what it is for is off, and every report says so in a line. README.md names the versions that were tested.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import _GeneratorContextManager, nullcontext
from types import FrameType
from typing import Any

import torch

from .offered import missing, off, offered

try:
    import torch.nn.modules.module as module_internals
    import torch.optim.optimizer as optimizer_internals
    from torch._C import (
        DisableTorchFunction,
        DisableTorchFunctionSubclass,
    )
    from torch._C import _DisableTorchDispatch as DisableTorchDispatch
    from torch._C import _get_dispatch_stack_at as dispatch_mode_at
    from torch._C import _get_function_stack_at as function_mode_at
    from torch._C import _len_torch_dispatch_stack as dispatch_mode_count
    from torch._C import _len_torch_function_stack as function_mode_count
    from torch._C import _pop_torch_function_stack as pop_function_mode
    from torch._C import _push_on_torch_function_stack as push_function_mode
    from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._python_dispatch import _get_current_dispatch_mode as current_dispatch_mode
    from torch.utils._python_dispatch import _pop_mode as pop_dispatch_mode
    from torch.utils._python_dispatch import _push_mode as push_dispatch_mode_above
except ImportError as error:
    raise ImportError(
        f"dtypetrace does not know torch {torch.__version__}: {error}. "
        "Install a tested version (torch 2.13) or a newer dtypetrace."
    ) from error

NUMERICS = "measured values"
REFERENCE = "the reference"
SUMS = "sums and averages that stop moving"
BACKWARD = "the phase of the backward pass, the forward lines of its operators"
LISTS = "casts inserted in the lists of foreach and fused optimizers"
HELD = "casts inserted in hooks on saved tensors"
SWAPS = "torch.utils.swap_tensors, which refuses tensors while they are traced"
SETTERS = "torch.set_default_dtype as the origin of a dtype"


def _no(*_args: object) -> bool:
    return False


def _none(*_args: object) -> None:
    return None


def _zero() -> int:
    return 0


def _no_task() -> int:
    return -1


def _any_autocast() -> bool:
    return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")


def below_autograd() -> bool:
    """Whether autograd sees no call that is made now: on any device, since torch excludes its keys together."""
    return _is_excluded is not None and bool(_is_excluded(torch._C.DispatchKey.AutogradCPU))


def exclude_key(name: str, off: bool) -> None:
    """Whether this thread's calls leave out what torch does at a dispatch key."""
    _set_excluded(getattr(torch._C.DispatchKey, name), off)


def in_functorch() -> bool:
    """Whether a transform (vmap, grad) runs the code that calls this, or may."""
    return _functorch_levels() is not None


def _present(home: str, name: str, feature: str) -> str:
    return name if offered(home, name, feature, None) is not None else ""


_C = "torch._C"
BelowAutograd = offered(_C, "_AutoDispatchBelowAutograd", NUMERICS, nullcontext)
BelowInplaceOrView = offered(_C, "_AutoDispatchBelowADInplaceOrView", REFERENCE, nullcontext)
DisableAutocast = offered(_C, "_DisableAutocast", REFERENCE, nullcontext)
current_autograd_node: Callable[[], Any] = offered(_C, "_current_autograd_node", BACKWARD, _none)
current_graph_task_id: Callable[[], int] = offered(_C, "_current_graph_task_id", BACKWARD, _no_task)
set_grad_enabled: Any = offered(_C, "_set_grad_enabled", "", None)
next_sequence_number: Callable[[], int] = offered("torch._C._autograd", "_get_sequence_nr", BACKWARD, _zero)
disabled_torch_function = offered(
    _C, "_disabled_torch_function_impl", "", getattr(torch.nn.Parameter, "__torch_function__", None)
)
_is_excluded = offered(_C, "_dispatch_tls_is_dispatch_key_excluded", "", None)
InferenceMode = offered(_C, "_InferenceMode", "", torch.inference_mode)
_INSIDE = "autocast and conjugates inside operators that are made of others"
has_kernels: Callable[[str], bool] = offered(_C, "_dispatch_has_kernel", _INSIDE, _no)
"""Whether torch dispatches an operator at all, by its name; of the others ``has_kernel`` may not be asked."""
has_kernel: Callable[[str, str], bool] = offered(_C, "_dispatch_has_kernel_for_dispatch_key", _INSIDE, _no)
accelerator: Callable[[], Any] = offered("torch.accelerator", "current_accelerator", _INSIDE, _none)
_set_excluded = offered(_C, "_dispatch_tls_set_dispatch_key_excluded", _INSIDE, _none)
any_autocast_enabled: Callable[[], bool] = offered(
    _C, "_is_any_autocast_enabled", "autocast on devices that are neither CPU nor CUDA", _any_autocast
)
top_saved_tensors_hooks: Callable[[bool], Any] = offered(
    "torch._C._autograd", "_top_saved_tensors_default_hooks", HELD, _none
)
functorch_inner: Callable[[Any], Any] = offered(
    "torch._C._functorch", "get_unwrapped", "origins of what vmap and grad wrap", _none
)
of_functorch: Callable[[Any], bool] = (
    _no
    if functorch_inner is _none
    else offered("torch._C._functorch", "is_functorch_wrapped_tensor", "origins of what vmap and grad wrap", _no)
)
_functorch_levels: Callable[[], Any] = offered(
    "torch._C._functorch", "peek_interpreter_stack", "waking before calls that are new", lambda: 0
)
OpOverload: Any = offered("torch._ops", "OpOverload", "", type(torch.ops.aten.add.Tensor))
StorageWeakRef: Any = offered("torch.multiprocessing.reductions", "StorageWeakRef", SUMS, None)
_make_seeds = offered("torch.autograd", "_make_grads", "the line that makes the first gradient", None)
_run_engine = offered("torch.autograd.graph", "_engine_run_backward", "refusals in a nested backward pass", None)

__all__ = [
    "DisableTorchDispatch",
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "TorchDispatchMode",
    "TorchFunctionMode",
    "current_dispatch_mode",
    "dispatch_mode_at",
    "dispatch_mode_count",
    "function_mode_at",
    "function_mode_count",
    "missing",
    "module_internals",
    "off",
    "offered",
    "optimizer_internals",
    "pop_dispatch_mode",
    "pop_function_mode",
    "push_dispatch_mode_above",
    "push_function_mode",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_optimizer_step_post_hook",
    "register_optimizer_step_pre_hook",
]

TORCH_FOLDER = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep

ANY_GLOBAL_HOOK = "_has_any_global_hook"
"""In ``module_internals``: compiled modules read it to decide whether to warn about global hooks."""

ENGINE_CODE = getattr(_run_engine, "__code__", None)
"""The Python frame under which the autograd engine runs on the calling thread."""

MODULE_CALL = getattr(
    offered("torch.nn", "Module._call_impl", "the arguments of modules in a traceback", None), "__code__", None
)
"""The Python frame in which a module is called; its ``args`` and ``kwargs`` are the call's arguments."""

GROUPING = _present(_C, "_group_tensors_by_device_and_dtype", LISTS)
"""In ``torch._C``, empty where it is missing: sorts an optimizer's lists of tensors by dtype."""

SWAP = _present(_C, "_swap_tensor_impl", SWAPS) if _present("torch.utils", "weakref", SWAPS) else ""
"""In ``torch._C``, empty where it is missing: exchanges the contents of two tensors, which
``torch.utils.swap_tensors`` has checked."""

DEFAULTS = [name for name in ("_set_default_dtype", "_set_default_tensor_type") if _present(_C, name, SETTERS)]
"""In ``torch._C``: what the setters of default dtypes call."""

LOADING: Any = offered("torch.utils.data.dataloader", "_BaseDataLoaderIter", "waking at the end of a loader", None)
"""What iterates over a loader."""
LOGS_USE = _present(_C, "_log_api_usage_once", "torch.compile, where the block itself runs `from torch import compile`")
"""In ``torch._C``, empty where it is missing: what torch calls as it makes an optimizer, or compiles."""

SCRIPTED = tuple(
    kind
    for name in ("ScriptFunction", "ScriptMethod")
    if (kind := offered(_C, name, "the texts of refusals inside TorchScript", None))
)
"""The types that TorchScript makes from functions and from modules' methods."""

JIT_TRACES = [
    (home, name)
    for home in (torch._C, torch._C.ScriptModule)
    for name in (
        "_create_function_from_trace",
        "_create_function_from_trace_with_dict",
        "_create_method_from_trace",
        "_create_method_from_trace_with_dict",
        "_create_graph_by_tracing",
    )
    if hasattr(home, name)
]
"""Where ``torch.jit.trace`` and its kin run a program's code and make a graph of it."""

SEEDS_CODE = getattr(_make_seeds, "__code__", None)
"""Makes the gradient that a backward begins with."""

ACCUMULATE_SEQUENCE = 2**64 - 1
"""Sequence number of every AccumulateGrad node: such a node belongs to no forward op."""

_TORCH_FUNCTION = getattr(torch.Tensor.__torch_function__, "__func__", None)
_OVERRIDE_CHECKS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def body_with_modes_on(function: Any) -> Callable[..., Any]:
    """A torch function written in Python, without its own ``has_torch_function`` check.

    A function mode is off while its handler runs, so calls inside such a function would not be seen. Calling it again
    with the mode pushed back would reach the handler again, without end. This copy shares the original's code object
    (tracebacks read the same) and skips only that check.
    """
    import types

    namespace = dict(function.__globals__)
    for name in _OVERRIDE_CHECKS:
        if name in namespace:
            namespace[name] = _never
    copy = types.FunctionType(
        function.__code__, namespace, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _never(*_args: object) -> bool:
    return False


def answers_torch_functions(kind: Any) -> bool:
    """Whether a class of tensors has a ``__torch_function__`` of its own, which would see every call on its tensors."""
    answers = kind.__torch_function__
    return answers is not disabled_torch_function and getattr(answers, "__func__", None) is not _TORCH_FUNCTION


def works_in_a_mode(kind: Any) -> bool:
    """Whether one of torch's own modes does the work for a class of tensors (fake and functional ones): that mode comes
    after every other one, and the class by itself refuses calls."""
    return getattr(kind, "_mode_key", None) is not None


_MADE_FAKE = "factories inside FakeTensorMode"
_FAKE = offered(_C, "_TorchDispatchModeKey.FAKE", _MADE_FAKE, None)
_mode_of: Callable[[Any], Any] = offered(_C, "_get_dispatch_mode", _MADE_FAKE, _none) if _FAKE is not None else _none


def without_numbers(kinds: Sequence[type]) -> bool:
    """Whether a call on tensors of these classes, or on none, gives fake tensors or functional ones."""
    return any(map(works_in_a_mode, kinds)) if kinds else _mode_of(_FAKE) is not None


HIGHER_ORDER: Any = (
    None
    if hasattr(TorchDispatchMode, "supports_higher_order_operators")
    else offered("torch._ops", "HigherOrderOperator", "", None)
)
"""The class of such operators where it does not know that a mode supports them (before torch 2.9), else None."""


def for_supporting_modes(dispatch: Callable[..., Any]) -> Callable[..., Any]:
    """``HigherOrderOperator.dispatch`` for a torch that knows no ``supports_higher_order_operators``.

    There such an operator refuses each kind of mode that it has no rule for: a program would fail only because it is
    traced. Modes that say that they support them get a rule.
    """

    def dispatch_with_rule(self: Any, /, key: Any, *args: Any, **kwargs: Any) -> Any:
        mode, rules = current_dispatch_mode(), getattr(self, "python_key_table", None)
        if rules is not None and type(mode) not in rules and getattr(mode, "supports_higher_order_operators", False):
            rules[type(mode)] = lambda on, *args, **kwargs: on.__torch_dispatch__(self, (), args, kwargs)
        return dispatch(self, key, *args, **kwargs)

    return dispatch_with_rule


_SUSPENDED = {f.__code__ for f in (_GeneratorContextManager.__enter__, _GeneratorContextManager.__exit__)}
_aside = offered("torch.overrides", "_pop_mode_temporarily", "restoring torch's modes after Ctrl-C", None)
_SET_ASIDE = {inspect.unwrap(_aside).__code__} if _aside else set()


def end_interrupted(error: BaseException | None) -> None:
    """Ends blocks of torch's that an interrupt left open. ``error``: the exception that leaves.

    torch puts modes aside by generators. One that an interrupt left suspended would put its mode back on when the
    exception is forgotten, long after the trace has ended.
    """
    for frame in _frames_of(error):
        if frame.f_code in _SUSPENDED:
            generator: Any = getattr(frame.f_locals.get("self"), "gen", None)
            if getattr(generator, "gi_code", None) in _SET_ASIDE:
                generator.close()


def _frames_of(error: BaseException | None) -> Iterator[FrameType]:
    """The frames of an exception's traceback and of those in whose handling it was raised."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        tb = error.__traceback__
        while tb is not None:
            yield tb.tb_frame
            tb = tb.tb_next
        error = error.__context__


def sharded_policy(module: Any) -> Any:
    """The ``MixedPrecisionPolicy`` that ``fully_shard`` was given for a module, None where it was not called on it."""
    state = getattr(type(module), "_get_fsdp_state", None)  # of the class: a module searches its parameters first
    return getattr(state(module), "_mp_policy", None) if callable(state) else None


def bucket_facts(ddp: Any) -> tuple[tuple[str, ...], str]:
    """The C++ names of the dtypes of DDP's buckets, and the name of its communication hook (empty for none)."""
    dtypes = ddp._get_ddp_logging_data().get("dtypes", "")
    hooks = [getattr(hook, "__qualname__", "") for hook, _ in getattr(ddp, "_comm_hooks", ())]
    return tuple(d.strip() for d in dtypes.split(",") if d.strip()), hooks[-1] if hooks else ""
