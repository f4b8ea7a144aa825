"""The state of one thread: the torch functions and modules that are running, and the dtypes that were read."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn

from .module_names import Root

FUNCTION, ARGS, KWARGS, PLACE, AUTOCAST = range(5)
"""The parts of a running call, by position."""
RunningCall = list[Any]
"""A torch function that is running: the function, its arguments (kwargs may be None), its place (None until it is
needed) and the devices for which autocast is on. It is a list because one is made for each call, and a list takes a
third of an object's time."""


class ModuleCall(NamedTuple):
    """A module whose forward is running."""

    module: nn.Module
    number: int
    frame: int
    """id of its ``_call_impl`` frame: a walk up the stack ends there."""
    place: int
    """Where it was called."""
    in_backward: bool
    """Whether backward runs it again (activation checkpointing)."""
    root: Root
    outer: int
    """id of the frame above ``frame``, from which torch calls the hooks when an exception ends the module."""
    autocast: tuple[str, ...] = ()
    """The devices for which autocast was on, for a module that torch runs without calling torch functions."""


class SeenRead(NamedTuple):
    """A read of ``tensor.dtype`` in the program's code."""

    dtype: torch.dtype
    place: int
    event: int
    frames: list[tuple[int, int]]
    """The nearest frames outside torch, as ids of the frame and of its code."""
    depth: int
    """How many modules were running."""
    op: int
    """Number of the op that made the tensor, -1 for none."""


class InnerRead(NamedTuple):
    """The last read of a dtype in torch's own code."""

    frame: int
    dtype: torch.dtype
    event: int


class Thread:
    __slots__ = ("calls", "modules", "sequence", "reads", "inside", "kernel")

    def __init__(self) -> None:
        self.calls: list[RunningCall] = []
        self.modules: list[ModuleCall] = []
        self.sequence = 0
        """The sequence number that the next autograd node gets, as far as known."""
        self.reads: list[SeenRead] = []
        self.inside: InnerRead | None = None
        self.kernel: tuple[int, str, Any] | None = None
        """id and text of the exception that an operator raised last, and that operator."""

    @property
    def module(self) -> int:
        """Number of the innermost module that is running, -1 for none."""
        return self.modules[-1].number if self.modules else -1
