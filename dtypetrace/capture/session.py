"""What is known of one run while it is recorded: everything that the parts of this package write and read.

``Recorder`` is the session that records operators. All other parts take a ``Session``: this file imports the tables,
and no part of what fills or reads them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any, Protocol

import torch
from torch import nn

from ..records import Compared, Declared, Plan, Precision, Transfer
from . import private
from .births import Births
from .calls import autocast_of
from .cast_arrays import CastArrays
from .clock import Clock
from .compiled.ledger import Ledger, Repeats
from .marks import Origins
from .module_names import Modules
from .ops import GrowingOp
from .refusal_log import RefusalLog
from .stacks import UserCode
from .updates import Facts, Updates
from .values import Values

Tensor = torch.Tensor


class Reference(Protocol):
    """Computes in higher precision in parallel with the program, as the hooks use it. See ``reference.follow``."""

    whole: bool
    """Whether it follows everything; False for spot checks (``reference.spot_checks``)."""

    @property
    def tape(self) -> Any:
        """The calls that were followed (``reference.tape``); it outlives what followed them."""

    on: bool
    """Whether it has not ended."""

    @property
    def regions(self) -> Repeats | None:
        """What repeats compiled regions; None for nothing."""

    def begins_with(self, op: Any, inputs: Sequence[torch.Tensor]) -> bool:
        """Whether spot checks, which are not attached, begin with a new op and its operands."""

    def outermost(self, module: nn.Module) -> None:
        """A module is called from outside."""

    def close(self) -> None:
        """The trace ends."""

    def around(self, func: Any, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """An operator's kernel, with the work to do before it."""

    def after(self, number: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, out: Any) -> None:
        """Called after a call that was recorded under op ``number``."""

    def called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, out: Any) -> None:
        """Called after a torch function."""

    def unseen(self, tensors: Iterable[torch.Tensor]) -> Callable[[], None]:
        """Something is about to run that may write to tensors and is not seen. Returns what to call after it."""

    def made_unseen(self, tensors: Iterable[torch.Tensor]) -> None:
        """Called with what was computed, unseen, from tensors that may have references."""

    def step_begins(self, optimizer: Any, place: int) -> None:
        """Called before an optimizer's step, at a place."""

    def step_ends(self, optimizer: Any) -> None:
        """Called after an optimizer's step."""

    def read(self) -> tuple[tuple[Precision, ...], tuple[Compared, ...]]:
        """What was measured; this waits for the device."""


class Session(Clock):
    """The growing recording of one run."""

    def __init__(self, user: UserCode | None = None, numerics: bool = False) -> None:
        super().__init__(user)
        self.ops: list[GrowingOp] = []
        self.origins = Origins(self.ops)
        self.modules = Modules()
        self.births = Births(self, self.origins)
        self.started = time.time()
        self.op_of: dict[tuple[object, ...], GrowingOp] = {}
        self.later: dict[tuple[int, int, int], int] = {}
        """See :attr:`records.Recording.later`."""
        self.refusals = RefusalLog()
        self.not_seen: dict[str, None] = {}
        self.steps_done = 0
        self.watched: dict[str, Any] = {}
        """Which of the steps were watched, if not all: entries of the recording's ``meta``."""
        self.trains = False  # whether the run has an optimizer
        self.broken = False
        self.predicts = False  # whether no kernel runs (a dry run): every refusal is a prediction
        self.ran_eagerly = False  # whether compiled code did
        self.ledger = Ledger()
        self.values = Values(self.origins) if numerics else None
        self.arrays = CastArrays(self.user)
        self.updates = Updates(numerics, self._facts())
        self.reference: Reference | None = None
        self.followed: Reference | None = None
        """What computes in higher precision now, and the whole reference: spot checks follow when its steps end."""
        self.checks: Reference | None = None
        """Spot checks: they become the reference with the first op to check, and cost nothing before and after."""
        self.plans: list[Plan] = []
        self.transfers: dict[tuple[str, str, str, str, int], Transfer] = {}
        """What went to checkpoints and came from them. See ``capture.checkpoints``."""
        self.told: dict[Declared, None] = {}
        """What trainers and optimizers were told about dtypes."""

    def saw(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, out: Any, frame: FrameType | None
    ) -> None:
        """Records one operator call that has run."""
        raise NotImplementedError

    def unfollowed(self, done: Reference, then: Reference | None = None) -> bool:
        """Detaches what computes in higher precision, if it is ``done``; ``then``: the checks that are made from now
        on, if values are measured. Returns whether it was attached."""
        if self.reference is not done:
            return False
        self.reference = None
        if then is not None and self.values is not None:
            self.checks = then
        return True

    def forget(self) -> None:
        """Drops every tensor and module; what was recorded stays."""
        self.origins.clear()
        self.threads.clear()
        self.running_steps.clear()
        for reference in filter(None, (self.followed, self.checks)):
            reference.close()
        self.reference = self.followed = self.checks = self.values = None  # all have been read, and hold tensors
        self.updates = Updates(False)
        self.arrays = CastArrays(self.user)

    def fail(self, where: str) -> None:
        """An error of ours must not reach the program: recording stops, and the report says so."""
        kind, error, tb = sys.exc_info()
        if kind is RecursionError:  # the program's depth, not our mistake; a program that handles it goes on
            self.not_seen["some operators at Python's recursion limit: recording needs a few more frames"] = None
        elif not self.broken:
            self.broken = True
            while tb is not None and tb.tb_next is not None:
                tb = tb.tb_next
            line = f" (line {tb.tb_lineno} of {tb.tb_frame.f_code.co_name})" if tb else ""
            text = f"everything after an internal error in {where}: {kind.__name__ if kind else ''}: {error}{line}"
            self.not_seen[text] = None

    def _facts(self) -> Facts:
        return Facts(self.origins.event_of, self.parameter_names, lambda what: self.not_seen.update({what: None}))

    def event_of(self, tensor: Tensor) -> int:
        """The event that decided a tensor's dtype, -1 where it is not known."""
        return self.origins.event_of(tensor)

    def owner(self) -> int:
        """Number of the module whose backward runs although its forward was not watched, -1 where unknown."""
        variable, before = self.nodes.variable()
        if before:
            self.not_seen["a forward pass outside the block: its backward ops only have the names of autograd"] = None
        return self.modules.holder_of(variable) if variable is not None else -1

    def autocast_of(self, tensors: Iterable[Tensor]) -> str:
        """``"cpu:bfloat16"`` where autocast is on for the tensors' device, else empty."""
        return autocast_of(tensors) if private.any_autocast_enabled() else ""

    def parameter_names(self) -> dict[int, str]:
        """For each parameter of a model that was called: id -> its name in the largest model that holds it."""
        with private.DisableTorchFunction():
            models = sorted((list(self.modules.tensors(top)) for top in self.modules.live_roots()), key=len)
            return {id(one.tensor): one.name for held in models for one in held if one.holder == "parameter"}
