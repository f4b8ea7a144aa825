"""The one file that uses private torch APIs.

Everything that torch does not document is imported here and nowhere else. So if a new torch version moves it,
``dtypetrace.trace`` fails at once with one clear line, not deep inside a run.
Tested with torch 2.13 (CPU).
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import _GeneratorContextManager, contextmanager
from types import FrameType
from typing import Any

import torch
from torch import overrides

try:
    import torch.nn.modules.module as module_internals
    import torch.optim.optimizer as optimizer_internals
    from torch._C import (
        DisableTorchFunction,
        DisableTorchFunctionSubclass,
    )
    from torch._C import (
        _AutoDispatchBelowADInplaceOrView as BelowInplaceOrView,
    )
    from torch._C import (
        _AutoDispatchBelowAutograd as BelowAutograd,
    )
    from torch._C import (
        _current_autograd_node as current_autograd_node,
    )
    from torch._C import (
        _current_graph_task_id as current_graph_task_id,
    )
    from torch._C import (
        _disabled_torch_function_impl as disabled_torch_function,
    )
    from torch._C import (
        _DisableTorchDispatch as DisableTorchDispatch,
    )
    from torch._C import (
        _get_dispatch_stack_at as _dispatch_mode_at,
    )
    from torch._C import (
        _get_function_stack_at as function_mode_at,
    )
    from torch._C import (
        _group_tensors_by_device_and_dtype as _grouping,
    )
    from torch._C import (
        _InferenceMode as InferenceMode,
    )
    from torch._C import (
        _is_any_autocast_enabled as any_autocast_enabled,
    )
    from torch._C import (
        _len_torch_dispatch_stack as dispatch_mode_count,
    )
    from torch._C import (
        _len_torch_function_stack as function_mode_count,
    )
    from torch._C import (
        _pop_torch_function_stack as pop_function_mode,
    )
    from torch._C import (
        _push_on_torch_function_stack as push_function_mode,
    )
    from torch._C._autograd import (
        _get_sequence_nr as next_sequence_number,
    )
    from torch._C._autograd import (
        _top_saved_tensors_default_hooks as top_saved_tensors_hooks,
    )
    from torch._C._functorch import get_unwrapped as functorch_inner
    from torch._C._functorch import is_functorch_wrapped_tensor as of_functorch
    from torch._ops import OpOverload
    from torch.autograd import _make_grads as make_seeds
    from torch.autograd.graph import _engine_run_backward as run_engine
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError as error:  # pragma: no cover - a torch version that was not tested
    raise ImportError(
        f"dtypetrace does not know torch {torch.__version__}: {error}. "
        "Install a tested version (torch 2.13) or a newer dtypetrace."
    ) from error

__all__ = [
    "ANY_GLOBAL_HOOK",
    "ACCUMULATE_SEQUENCE",
    "BelowAutograd",
    "BelowInplaceOrView",
    "DisableTorchDispatch",
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "ENGINE_CODE",
    "GROUPING",
    "InferenceMode",
    "MODULE_CALL",
    "OpOverload",
    "SCRIPTED",
    "SEEDS_CODE",
    "SWAP",
    "StorageWeakRef",
    "TORCH_FOLDER",
    "TorchDispatchMode",
    "TorchFunctionMode",
    "answers_torch_functions",
    "any_autocast_enabled",
    "body_with_modes_on",
    "bucket_facts",
    "current_autograd_node",
    "current_graph_task_id",
    "dispatch_mode_count",
    "dispatch_modes",
    "force_eager",
    "end_interrupted",
    "function_modes",
    "function_mode_on",
    "end_function_mode",
    "end_dispatch_mode",
    "function_mode_at",
    "function_mode_count",
    "functorch_inner",
    "last_function_mode",
    "modes_off",
    "module_internals",
    "next_sequence_number",
    "of_functorch",
    "optimizer_internals",
    "pop_function_mode",
    "push_dispatch_mode",
    "push_function_mode",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_optimizer_step_post_hook",
    "register_optimizer_step_pre_hook",
    "remove_dispatch_mode",
    "remove_function_mode",
    "sharded_policy",
    "stance_off",
    "top_dispatch_mode_off",
    "top_saved_tensors_hooks",
    "unseen",
]

TORCH_FOLDER = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep

ANY_GLOBAL_HOOK = "_has_any_global_hook"
"""In ``module_internals``: compiled modules read it to decide whether to warn about global hooks."""

ENGINE_CODE = run_engine.__code__
"""The Python frame under which the autograd engine runs on the calling thread."""

MODULE_CALL = module_internals.Module._call_impl.__code__
"""The Python frame in which a module is called; its ``args`` and ``kwargs`` are the call's arguments."""

