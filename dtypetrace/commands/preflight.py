"""Checks the settings before the first step: weights, optimizer, autocast, loss scaler.

An optimizer's name does not say what it does with weights of a dtype. So a rehearsal runs its step on copies of a few
numbers of each kind of parameter, with gradients of three sizes, and examines the result."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from .. import tracing
from ..capture import declared, private
from ..capture.calls import HALVES, asked_dtype, dtype_name
from ..capture.module_names import Root, clean_name
from ..capture.recorder import Recorder
from ..capture.rehearsal import STEPS, Rehearsal
from ..capture.settings import plan_of
from ..capture.snapshot import snapshot
from ..capture.updates import Updates, state_of
from ..records import Declared, NotJudged, Recording, Trial
from ..results import results
from ..rules import asked, plans
from ..rules.mechanisms import Mechanism, mechanism
from ..rules.run_facts import Run
from ..source.facts import with_facts
from ..view import SavedTrace

_NUMBERS = 64
"""Numbers of each kind of parameter that are stepped: enough that one unusual weight decides nothing."""
_GRADIENTS = (1e-3, 1e-1)
"""Sizes of the gradients tried, a small and a usual one; the step must fail with both."""
_LARGE = 10.0
"""A gradient size that shows whether steps grow with the gradient."""


def preflight(
    model: nn.Module, *, optimizer: Any = None, scaler: Any = None, autocast_dtype: torch.dtype | str | None = None
) -> SavedTrace:
    """Checks the settings before any step: finds those that cannot work together, or that do not do what they seem to.

    model: the module to train. optimizer: any object with torch's ``param_groups``, ``state`` and ``step()``; a copy of
    it takes trial steps on copies of a few numbers, the optimizer itself is not changed. scaler: the GradScaler, if one
    will be used. autocast_dtype: the dtype that autocast will compute in, if it will be on. Returns a trace, which
    has the findings; its repr is the console text. Raises TypeError for a model that is not a module, an optimizer
    without ``param_groups`` and what is no scaler, UnknownDtypeError for what is no dtype.

    >>> dtypetrace.preflight(model, optimizer=optimizer, scaler=scaler)    # doctest: +SKIP
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"dtypetrace.preflight(model): got {type(model).__name__}, not a torch.nn.Module; "
            "pass the module that is to be trained"
        )
    if optimizer is not None and not hasattr(optimizer, "param_groups"):
        raise TypeError(
            f"dtypetrace.preflight(optimizer=): got {type(optimizer).__name__}, which has no param_groups; "
            "pass the optimizer itself"
        )
    if scaler is not None and not hasattr(scaler, "is_enabled"):
        raise TypeError(
            f"dtypetrace.preflight(scaler=): got {type(scaler).__name__}, which has no is_enabled(); "
            "pass the GradScaler itself"
        )
    autocast = asked_dtype(autocast_dtype)
    watching = tracing.open_recorder()
    recorder = watching or Recorder()
    place = recorder.place(recorder.thread_state(), sys._getframe(0))
    trials = (
        _rehearsal(optimizer, {id(p): clean_name(n, model) for n, p in model.named_parameters()})
        if optimizer is not None
        else ()
    )
    plan = plan_of(
        model,
        optimizer=optimizer,
        scaler=scaler,
        autocast_dtype=autocast,
        place=place,
        event_of=recorder.event_of,
        trials=trials,
        asked=True,
    )
    if watching is not None:
        watching.plans.append(plan)  # the trace judges it too
    seen = snapshot(recorder)
    held = Root(model, place, -1)
    declared.take(recorder, held)
    given = () if autocast is None else (Declared("", (), dtype_name(autocast), "autocast", "compute"),)
    told = (*declared.of_step(optimizer, sys._getframe(1)), *declared.launchers(), *given)
    stepped = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it
    own = Recording(
        places=seen.places,
        events=seen.events,
        parameters=seen.parameters or tuple(p for _, p in held.held),
        meta={**seen.meta, "numerics": True},
        not_judged=(NotJudged("values", "preflight runs no step of the program"),),
        plans=(plan,),
        declared=(*held.declared, *dict.fromkeys(told)),
        state=state_of(stepped, place, recorder.event_of),
        text=seen.text,
    )
    recording = with_facts(own)
    found = (*plans.find(recording), *asked.overridden(Run(recording)))
    return SavedTrace(results(recording, found))


def _rehearsal(optimizer: Any, names: dict[int, str]) -> tuple[Trial, ...]:
    """One trial for each dtype and group of hyperparameters with which narrow weights are trained."""
    with private.DisableTorchFunction(), private.DisableTorchDispatch():
        return tuple(_trials(optimizer, names))


def _trials(optimizer: Any, names: dict[int, str]) -> Iterable[Trial]:
    for group in optimizer.param_groups:
        chosen: dict[torch.dtype, Any] = {}
        for parameter in group["params"]:
            if (
                parameter.dtype in HALVES
                and parameter.layout is torch.strided
                and not parameter.is_meta
                and parameter.numel()
            ):
                best = chosen.get(parameter.dtype)
                if best is None or not best.any() and parameter.any():
                    chosen[parameter.dtype] = parameter
        for dtype, parameter in chosen.items():
            small, usual, large = (_try(optimizer, group, parameter, size) for size in (*_GRADIENTS, _LARGE))
            if small is None or usual is None or "healthy" in (small.name, usual.name):
                continue
            # a step too small for a small gradient may be large enough for a larger one, unless the optimizer
            # normalises
            if small.name != "below resolution" or large is not None and large.name != "healthy":
                yield Trial(names.get(id(parameter), ""), dtype_name(dtype), small.name, small.facts)


def _try(optimizer: Any, group: dict[str, Any], parameter: torch.Tensor, gradient: float) -> Mechanism | None:
    """Steps a copy of the optimizer over a copy of a few numbers; None where such a copy cannot be made."""
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        values = parameter.detach().reshape(-1)[:_NUMBERS]
        values = values.repeat(-(-_NUMBERS // len(values)))[:_NUMBERS].clone().view(8, 8)
        updates = Updates(numerics=True)
        generator = torch.Generator(device="cpu").manual_seed(0)
        try:
            rehearsal = Rehearsal(optimizer, group, values)
            for _ in range(STEPS):
                gradients = torch.randn(8, 8, generator=generator) * gradient
                updates.begins(rehearsal.optimizer, -1)
                rehearsal.step(gradients)
                updates.ends(rehearsal.optimizer)
        except Exception:  # the optimizer's own code may fail on such a copy
            return None
        (update,) = updates.read()
        # a rehearsal sees no writes through ``.data``: whether weights that did not move were written is not known
        return mechanism(replace(update, written=True))
