"""Measures what a run does to its adapters: gradients, updates, the optimizer's state, the loss of each step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ..capture import private
from ..capture.calls import dtype_name, shape_of
from ..capture.holders import address
from ..capture.updates import SMALLEST_NORMAL_HALF, Facts, Updates, sample
from ..records import Update
from .adapters import Adapter, narrow
from .verdict import Measured, TrainingRun


class Meter:
    """Measures the steps of one run."""

    def __init__(self, adapters: Sequence[Adapter]) -> None:
        self.adapters = adapters
        self.parameters = {name: p for adapter in adapters for name, p in adapter.parameters.items()}
        names = {id(p): name for name, p in self.parameters.items()}
        self.updates = Updates(True, Facts(lambda tensor: -1, lambda: names))
        self.losses: list[torch.Tensor] = []
        self._rows: dict[str, list[torch.Tensor]] = {}
        self._start = {name: self._sample(p) for name, p in self.parameters.items()}
        self.skipped = 0

    def _sample(self, parameter: nn.Parameter) -> torch.Tensor:
        home = next(iter(self.parameters.values())).device  # a model may use several devices
        with private.DisableTorchFunction(), private.DisableTorchDispatch():
            return sample(parameter.detach()).float().to(home)

    # ------------------------------------------------------------ one step

    @contextlib.contextmanager
    def step(self, loss: torch.Tensor, optimizer: Any, left_out: bool) -> Iterator[None]:
        """A block around one optimizer step, with the gradients that the step gets."""
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), torch.no_grad():
            self.losses.append(loss.detach().float())
            for name, parameter in self.parameters.items():
                if parameter.grad is not None and not left_out:
                    self._rows.setdefault(name, []).append(_gradient(parameter.grad))
        self.skipped += left_out
        measured = optimizer if not left_out else None
        if measured is not None:
            self.updates.begins(measured, -1)
        with _Writes(self.updates.written):
            yield
        if measured is not None:
            self.updates.ends(measured)

    # ------------------------------------------------------------ at the end

    def read(self, label: str, optimizers: Iterable[Any], scale: float, ended: str) -> Measured:
        """Everything that was measured. ``optimizers``: those that train; ``ended``: the exception that ended the
        run."""
        held = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
        known = {u.name: u for u in self.updates.read()}
        updates = {
            name: replace(
                known.get(name) or Update(name, dtype_name(p.dtype), shape_of(p)),
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
            skipped=self.skipped,
            scale=scale,
            ended=ended,
        )
        return Measured(run, {a.name: tuple(a.parameters) for a in self.adapters}, updates, gradients, resolutions)


def _gradient(gradient: torch.Tensor) -> torch.Tensor:
    values = gradient.detach().float()
    size = values.abs()
    shares = ((values == 0), (size < SMALLEST_NORMAL_HALF) & (size != 0), ~torch.isfinite(values))
    return torch.stack([values.norm(), *(s.float().mean() for s in shares)])


def _resolution(weights: torch.Tensor, dtype: torch.dtype) -> float:
    """Mean size of the smallest change that weights of a dtype can represent: half the distance to the next number."""
    info, weights = torch.finfo(dtype), weights.cpu().double()
    half = torch.exp2(torch.frexp(weights).exponent.double() - 1) * info.eps / 2
    return half.where(weights != 0, 0.0).clamp(min=info.smallest_normal * info.eps / 2).mean().item()


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
