"""The experiment on a model's adapters: the same steps with their weights as they are and in float32. Do they learn?"""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..capture.calls import asked_dtype, dtype_name
from .adapters import Adapter, Snapshot, find_adapters, seed_all, to_float32
from .meter import Meter
from .verdict import AS_THEY_ARE, IN_FLOAT32, Measured, Retraining, verdicts


def retrain(
    model: nn.Module,
    compute_loss: Callable[..., torch.Tensor],
    *,
    make_optimizer: Callable[..., Any],
    steps: int,
    autocast_dtype: torch.dtype | str | None,
    scaler: Any,
    seed: int,
    keep: bool,
) -> Retraining:
    """The experiment, see ``dtypetrace.retrain_lora``."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"dtypetrace.retrain_lora(model): got {type(model).__name__}, not a torch.nn.Module; "
            "pass the module that holds the adapters"
        )
    for name, value in ("steps", steps), ("seed", seed):
        if not isinstance(value, int):
            raise TypeError(f"dtypetrace.retrain_lora({name}): got {value!r}; pass a whole number")
    if scaler is not None and not hasattr(scaler, "unscale_"):
        raise TypeError(f"dtypetrace.retrain_lora(scaler): got {type(scaler).__name__}; pass the GradScaler itself")
    autocast = asked_dtype(autocast_dtype)
    if steps < 2:
        raise ValueError(
            f"dtypetrace.retrain_lora(steps={steps}): in the first step the gradient of a LoRA's down matrix is zero, "
            "as it should be; take 2 or more"
        )
    adapters = find_adapters(model)
    experiment = _Experiment(
        model, adapters, _caller(compute_loss, "compute_loss"), _caller(make_optimizer, "make_optimizer"), steps, seed
    )
    computes = autocast or _base_dtype(model, adapters)
    computes = computes if computes is not None and computes.itemsize < 4 else None
    snapshot = Snapshot(model, adapters)
    done = False
    try:
        with torch.enable_grad():
            snapshot.rewind()  # else new gradients would be added to existing ones
            before, failure = experiment.run(AS_THEY_ARE, autocast, copy.deepcopy(scaler))
            snapshot.rewind()
            to_float32(adapters)
            if scaler is None and computes is torch.float16:
                scaler = torch.amp.GradScaler(experiment.device.type)
            untrained = experiment.untrained(computes)
            snapshot.rewind()
            after, second = experiment.run(IN_FLOAT32, computes, copy.deepcopy(scaler))
            if failure is not None and second is not None:
                raise second
            done = True
    finally:
        if not (keep and done):
            snapshot.restore()
    return Retraining(
        adapters=verdicts(before, after),
        before=before.run,
        after=after.run,
        untrained=untrained,
        optimizer=experiment.optimizer,
        computes=dtype_name(computes) if computes else "",
        steps=steps,
    )


def _caller(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function, as one that takes one argument; a function without arguments is called without."""
    if not callable(function):
        raise TypeError(f"dtypetrace.retrain_lora({name}): got {type(function).__name__}; pass a function")
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # a builtin
        return function
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]
    needed = [p for p in places if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    if len(needed) > 1:
        named = ", ".join(p.name for p in needed)
        raise TypeError(
            f"dtypetrace.retrain_lora({name}): it needs {len(needed)} arguments ({named}); pass a function of one"
        )
    return function if needed or any(p.kind is p.VAR_POSITIONAL for p in places) else lambda _: function()


def _base_dtype(model: nn.Module, adapters: list[Adapter]) -> torch.dtype | None:
    """The dtype of most of the model's floating numbers outside the adapters, or of the adapters if there are no
    others."""
    own = {id(p) for adapter in adapters for p in adapter.parameters.values()}
    sizes: Counter[torch.dtype] = Counter()
    for parameter in model.parameters():
        if parameter.dtype.is_floating_point and id(parameter) not in own:
            sizes[parameter.dtype] += parameter.numel()
    chosen = sizes or Counter(p.dtype for adapter in adapters for p in adapter.parameters.values())
    return chosen.most_common(1)[0][0] if chosen else None


# ---------------------------------------------------------------- a run


class _Experiment:
    """The data that both runs share."""

    def __init__(
        self,
        model: nn.Module,
        adapters: list[Adapter],
        compute_loss: Callable[..., Any],
        make_optimizer: Callable[..., Any],
        steps: int,
        seed: int,
    ) -> None:
        self.model, self.compute_loss, self.make_optimizer = model, compute_loss, make_optimizer
        self.adapters = adapters
        self.parameters = {name: p for adapter in adapters for name, p in adapter.parameters.items()}
        self.device = next(iter(self.parameters.values())).device
        self.steps, self.seed = steps, seed
        self.optimizer = ""

    def run(self, label: str, computes: torch.dtype | None, scaler: Any) -> tuple[Measured, Exception | None]:
        """Takes the steps; returns the exception that ended them, if any."""
        meter = Meter(self.adapters)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        optimizer, failure = None, None
        try:
            if trained:
                seed_all(self.seed)
                optimizer = self.make_optimizer(trained)
                self.optimizer = type(optimizer).__name__
                if not hasattr(optimizer, "param_groups"):
                    what = f"it returned {self.optimizer}, which has no param_groups; return the optimizer"
                    raise TypeError(f"dtypetrace.retrain_lora(make_optimizer): {what}")
            for step in range(self.steps):
                loss = self._loss(step, computes)
                self._step(loss, optimizer, scaler, meter)
        except Exception as error:  # the program's own, or a refusal of torch's: part of the result
            failure = error
        scale = scaler.get_scale() if scaler is not None else 0.0
        ended = f"{type(failure).__name__}: {failure}" if failure else ""
        return meter.read(label, [optimizer] if hasattr(optimizer, "param_groups") else [], scale, ended), failure

    def untrained(self, computes: torch.dtype | None) -> tuple[float, ...]:
        """The loss of each step if nothing had been learned before it."""
        losses = []
        with contextlib.suppress(Exception):  # what ends these also ends the float32 run, which reports it
            for step in range(self.steps):
                losses.append(self._loss(step, computes).detach().float())
        return tuple(torch.stack(losses).tolist()) if losses else ()

    def _loss(self, step: int, computes: torch.dtype | None) -> torch.Tensor:
        seed_all(self.seed + step)
        with torch.autocast(self.device.type, dtype=computes) if computes else contextlib.nullcontext():
            loss = self.compute_loss(self.model)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise TypeError(f"dtypetrace.retrain_lora(compute_loss): it returned {what}; return the scalar loss")
        return loss.reshape(())

    def _step(self, loss: torch.Tensor, optimizer: Any, scaler: Any, meter: Meter) -> None:
        if loss.requires_grad:
            (loss if scaler is None else scaler.scale(loss)).backward()
        held = [p for group in optimizer.param_groups for p in group["params"]] if optimizer else []
        gradients = [p.grad for p in held if p.grad is not None]
        scales = scaler is not None and scaler.is_enabled() and bool(gradients)
        if scales:
            scaler.unscale_(optimizer)
        # a scaler checks by itself, too; it still calls a fused step, which then changes no weights
        left_out = scales and not all(bool(torch.isfinite(g).all()) for g in gradients) and bool(torch.isfinite(loss))
        with meter.step(loss, optimizer, left_out):
            if scales:
                scaler.step(optimizer)
            elif optimizer is not None and (gradients or scaler is None):
                optimizer.step()
        if scales:
            scaler.update()
        for parameter in {id(p): p for p in (*held, *self.parameters.values())}.values():
            parameter.grad = None