GROUPING = _grouping.__name__
"""In ``torch._C``: sorts an optimizer's lists of tensors by dtype."""

SWAP = "_swap_tensor_impl"
"""In ``torch._C``: exchanges the contents of two tensors, after ``torch.utils.swap_tensors`` has checked them."""

SCRIPTED = (torch._C.ScriptFunction, torch._C.ScriptMethod)
"""The types that TorchScript makes from functions and from modules' methods."""

SEEDS_CODE = make_seeds.__code__
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


def force_eager(ran: Callable[[], None]) -> Callable[[], None]:
    """Run compiled functions eagerly; returns the function that restores the stance.

    Under a dispatch mode they would run eagerly anyway, but torch would remember that and never compile them again
    (pytorch issue 190286); with this stance it does not. ``ran`` is called for each call of a compiled function.
    Compiling one is not enough: libraries do that when they are imported.
    """
    from torch._dynamo import eval_frame

    prior, look_up = eval_frame._set_stance(eval_frame.DynamoStance("force_eager")), eval_frame._callback_from_stance

    def callback_from_stance(callback: Any) -> Any:
        chosen = look_up(callback)
        if callback is not None and chosen is None and callable(callback):
            ran()
        return chosen

    eval_frame._callback_from_stance = callback_from_stance

    def restore() -> None:
        if eval_frame._callback_from_stance is callback_from_stance:
            eval_frame._callback_from_stance = look_up
        eval_frame._set_stance(prior)

    return restore


@contextmanager
def stance_off() -> Iterator[None]:
    """The default stance during a block."""
    from torch._dynamo import eval_frame

    prior = eval_frame._set_stance(eval_frame.DynamoStance("default"))
    try:
        yield
    finally:
        eval_frame._set_stance(prior)


class unseen:
    """A block whose torch calls no mode and no subclass sees: neither ours nor the program's.

    What runs while the program does names the guards themselves: they are written in C, so an interrupt cannot come
    between what they change and the block.
    """

    __slots__ = ("_guards",)

    def __enter__(self) -> None:
        self._guards: tuple[Any, ...] = (DisableTorchFunction(), DisableTorchDispatch())
        for guard in self._guards:
            guard.__enter__()

    def __exit__(self, *error: Any) -> None:
        for guard in reversed(self._guards):
            guard.__exit__(*error)


_SUSPENDED = {f.__code__ for f in (_GeneratorContextManager.__enter__, _GeneratorContextManager.__exit__)}
_SET_ASIDE = {inspect.unwrap(overrides._pop_mode_temporarily).__code__}


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
    state = getattr(module, "_get_fsdp_state", None)
    return getattr(state(), "_mp_policy", None) if callable(state) else None


def bucket_facts(ddp: Any) -> tuple[tuple[str, ...], str]:
    """The C++ names of the dtypes of DDP's buckets, and the name of its communication hook (empty for none)."""
    dtypes = ddp._get_ddp_logging_data().get("dtypes", "")
    hooks = [getattr(hook, "__qualname__", "") for hook, _ in getattr(ddp, "_comm_hooks", ())]
    return tuple(d.strip() for d in dtypes.split(",") if d.strip()), hooks[-1] if hooks else ""


@contextmanager
def last_function_mode(mode: TorchFunctionMode) -> Iterator[None]:
    """Puts a mode below all others during a block: it gets what they pass on, and is the only one left in its
    handler."""
    _set_function_modes([mode, *(function_mode_at(i) for i in range(function_mode_count()))])
    try:
        yield
    finally:
        remove_function_mode(mode)


def dispatch_modes() -> list[Any]:
    """The dispatch modes that are on in this thread, outermost first."""
    return [_dispatch_mode_at(i) for i in range(dispatch_mode_count())]


