"""How numbers flow through the compiled graphs of a region, and where a rounding that eager makes is left out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from ..graph import reached
from ..records.compiled import Node, Region
from ..tables.dtypes import HALF, REAL
from ..tables.operators import base, tagged


class At(NamedTuple):
    """A node of a region: the number of its graph, and its own number there."""

    graph: int
    node: int


class Line(NamedTuple):
    """What compiled code makes of one call of the program. Dtypes are empty where there is none."""

    op: str
    module: str
    phase: str
    place: int
    says: str
    """By the program's own meaning; forward only."""
    computes: str
    """In the compiled graph."""
    kernel: str
    """In which its kernel hands it on."""
    saved: str
    """In which it is kept for the backward pass."""
    memory: str
    """In which it is written to memory."""


class Flow:
    """The graphs of a region, joined where the backward takes what the forward saved."""

    def __init__(self, region: Region) -> None:
        self.region = region

    def node(self, at: At) -> Node:
        return self.region.graphs[at.graph].nodes[at.node]

    def __iter__(self) -> Iterator[At]:
        for g, graph in enumerate(self.region.graphs):
            yield from (At(g, n) for n in range(len(graph.nodes)))

    @cached_property
    def _saved(self) -> dict[int, At]:
        """What the forward saved, by value."""
        return {n.value: At(g, i) for g, i, n in self._all() if "saved" in n.ends}

    def _all(self) -> Iterator[tuple[int, int, Node]]:
        for g, graph in enumerate(self.region.graphs):
            yield from ((g, i, n) for i, n in enumerate(graph.nodes))

    def above(self, at: At) -> list[At]:
        """What a node takes; for a saved tensor the forward's node."""
        node = self.node(at)
        if node.op == "saved":
            made = self._saved.get(node.value)
            return [made] if made is not None and made != at else []
        return [At(at.graph, i) for i in node.inputs]

    def is_exact(self, at: At) -> bool:
        """Whether a node rounds nothing: it moves or selects numbers, or widens them."""
        node = self.node(at)
        if node.op == "saved" or tagged(node.op, "view", "copy", "exact"):
            return True
        given = [self.node(a).dtype for a in self.above(at)]
        return tagged(node.op, "cast") and node.dtype == "float32" and all(d in HALF for d in given)

    # ------------------------------------------------------------ numbers that were not rounded

    def unrounded(self, at: At) -> Iterator[tuple[At, At]]:
        """The inputs of a node that eager rounds first: (input, the node whose rounding is left out)."""
        for position in self.node(at).unrounded:
            above = At(at.graph, self.node(at).inputs[position])
            yield from ((above, kept) for kept in self._kept(above))

    def _kept(self, at: At) -> Iterator[At]:
        """The nodes whose numbers a node shows, or selects from, without their rounding."""

        def open_to(here: At) -> list[At]:
            node = self.node(here)
            if not self.is_exact(here):
                return []
            return (
                self.above(here)
                if tagged(node.op, "view")
                else [At(here.graph, node.inputs[p]) for p in node.unrounded]
            )

        ends = ((n, self.node(n)) for n in reached([at], open_to) if not self.is_exact(n))
        yield from (here for here, node in ends if node.dtype in HALF and not tagged(node.op, "factory"))

    def shown(self, at: At) -> set[int]:
        """The values that a node's numbers are, or are selected from."""
        seen = reached([at], lambda here: self.above(here) if self.is_exact(here) else [])
        return {self.node(a).value for a in seen}

    def bounds(self, at: At) -> Iterator[str]:
        """Whose largest or smallest numbers a node has: the names of the operators that found them."""
        seen = reached([at], lambda here: self.above(here) if self.is_exact(here) else [])
        yield from (base(self.node(a).op) for a in seen if tagged(self.node(a).op, "extreme"))

    def is_same_but_wider(self, at: At, kept: At) -> bool:
        """Whether a node computes in a wider dtype what another computes in 16 bits."""
        node, narrow = self.node(at), self.node(kept)
        pairs = list(zip(self.above(at), self.above(kept)))
        same = base(node.op) == base(narrow.op) and node.scalars == narrow.scalars and bool(pairs)
        wider = node.dtype in REAL - HALF and len(node.inputs) == len(narrow.inputs)
        return same and wider and all(self.shown(a) & self.shown(b) for a, b in pairs)

    @cached_property
    def _users(self) -> dict[At, list[At]]:
        found: dict[At, list[At]] = {}
        for at in self:
            for above in self.above(at):
                found.setdefault(above, []).append(at)
        return found

    def edges(self, at: At) -> Iterator[tuple[At, bool]]:
        """The functions with an edge that get a number as it is, or its square, and whether one less that."""
        waiting = [(at, False)]
        while waiting:
            here, less = waiting.pop()
            for user in self._users.get(here, ()):
                node = self.node(user)
                alone = len(node.inputs) == 1
                one = tagged(node.op, "difference") and alone and node.scalars[:1] == (1.0,)
                squares = tagged(node.op, "product") and alone and node.scalars in ((), (2.0,))
                if tagged(node.op, "edge"):
                    yield user, less
                elif one or squares or tagged(node.op, "view", "cast"):
                    waiting.append((user, less or one))

    def is_rounded(self, at: At) -> bool:
        """Whether anybody gets a node's numbers rounded: memory holds them, or another node reads them so."""
        node = self.node(at)
        return bool(node.memory or node.ends)

    # ------------------------------------------------------------ the program's calls

    def step(self, at: At) -> int:
        """Number of the program's call that a node belongs to, for a backward node that of its forward node; -1 where
        that is not known."""
        node = self.node(at)
        return node.step if node.step >= 0 else self._by_seq.get(node.seq, -1)

    @cached_property
    def _by_seq(self) -> dict[int, int]:
        return {n.seq: n.step for _, _, n in self._all() if n.step >= 0 and n.seq >= 0}

    def lines(self) -> list[Line]:
        """What became of each call of the program, forward and backward: its last floating result there."""
        last = {(at.graph, self.step(at)): at for at in self if self.node(at).dtype in REAL and self.step(at) >= 0}
        early = {kept for at in self for _, kept in self.unrounded(at)}
        found = []
        for (graph, step), at in last.items():
            node, said = self.node(at), self.region.steps[step]
            kept = "float32" if at in early and node.dtype in HALF else node.dtype
            saved = node.dtype if "saved" in node.ends else ""
            phase = self.region.graphs[graph].phase
            says = said.dtype if phase == "forward" else ""
            found.append(Line(said.op, said.module, phase, said.place, says, node.dtype, kept, saved, node.memory))
        return found
