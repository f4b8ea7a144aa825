"""The reference of one run: computed for every operator, compared at every optimizer step, and reset after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..capture import private
from ..capture.calls import FROM_NUMBERS, given_numbers, readable
from ..capture.recorder import Recorder
from ..records import Compared, Precision
from .adjoints import Adjoints
from .calls import Done
from .compared import Comparisons
from .engine import Followed
from .follower import Follower
from .keeping import WideModules, keep_wide
from .regions import Regions
from .spot_checks import SpotChecks

Tensor = torch.Tensor
STEPS = 10
"""Optimizer steps that are followed unless the program asks for another number: damage shows in the first few."""


class Reference(Follower):
    """Follows one run.

    recorder: its ops are followed. steps: after this many optimizer steps it ends, and the run goes on without it.
    keep:
    modules, by their paths in the outermost one called, that compute in float32 during the run. Only this
    changes what the program computes.
    """

    whole = True

    def __init__(
        self,
        recorder: Recorder,
        *,
        steps: int = STEPS,
        keep: Iterable[str] = (),
    ) -> None:
        super().__init__(recorder)
        self._steps = steps
        self._comparisons = Comparisons(self._shadows, recorder.parameter_names, self._made)
        self._adjoints = Adjoints(self._errors, self._shadows)
        self._regions = Regions(recorder)
        self.most_bytes = 0
        self._done = 0
        self._keep = tuple(keep)
        self._unknown = dict.fromkeys(self._keep)
        """Those of which no model has a module."""
        self._islands: dict[int, WideModules] = {}

    @property
    def regions(self) -> Regions:
        return self._regions

    # ------------------------------------------------------------ every operator

    def _writes(self, func: Any) -> bool:
        return not self._recorder.broken

    def after(self, number: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, out: Any) -> None:
        """After a call that was recorded under op ``number``."""
        if not self.on:
            return
        written, self._written = self._written, None
        self._adjoints.begins()
        try:
            self._adjoints.meets(func, args)
            self._follow(Done(number, func, args, kwargs or {}, out), written)
            if private.current_autograd_node() is None:
                self._adjoints.awaits(func, args)
        except Exception as error:
            self._fail(error)

    def stop(self) -> None:
        super().stop()
        self._regions.stop()
        self._adjoints.clear()
        self._comparisons.forget()

    def close(self) -> None:
        """The trace ends: removes everything from the program's modules."""
        self.stop()
        for island in self._islands.values():
            island.remove()
        self._islands.clear()

    def outermost(self, module: torch.nn.Module) -> None:
        """A module is called from outside: on its first call, the parts of it to keep in float32 are cast."""
        if self._keep and id(module) not in self._islands:
            self._islands[id(module)] = keep_wide(module, self._keep)
            for name, _ in module.named_modules():
                self._unknown.pop(name, None)

    # ------------------------------------------------------------ errors, and the gradients they are multiplied by

    def _saw(self, number: int, followed: list[Followed]) -> None:
        super()._saw(number, followed)
        self._adjoints.saw(number, followed[0])

    def _made(self, tensor: Tensor) -> tuple[int, int]:
        """The numbers of the event that decided a tensor's dtype and of the op that made it; -1 where unknown."""
        mark = self._recorder.origins.of(tensor)
        return (mark.event, mark.op) if mark is not None else (-1, -1)

    # ------------------------------------------------------------ tensors that share their numbers with code outside
    # torch

    def called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, out: Any) -> None:
        """The same, and numbers that were passed to a narrow tensor become its reference."""
        super().called(func, args, kwargs, out)
        if self.on and func in FROM_NUMBERS and isinstance(out, Tensor):
            try:
                self._given(given_numbers(func, args, kwargs), out)
            except Exception as error:
                self._fail(error)

    def _given(self, data: Any, out: Tensor) -> None:
        shadows = self._shadows
        if data is None or not shadows.follows(out) or out.dtype is torch.float64 or not readable(out):
            return
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowInplaceOrView():
            given = torch.tensor(data, dtype=shadows.wide_of(out.dtype), device=out.device)
            if given.shape == out.shape and shadows.shadow(out) is None:
                shadows.give(out, given)

    # ------------------------------------------------------------ steps

    def step_begins(self, optimizer: Any, place: int) -> None:
        """Before an optimizer's step: compares its gradients."""
        if self.on:
            self._guarded(lambda: self._comparisons.begins(optimizer, place))

    def step_ends(self, optimizer: Any) -> None:
        """After the step: compares its updates and its state, and resets every reference."""
        if not self.on:
            return
        self._regions.forget()
        self.most_bytes = max(self.most_bytes, self._shadows.nbytes)
        self._guarded(lambda: self._comparisons.ends(optimizer))
        self._shadows.clear()
        self._adjoints.clear()
        self._steps -= 1
        self._done += 1
        self._engine.measuring = self._done < _MEASURED_STEPS or self._done % _ONE_IN == 0
        if self._steps <= 0:
            self.stop()
            if not self._keep:  # spot checks see what first runs from then on
                self._recorder.unfollowed(self, SpotChecks(self._recorder, first=len(self._recorder.ops)))

    def _guarded(self, what: Callable[[], None]) -> None:
        try:
            with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowInplaceOrView():
                what()
        except Exception as error:
            self._fail(error)

    # ------------------------------------------------------------ reading

    def read(self) -> tuple[tuple[Precision, ...], tuple[Compared, ...]]:
        """The errors, by op and by parameter."""
        for func, reason in self._engine.refused.items():
            self._recorder.not_seen[f"references of the results of {func}: it refuses higher precision ({reason})"] = (
                None
            )
        for name in self._unknown:
            why = "it had no effect, because no model that was called has a module of this name"
            self._recorder.not_seen[f"--keep-wide {name}: {why}"] = None
        return super().read()[0], self._comparisons.read()


_MEASURED_STEPS, _ONE_IN = 2, 4
"""In the first ``_MEASURED_STEPS`` steps every op is measured, then in one step in ``_ONE_IN``. Gradients and updates
are compared in every step."""