def push_dispatch_mode(mode: TorchDispatchMode) -> None:
    """Pushes a dispatch mode without the flags that its ``__enter__`` sets: all threads share them, and modes that end
    in another order than they began would leave them wrong for good."""
    from torch.utils import _python_dispatch as dispatch

    dispatch._push_mode(mode)


def function_modes() -> list[Any]:
    """The function modes that are on in this thread, outermost first."""
    return [function_mode_at(i) for i in range(function_mode_count())]


@contextmanager
def function_mode_on(mode: TorchFunctionMode) -> Iterator[None]:
    """Puts a function mode on during a block, then takes it off, wherever it is. It may be gone: an interrupt inside
    one of torch's own functions that had removed it for a moment loses it."""
    push_function_mode(mode)
    try:
        yield
    finally:
        remove_function_mode(mode)


def remove_function_mode(mode: TorchFunctionMode) -> None:
    """Takes the innermost occurrence of a mode off the function-mode stack; others keep their order."""
    modes = function_modes()
    if modes and modes[-1] is mode:
        pop_function_mode()
    elif mode in modes:
        del modes[_last(modes, mode)]
        _set_function_modes(modes)


def remove_dispatch_mode(mode: TorchDispatchMode) -> None:
    """The same for the dispatch-mode stack."""
    modes = dispatch_modes()
    if mode in modes:
        del modes[_last(modes, mode)]
        _set_dispatch_modes(modes)


def end_function_mode(mode: TorchFunctionMode, before: list[Any], error: BaseException | None) -> None:
    """Takes every occurrence of a mode off the function-mode stack. ``before``: the modes that were on before it;
    ``error``: the exception that ends the block."""
    modes = function_modes()
    kept = _without(modes, mode, before, error)
    if kept != modes:
        _set_function_modes(kept)


def end_dispatch_mode(mode: TorchDispatchMode, before: list[Any], error: BaseException | None) -> None:
    """The same for the dispatch-mode stack."""
    modes = dispatch_modes()
    kept = _without(modes, mode, before, error)
    if kept != modes:
        _set_dispatch_modes(kept)


def _without(modes: list[Any], mode: object, before: list[Any], error: BaseException | None) -> list[Any]:
    """The modes that should be on after a mode's end, wherever it is.

    It may be gone, for two reasons. The program left another mode and torch popped the innermost instead (a generator
    that was dropped inside the block): that other one was below ours, the last of those that were there before. Or an
    interrupt came while torch had removed modes for a moment, and they never came back; then an error is leaving.
    """
    kept = [other for other in modes if other is not mode]
    if error is not None:
        return before if len(kept) <= len(before) else kept
    if len(kept) == len(modes) and 0 < len(before) <= len(kept):
        del kept[len(before) - 1]
    return kept


def _last(modes: list[Any], mode: object) -> int:
    return max(i for i, other in enumerate(modes) if other is mode)


@contextmanager
def top_dispatch_mode_off(kind: type[TorchDispatchMode]) -> Iterator[None]:
    """Takes the innermost dispatch mode off during a block, if it is of that kind."""
    from torch.utils import _python_dispatch as dispatch

    mode = dispatch._get_current_dispatch_mode()
    if not isinstance(mode, kind):
        yield
        return
    dispatch._pop_mode()
    try:
        yield
    finally:
        dispatch._push_mode(mode)


@contextmanager
def modes_off(function_kind: type, dispatch_kind: type[TorchDispatchMode]) -> Iterator[None]:
    """Takes the function modes of one kind off during a block, wherever they are; also the innermost dispatch mode,
    if it is of ``dispatch_kind``."""
    modes = [function_mode_at(i) for i in range(function_mode_count())]
    _set_function_modes([m for m in modes if not isinstance(m, function_kind)])
    try:
        with top_dispatch_mode_off(dispatch_kind):
            yield
    finally:
        _set_function_modes(modes)


def _set_dispatch_modes(modes: list[Any]) -> None:
    from torch.utils import _python_dispatch as dispatch

    while dispatch_mode_count():
        dispatch._pop_mode()
    for mode in modes:
        dispatch._push_mode(mode)


def _set_function_modes(modes: list[Any]) -> None:
    while function_mode_count():
        pop_function_mode()
    for mode in modes:
        push_function_mode(mode)
