"""The parameters around a refused call: which module holds a tensor under which name, and how many numbers have each
dtype."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import nn

from ..records import Parameter
from .calls import dtype_name, readable
from .module_names import Held, state_names
from .parents import owner_of
from .running import Thread
from .session import Session

Tensor = torch.Tensor
Holder = tuple[str, str | None]
"""A tensor's qualified name and what holds it: ``parameter``, ``buffer``, ``gradient`` or ``state``."""
Names = dict[Any, Holder]
"""By id of the tensor, and by its address in memory."""


def address(tensor: Tensor) -> int:
    """Where a tensor's numbers begin; 0 for one without memory of its own. Fake tensors warn when they are asked."""
    if type(tensor) not in (Tensor, nn.Parameter, nn.Buffer) or not readable(tensor) or not tensor.numel():
        return 0
    try:
        return tensor.data_ptr()
    except RuntimeError:  # tensors passed in by vmap and grad, where readable cannot tell
        return 0


def memory(tensor: Tensor) -> tuple[int, torch.dtype] | None:
    """The same with the tensor's dtype, which views may differ in; None for one without memory of its own."""
    begins = address(tensor)
    return (begins, tensor.dtype) if begins else None


def holder_of(tensor: Tensor, names: Names) -> Holder:
    """Who holds a tensor. A parameter that was transposed, expanded, sliced or detached is still that parameter."""
    base = tensor._base
    known = names.get(id(tensor))
    if known is None and base is not None and base.dtype is tensor.dtype:
        known = names.get(id(base))
    return known or names.get(memory(tensor), ("", None))


def root_of(recorder: Session, thread: Thread, forward_op: int, frames: Iterable[FrameType]) -> nn.Module | None:
    """The outermost module whose forward or backward is running, or else another of its methods
    (``training_step``). ``frames``: those on the stack, innermost first."""
    if thread.modules:
        return thread.modules[0].root.ref()
    if forward_op >= 0:
        root = recorder.ops[forward_op].root
        return root() if root is not None else None
    ran = (recorder.modules.ran_in(m) for m in map(owner_of, frames) if m is not None)
    return next((top for top in reversed(list(ran)) if top is not None), None)


def gradients_of(recorder: Session) -> Iterator[tuple[Tensor, Tensor]]:
    """Gradients with their owners: those that the program has read, and those that its optimizers use.

    No others: a gradient that another thread's backward is writing must not be read.
    """
    yield from recorder.origins.gradients()
    optimizer = recorder.stepping.optimizer()
    for group in optimizer.param_groups if optimizer is not None else ():
        yield from ((p.grad, p) for p in group["params"] if isinstance(p, Tensor) and p.grad is not None)


def names_around(recorder: Session, root: nn.Module | None, holders: Iterable[nn.Module] = ()) -> Names:
    """Names of parameters, buffers, gradients and optimizer state; the running model's names win."""
    names: Names = {}
    gradients = {id(owner): gradient for gradient, owner in gradients_of(recorder)}
    for known in (*holders, *reversed(tuple(recorder.modules.live_roots())), *((root,) if root is not None else ())):
        tensors = list(recorder.modules.tensors(known))
        own = {id(one.tensor): (one.name, one.holder) for one in tensors}
        held = {id(one.tensor): one.tensor for one in tensors}
        found = {id(gradients[i]): (f"{name}.grad", "gradient") for i, (name, _) in own.items() if i in gradients}
        names.update(found | own)
        for tensor in (*held.values(), *(gradients[i] for i in held if i in gradients)):
            if id(tensor) in names and (place := memory(tensor)):
                names[place] = names[id(tensor)]
    optimizer = recorder.stepping.optimizer()
    if optimizer is not None:
        names = {**state_names(optimizer, names), **names}
    return names


def parameters_of(recorder: Session, root: nn.Module, names: Names) -> tuple[Parameter, ...]:
    held = (one for one in recorder.modules.tensors(root) if one.holder == "parameter")
    return tuple(
        parameter_record(one._replace(name=names[id(one.tensor)][0]), recorder.event_of(one.tensor))
        for one in held
        if one.tensor.dtype.is_floating_point and not isinstance(one.tensor, nn.parameter.UninitializedParameter)
    )


def parameter_record(held: Held, event: int, dtype: torch.dtype | None = None) -> Parameter:
    """A parameter or buffer as plain data; ``event`` decided its dtype. dtype: if it is not what it is now."""
    p = held.tensor
    return Parameter(
        held.name, dtype_name(dtype or p.dtype), p.numel(), event, p.requires_grad, held.beside, held.holder
    )


def _called(recorder: Session) -> dict[int, Tensor]:
    """The parameters of every model that was called, by id."""
    models = map(recorder.modules.tensors, recorder.modules.live_roots())
    return {id(one.tensor): one.tensor for held in models for one in held if one.holder == "parameter"}


def live_parameters(recorder: Session) -> dict[int, nn.Parameter]:
    """Every known parameter that is alive, by id."""
    found = _called(recorder)
    for mark in list(recorder.origins.marks.values()):
        tensor = mark()
        if isinstance(tensor, nn.Parameter):
            found[id(tensor)] = tensor
    return {
        k: p
        for k, p in found.items()
        if isinstance(p, nn.Parameter) and not isinstance(p, nn.parameter.UninitializedParameter)
    }


def numbers_by_dtype(recorder: Session) -> tuple[tuple[str, int], ...]:
    """How many numbers of each dtype the parameters hold: those of every model that was called, else all that are
    alive.

    A copy that never runs (an average of the weights, a checkpoint in memory) says little about the dtypes of the run.
    """
    called = _called(recorder)
    sizes: dict[str, int] = {}
    for p in (called or live_parameters(recorder)).values():
        if p.dtype.is_floating_point:
            name = dtype_name(p.dtype)
            sizes[name] = sizes.get(name, 0) + p.numel()
    return tuple(sorted(sizes.items(), key=lambda item: -item[1]))


def mismatched_gradients(recorder: Session, dtypes: set[str]) -> list[tuple[str, Tensor]]:
    """The first gradient whose dtype is not its parameter's, and the parameter: a reducer or bucket refuses such a
    pair.

    ``dtypes``: those that the message mentions; empty for any.
    """
    for gradient, parameter in gradients_of(recorder):
        if gradient.dtype is not parameter.dtype and (not dtypes or dtype_name(gradient.dtype) in dtypes):
            return [("gradient", gradient), ("parameter", parameter)]
    return []
