"""The reference of one run: computed for every operator, compared at every optimizer step, and reset after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch

from ..capture import private
from ..capture.calls import FROM_NUMBERS, given_numbers, readable
from ..records import Compared, Precision
from .adjoints import Adjoints
from .compared import Comparisons
from .engine import Engine, Followed, Written
from .errors import Errors
from .keeping import NarrowModel, WideModules, keep_wide
from .spot_checks import Recorder, SpotChecks

Tensor = torch.Tensor
STEPS = 10
"""Optimizer steps that are followed unless the program asks for another number: damage shows in the first few."""
_EXPORTS = frozenset({Tensor.numpy, Tensor.__array__, Tensor.__dlpack__, Tensor.share_memory_})


class Names(Recorder, Protocol):
    """The parts of the recorder that are used here."""

    broken: bool
    values: Any
    checks: Any

    def parameter_names(self) -> dict[int, str]: ...

    @property
    def origins(self) -> Any: ...


class Reference:
    """Follows one run.

    recorder: its ops are followed. steps: after this many optimizer steps it ends, and the run goes on without it.
    everywhere: use float64 for every reference; where the program computes in 16 bits, float32 is precise enough. keep:
    modules, by their paths in the outermost one called, that compute in float32 during the run. narrow: the dtype of an
    autocast region around each call of an outermost module. Only these two change what the program computes.
    """

    whole = True

    def __init__(
        self,
        recorder: Names,
        *,
        steps: int = STEPS,
        everywhere: bool = False,
        keep: Iterable[str] = (),
        narrow: torch.dtype | None = None,
    ) -> None:
        self._recorder = recorder
        self._steps = steps
        self._errors = Errors()
        self._engine = Engine(self._saw, self._errors.chose, everywhere=everywhere)
        self._comparisons = Comparisons(self._engine.shadows, recorder.parameter_names, self._made)
        self._written: Written | None = None
        self._adjoints = Adjoints(self._errors, self._engine.shadows)
        self.on = True
        self.most_bytes = 0
        self._done = 0
        self._keep = tuple(keep)
        self._unknown = dict.fromkeys(self._keep)
        """Those of which no model has a module."""
        self._islands: dict[int, WideModules] = {}
        self._narrow = narrow
        self._narrowed: dict[int, NarrowModel] = {}

    # ------------------------------------------------------------ every operator

    def around(self, func: Any, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """The kernel, with the work to do before it."""
        if not self.on or self._recorder.broken:
            return kernel

        def followed(*args: Any, **kwargs: Any) -> Any:
            self._written = None
            try:
                self._written = self._engine.before(func, args, kwargs)
            except Exception as error:
                self._fail(error)
            try:
                return kernel(*args, **kwargs)
            except BaseException:
                self._spoil()
                raise

        return followed

    def _spoil(self) -> None:
        """A call that writes has raised, so nobody knows how much it wrote."""
        written, self._written = self._written, None
        for t in written.tensors if written is not None else ():
            self._engine.shadows.forget(t)

    def after(self, number: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, out: Any) -> None:
        """After a call that was recorded under op ``number``."""
        if not self.on:
            return
        written, self._written = self._written, None
        self._adjoints.begins()
        try:
            self._adjoints.meets(func, args)
            self._engine.after(number, func, args, kwargs, out, written)
            if private.current_autograd_node() is None:
                self._adjoints.awaits(func, args)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """An error of ours ends the reference, not the run."""
        self._recorder.not_seen[f"references, after an internal error: {type(error).__name__}: {error}"] = None
        self.stop()

    def stop(self) -> None:
        """Stops following; drops every tensor."""
        self.on = False
        self._engine.shadows.clear()
        self._adjoints.clear()
        self._comparisons.forget()
        self._written = None

    def close(self) -> None:
        """The trace ends: removes everything from the program's modules."""
        self.stop()
        for island in self._islands.values():
            island.remove()
        for narrowed in self._narrowed.values():
            narrowed.remove()
        self._islands.clear()
        self._narrowed.clear()

    def outermost(self, module: torch.nn.Module) -> None:
        """A module is called from outside: on its first call, the parts of it to keep in float32 are cast. If the
        program is to be narrowed, each call runs under autocast."""
        if self._keep and id(module) not in self._islands:
            self._islands[id(module)] = keep_wide(module, self._keep)
            for name, _ in module.named_modules():
                self._unknown.pop(name, None)
        if self._narrow is not None and private.current_graph_task_id() == -1:  # a recompute restores its own autocast
            if id(module) not in self._narrowed:
                self._narrowed[id(module)] = NarrowModel(module, self._narrow)
            self._narrowed[id(module)].enter()

    # ------------------------------------------------------------ errors, and the gradients they are multiplied by

    def _saw(self, number: int, followed: list[Followed]) -> None:
        self._errors.saw(number, followed)
        self._adjoints.saw(number, followed[0])

    def _made(self, tensor: Tensor) -> tuple[int, int]:
        """The numbers of the event that decided a tensor's dtype and of the op that made it; -1 where unknown."""
        mark = self._recorder.origins.of(tensor)
        return (mark.event, mark.op) if mark is not None else (-1, -1)

    # ------------------------------------------------------------ tensors that share their numbers with code outside
    # torch

    def called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """After a torch function: numbers that were passed to a narrow tensor become its reference; memory that is
        shared with code outside torch has none."""
        if not self.on:
            return
        if func in _EXPORTS:
            if readable(args[0]):
                self._engine.shadows.export(args[0])
        elif func in FROM_NUMBERS and isinstance(out, Tensor):
            try:
                self._given(given_numbers(func, args, kwargs), out)
            except Exception as error:
                self._fail(error)

    def _given(self, data: Any, out: Tensor) -> None:
        shadows = self._engine.shadows
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
        self.most_bytes = max(self.most_bytes, self._engine.shadows.nbytes)
        self._guarded(lambda: self._comparisons.ends(optimizer))
        self._engine.shadows.clear()
        self._adjoints.clear()
        self._steps -= 1
        self._done += 1
        self._engine.measuring = self._done < _MEASURED_STEPS or self._done % _ONE_IN == 0
        if self._steps <= 0:
            self.stop()
            self._hand_over()

    def _hand_over(self) -> None:
        """Spot checks take the place of a reference whose steps are over, for what first runs from then on: a model
        that is cast after training, say."""
        recorder = self._recorder
        if recorder.reference is self and recorder.values is not None and not self._keep and self._narrow is None:
            recorder.reference, recorder.checks = None, SpotChecks(recorder, first=len(recorder.ops))

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
        return self._errors.read(self._engine.above), self._comparisons.read()


_MEASURED_STEPS, _ONE_IN = 2, 4
"""In the first ``_MEASURED_STEPS`` steps every op is measured, then in one step in ``_ONE_IN``. Gradients and updates
are compared in every step."""
