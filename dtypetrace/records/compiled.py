"""What compiled code does with the dtypes of a program: the ledger. Part of :mod:`records`.

A *region* is one graph that Dynamo captured from the program. Its *steps* are the calls that the program makes there,
as Dynamo saw them. Its *graphs* are what ran in their place, forward and backward, as the compiler left them after its
last pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One call in the program's own code, in a region: what the line says."""

    op: str
    """The function that the code called (``linear``)."""
    dtype: str
    """Of its first floating result by the program's own meaning, empty where it has none."""
    place: int
    module: str
    casts: bool = False
    """Whether the program's own code asks for a dtype here."""
    refused: str = ""
    """The operator in it that eager refuses for its dtypes, empty for none."""
    given: tuple[str, ...] = ()
    """The dtypes of the tensors that were given to the operator that eager refuses."""
    real: str = ""
    """The dtype that the kernel of a custom operator gave when it ran, empty for other operators."""
    computed: str = ""
    """The dtype in which the compiler's decomposition of it ends, empty where that is not known."""


@dataclass(frozen=True, slots=True)
class Node:
    """One operator of a compiled graph."""

    op: str
    """``aten.mul.Tensor``; ``input`` for what the graph is given, ``saved`` for what the forward saved."""
    dtype: str
    """Of its first result, as the graph says; empty for none."""
    place: int
    module: str
    inputs: tuple[int, ...] = ()
    """Nodes of the same graph, in the order of its arguments."""
    unrounded: tuple[int, ...] = ()
    """Positions in ``inputs``: there it reads numbers that eager rounds to the dtype first."""
    ends: tuple[str, ...] = ()
    """What becomes of its result beyond the graph: ``returned``, ``saved`` for the backward, ``written`` into a tensor
    of the program."""
    value: int = -1
    """Nodes of a region that compute the same number have the same one."""
    step: int = -1
    """The call of the program that it belongs to, -1 for none or where that is not known."""
    seq: int = -1
    """Autograd's number: a backward node has that of its forward node. -1 for none."""
    memory: str = ""
    """The dtype in which a kernel writes its result to memory, empty where none does."""
    scalars: tuple[float, ...] = ()
    """The numbers among its arguments."""
    nbytes: int = 0
    """Of its first result, 0 where that is not known."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one node of a compiled graph gave in one call, compared with float64: shares of the numbers' size; of
    decisions, shares of their number."""

    node: int
    compiled: float
    """From what compiled code gave to float64; for a decision, what its kernels give by the ledger."""
    eager: float
    """From what eager gives for the same graph to float64."""
    apart: float
    """From compiled code to eager."""
    lost: float = 0.0
    """Share of the numbers that are finite in float64 and not in compiled code."""
    eager_lost: float = 0.0
    """The same in eager."""
    decides: bool = False
    """Whether it is a comparison, a rounding or a choice."""
    twice: float = 0.0
    """Share of decisions that the forward made otherwise."""

    def is_far(self, unit: float) -> bool:
        """Whether compiled code is further from float64 than rounding explains and than eager is. unit: see
        :func:`rounding`."""
        return not self.decides and (
            self.lost > self.eager_lost or self.compiled > _TIMES * self.eager + _ROUNDINGS * unit
        )


_TIMES, _ROUNDINGS = 4, 8
"""Compiled code and eager round in another order: their errors are of one size, but differ."""
_UNITS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}


def rounding(dtypes: Iterable[str]) -> float:
    """The largest relative error of one rounding to some dtypes."""
    return max((_UNITS.get(d, 0.0) for d in dtypes), default=0.0)


@dataclass(frozen=True, slots=True)
class Graph:
    """What one compiled graph computes, in order."""

    phase: str
    """``forward`` or ``backward``."""
    nodes: tuple[Node, ...]
    measured: tuple[Measured, ...] = ()
    """Its results, and its decisions, in one call; only with a reference."""


@dataclass(frozen=True, slots=True)
class Region:
    """One graph that Dynamo captured, and what was compiled for it."""

    name: str
    """The function that was compiled."""
    place: int
    steps: tuple[Step, ...]
    graphs: tuple[Graph, ...] = ()
    """Empty where the compiled code came from torch's cache and could not be worked out again."""
    call: int = -1
    """Number of the op that stands for the call in which it was captured, -1 where that call raised."""

    @property
    def measured(self) -> bool:
        """Whether one call of it was computed again, forward and backward."""
        return bool(self.graphs) and all(graph.measured for graph in self.graphs)
