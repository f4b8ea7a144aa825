"""Reads the settings that decide the dtypes a run will compute in: the facts that ``rules.plans`` judges."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from ..records import Parameter, Plan, Shared, Trial
from ..tables.refusals import canonical
from . import private
from .calls import dtype_name, shape_of
from .coded import is_quantised
from .module_names import clean_name, walk


def plan_of(
    model: nn.Module,
    *,
    optimizer: Any = None,
    scaler: Any = None,
    autocast_dtype: torch.dtype | None = None,
    place: int = -1,
    event_of: Callable[[torch.Tensor], int] | None = None,
    others: Iterable[nn.Module] = (),
    trials: tuple[Trial, ...] = (),
    asked: bool = False,
) -> Plan:
    """The plan that follows from these objects.

    ``event_of`` returns the recorded event that decided a tensor's dtype; ``others`` are further models whose
    parameters the optimizer may hold.
    """
    with private.DisableTorchFunction(), private.DisableTorchDispatch():
        modules, named = ([(clean_name(n, model), one) for n, one in found] for found in walk(model)[:2])
        floating = [(n, p) for n, p in named if p.dtype.is_floating_point and not is_quantised(p)]
        quantised = list(dict.fromkeys(n.rpartition(".")[0] for n, p in named if is_quantised(p)))
        trained = [(n, p) for n, p in floating if p.requires_grad]
        # not the program's request: another thread may be writing the gradients that this optimizer does not hold
        held = {id(p) for group in optimizer.param_groups for p in group["params"]} if optimizer is not None else set()
        gradients = [(n, p, p.grad) for n, p in trained if asked or id(p) in held]
        of_quantised = {q.rpartition(".")[0] + "." for q in quantised}
        return Plan(
            place=place,
            model=type(model).__name__,
            parameters=tuple(
                Parameter(n, dtype_name(p.dtype), p.numel(), event_of(p) if event_of else -1) for n, p in floating
            ),
            trained=tuple(n for n, _ in trained),
            quantised=tuple(quantised),
            adapted=any(
                p.dim() >= 2 and n.startswith(prefix) and len(prefix) > 1 for n, p in trained for prefix in of_quantised
            ),
            autocast=dtype_name(autocast_dtype) if autocast_dtype else "",
            scaler=scaler is not None and scaler.is_enabled(),
            trials=trials,
            asked=asked,
            stale=_stale(optimizer, (o for o in others if o is not model), named) if optimizer is not None else (),
            held=optimizer is None or any(id(p) in held for _, p in named),
            shared=tuple(_shared(modules)),
            cast_gradients=tuple(
                n for n, p, gradient in gradients if gradient is not None and gradient.dtype is not p.dtype
            ),
        )


def gathered(model: nn.Module) -> Callable[[str, str], bool]:
    """Tells by a parameter's name and dtype whether it is a copy that FSDP gathered to compute with: the weights that
    an optimizer trains have another dtype."""
    named = ((clean_name(name, model), module) for name, module in model.named_modules())
    policies = [(s.module, s.computes) for s in _shared(named) if s.computes and s.by != "DistributedDataParallel"]

    def is_copy(name: str, dtype: str) -> bool:
        return any(dtype == computes and (not at or f"{name}.".startswith(f"{at}.")) for at, computes in policies)

    return is_copy


def _shared(modules: Iterable[tuple[str, nn.Module]]) -> Iterable[Shared]:
    """The dtypes that DDP and both kinds of FSDP were configured with, for each wrapper."""
    for name, module in modules:
        kind = type(module).__name__
        policy = private.sharded_policy(module)
        if policy is not None:
            yield Shared(
                name, "fully_shard", _name(policy.param_dtype), _name(policy.reduce_dtype or policy.param_dtype)
            )
        elif kind == "FullyShardedDataParallel":
            policy = module.mixed_precision
            computes, reduces = getattr(policy, "param_dtype", None), getattr(policy, "reduce_dtype", None)
            yield Shared(name, kind, _name(computes), _name(reduces or computes))
        elif isinstance(module, nn.parallel.DistributedDataParallel):
            policy = module.mixed_precision
            built, hook = private.bucket_facts(module)
            squeezed = (
                "float16"
                if hook.startswith("fp16_compress")
                else "bfloat16"
                if hook.startswith("bf16_compress")
                else ""
            )
            reduces = squeezed or _name(getattr(policy, "reduce_dtype", None))
            yield Shared(
                name,
                kind,
                _name(getattr(policy, "param_dtype", None)),
                reduces,
                tuple(canonical(d) or d for d in built),
            )


def _name(dtype: torch.dtype | None) -> str:
    return dtype_name(dtype) if dtype is not None else ""


def _stale(optimizer: Any, others: Iterable[nn.Module], named: list[tuple[str, nn.Parameter]]) -> tuple[str, ...]:
    """Shapes of parameters that the optimizer trains but no model has, and that have no gradient, if the model has
    another parameter of that shape which the optimizer does not hold."""
    held = {id(p): p for group in optimizer.param_groups for p in group["params"]}
    owned = {id(p) for _, p in named} | {id(p) for other in others for p in other.parameters()}
    left_out = {shape_of(p) for _, p in named if p.requires_grad and id(p) not in held}
    lost = (shape_of(p) for i, p in held.items() if i not in owned and p.grad is None)
    return tuple(dict.fromkeys("x".join(map(str, shape)) for shape in lost if shape in left_out))
