"""Which op made which autograd node: so an op of the backward pass gets its forward op. ``Recorder._look`` copies
the place and module of that."""

from __future__ import annotations

from array import array
from typing import Any

import torch

from . import private
from .running import Thread

ACCUMULATES = -3
"""The number used instead of a forward op's where the engine passes a parameter its gradient."""
_SLOTS = (1 << 18) - 1
"""Autograd nodes that are remembered, minus one: 2 MB, enough for more than one event of a large model."""
_BITS = 24
"""Bits of a slot for the op's number; the rest hold the node's sequence number."""
_NUMBERS = (1 << _BITS) - 1
_MOST_NODES = 8
"""Nodes that one operator can have made; if the sequence number rose by more, they were made unwatched."""
_current_node = private.current_autograd_node


def passes_gradient() -> bool:
    """Whether the engine is passing a parameter its gradient."""
    node = _current_node()
    return node is not None and node._sequence_nr() == private.ACCUMULATE_SEQUENCE


def runs_own_backward() -> bool:
    """Whether the engine is running the backward of a hand-written function."""
    return isinstance(_current_node(), torch.autograd.function.BackwardCFunction)


class Nodes:
    """The sequence numbers of autograd nodes, each with the op that made it."""

    def __init__(self) -> None:
        self.first = 0
        """The first sequence number that can belong to a watched op."""
        self._ops = array("q", (0,)) * (_SLOTS + 1)
        """For each sequence number, in its slot: (number + 1) << _BITS | number of its op."""

    def begin(self) -> int:
        """Starts watching nodes; returns the sequence number of the next one."""
        self.first = private.next_sequence_number()
        return self.first

    def link(self, thread: Thread, risen: int, op: int) -> None:
        """Notes that an op made the nodes up to a sequence number.

        One operator may make several: CopySlices, a custom Function around it.
        """
        last = risen - 1
        self._ops[last & _SLOTS] = risen << _BITS | op
        if thread.sequence != last:
            for sequence in range(max(thread.sequence, risen - _MOST_NODES), last):
                self._ops[sequence & _SLOTS] = (sequence + 1) << _BITS | op
        thread.sequence = risen

    def link_range(self, first: int, end: int, op: int) -> None:
        """Notes that an op made the nodes from one sequence number up to another, which is not included."""
        for sequence in range(max(first, end - _SLOTS), end):
            self._ops[sequence & _SLOTS] = (sequence + 1) << _BITS | op

    def forward_op(self) -> int:
        """Number of the op whose backward the engine is running, -1 where its forward was not watched."""
        node = _current_node()
        if node is None:
            return -1
        sequence: int = node._sequence_nr()
        if sequence == private.ACCUMULATE_SEQUENCE:
            return ACCUMULATES
        known = self._ops[sequence & _SLOTS]
        return known & _NUMBERS if known >> _BITS == sequence + 1 else -1

    def variable(self) -> tuple[torch.Tensor | None, bool]:
        """A parameter that the running node leads to, and whether the node was made before watching began."""
        node = _current_node()
        if node is None:
            return None, False
        before = node._sequence_nr() < self.first
        above: list[Any] = [n for n, _ in node.next_functions if n is not None]
        # a weight may be behind one node with a single input (its transpose); a node with more inputs belongs to
        # another op
        above += [one.next_functions[0][0] for one in above if len(one.next_functions) == 1]
        found = (getattr(candidate, "variable", None) for candidate in above)
        return next((v for v in found if v is not None), None), before
