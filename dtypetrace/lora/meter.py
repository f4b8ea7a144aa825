"""Measures what a run does to its adapters: gradients, updates, the optimizer's state, the loss of each step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ..capture import mode_stacks, private
from ..capture.calls import dtype_name, shape_of
from ..capture.holders import address
from ..capture.updates import SMALLEST_NORMAL_HALF, Facts, Updates, sample
from ..records import Update
from .adapters import Adapter, narrow
from .verdict import Measured, TrainingRun


class Meter:
    """Measures the steps of one run. ``event_of`` returns the recorded event that decided a tensor's dtype."""

    def __init__(self, adapters: Iterable[Adapter] = (), event_of: Any = lambda tensor: -1) -> None:
        self.adapters: list[Adapter] = []
        self.parameters: dict[str, nn.Parameter] = {}
        self._names: dict[int, str] = {}
        self.updates = Updates(True, Facts(event_of, lambda: self._names))
        self.losses: list[torch.Tensor] = []
        self.changes: list[torch.Tensor] = []
        self._rows: dict[str, list[torch.Tensor]] = {}
        self._start: dict[str, torch.Tensor] = {}
        self._writes = _Writes(self.updates.written)
        self._running: tuple[Any, torch.Tensor] | None = None
        self.skipped = 0
        self.add(adapters)

    def add(self, adapters: Iterable[Adapter]) -> None:
        """More adapters to measure."""
        for adapter in adapters:
            self.adapters.append(adapter)
            self.parameters.update(adapter.parameters)
            self._names.update((id(p), n) for n, p in adapter.parameters.items())
            self._start.update((n, self._sample(p)) for n, p in adapter.parameters.items())

    def _sample(self, parameter: nn.Parameter) -> torch.Tensor:
        home = next(iter(self.parameters.values())).device  # a model may use several devices
        with private.DisableTorchFunction(), private.DisableTorchDispatch():
            return sample(parameter.detach()).float().to(home)

    def _samples(self) -> torch.Tensor:
        return torch.cat([self._sample(p) for p in self.parameters.values()])

    # ------------------------------------------------------------ one step

    @contextlib.contextmanager
    def step(self, loss: torch.Tensor, optimizer: Any, left_out: bool) -> Iterator[None]:
        """A block around one optimizer step, with the gradients that the step gets."""
        self.begins(loss, optimizer, left_out)
        with self._writes:
            yield
        self.ends()

    def begins(self, loss: torch.Tensor, optimizer: Any, left_out: bool, scale: float = 1.0) -> None:
        """Before a step. ``scale`` is what a fused step will divide the gradients by."""
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), torch.no_grad():
            self.losses.append(loss.detach().float())
            for name, parameter in self.parameters.items():
                if parameter.grad is not None and not left_out:
                    self._rows.setdefault(name, []).append(_gradient(parameter.grad, scale))
            before = self._samples()
        self.skipped += left_out
        measured = optimizer if not left_out else None
        if measured is not None:
            self.updates.begins(measured, -1)
        self._running = measured, before

    def ends(self) -> None:
        """After a step; does nothing if no step was begun."""
        if self._running is None:
            return
        (optimizer, before), self._running = self._running, None
        if optimizer is not None:
            self.updates.ends(optimizer)
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), torch.no_grad():
            self.changes.append((self._samples() - before).abs().mean())

    def watch_writes(self, on: bool) -> None:
        """Switches the mode that ``step`` enters on and off, for callers that cannot put a block around a step."""
        if on:
            mode_stacks.dispatch.push(self._writes)
        else:
            mode_stacks.dispatch.remove(self._writes)

    # ------------------------------------------------------------ at the end

    def read(self, label: str, optimizers: Iterable[Any], scale: float, ended: str) -> Measured:
        """Everything that was measured. ``optimizers``: those that train; ``ended``: the exception that ended the
        run."""
        held = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
        known = {u.name: u for u in self.updates.read()}
        updates = {
            name: replace(
                known.get(name) or _unmeasured(name, p),
                frozen=not p.requires_grad,
                held=id(p) in held,
                skipped=self.skipped,
                scale=scale,
            )
            for name, p in self.parameters.items()
        }
        gradients, resolutions = {}, {}
        for name, rows in self._rows.items():
            table = torch.stack(rows)
            gradients[name] = (table[-1, 0].item(), *table[:, 1:].mean(0).tolist())
        for name, p in self.parameters.items():
            end = self._sample(p)
            resolutions[name] = _resolution(end if bool(torch.isfinite(end).all()) else self._start[name], p.dtype)
        narrowest = narrow(self.parameters.values())
        run = TrainingRun(
            label=label,
            dtype=dtype_name((narrowest or list(self.parameters.values()))[0].dtype),
            losses=tuple(torch.stack(self.losses).tolist()) if self.losses else (),
            changes=tuple(torch.stack(self.changes).tolist()) if self.changes else (),
            resolution=sorted(resolutions.values())[len(resolutions) // 2],
            skipped=self.skipped,
            scale=scale,
            ended=ended,
        )
        return Measured(run, {a.name: tuple(a.parameters) for a in self.adapters}, updates, gradients, resolutions)


def _gradient(gradient: torch.Tensor, scale: float) -> torch.Tensor:
    values = gradient.detach().float() / scale
    size = values.abs()
    shares = ((values == 0), (size < SMALLEST_NORMAL_HALF) & (size != 0), ~torch.isfinite(values))
    return torch.stack([values.norm(), *(s.float().mean() for s in shares)])


def _resolution(weights: torch.Tensor, dtype: torch.dtype) -> float:
    """Mean size of the smallest change that weights of a dtype can represent: half the distance to the next number."""
    info, weights = torch.finfo(dtype), weights.cpu().double()
    half = torch.exp2(torch.frexp(weights).exponent.double() - 1) * info.eps / 2
    return half.where(weights != 0, 0.0).clamp(min=info.smallest_normal * info.eps / 2).mean().item()


def _unmeasured(name: str, parameter: nn.Parameter) -> Update:
    """A parameter that was in no measured step."""
    return Update(
        name=name, dtype=dtype_name(parameter.dtype), shape=shape_of(parameter), event=-1, place=-1,
        optimizer="", steps=0, lr=-1.0, eps=None,
        gradient_dtype="", gradient_event=-1, absent=0, zero=0, broken_gradient=0, gradient_peak=0.0, subnormal=0.0,
        reached=0, moved=0, written=False, broken=0, magnitude=0.0, change=0.0,
    )  # fmt: skip


class _Writes(private.TorchDispatchMode):
    """Records the start addresses of the memory that operators write to: a step that wrote nothing is different from
    one whose change was rounded away."""

    def __init__(self, written: set[int]) -> None:
        super().__init__()
        self.written = written

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func._schema.is_mutable:
            for declared, value in zip(func._schema.arguments, args):
                if declared.alias_info is not None and declared.alias_info.is_write:
                    tensors = value if isinstance(value, (list, tuple)) else (value,)
                    self.written.update(address(t) for t in tensors if isinstance(t, torch.Tensor))
        return func(*args, **(kwargs or {}))
