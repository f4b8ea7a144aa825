"""How numbers flow through the compiled graphs of a region, and where a rounding that eager makes is left out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from ..records.compiled import Graph, Node, Region
from ..tables.dtypes import HALF
from ..tables.operators import tagged


class At(NamedTuple):
    """A node of a region: the number of its graph, and its own number there."""

    graph: int
    node: int


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
        waiting, seen = [at], {at}
        while waiting:
            here = waiting.pop()
            node = self.node(here)
            if not self.is_exact(here):
                if node.dtype in HALF and not tagged(node.op, "factory"):
                    yield here
                continue
            inputs = self.above(here)
            open_ = inputs if tagged(node.op, "view") else [At(here.graph, node.inputs[p]) for p in node.unrounded]
            waiting += [i for i in open_ if i not in seen]
            seen.update(open_)

    def shown(self, at: At) -> set[int]:
        """The values that a node's numbers are, or are selected from."""
        waiting, seen = [at], {at}
        while waiting:
            here = waiting.pop()
            above = self.above(here) if self.is_exact(here) else []
            waiting += [a for a in above if a not in seen]
            seen.update(above)
        return {self.node(a).value for a in seen}

    def is_rounded(self, at: At) -> bool:
        """Whether anybody gets a node's numbers rounded: memory holds them, or another node reads them so."""
        node = self.node(at)
        return bool(node.memory or node.ends)

    def place(self, at: At) -> int:
        return self.node(at).place

    @property
    def forward(self) -> Graph | None:
        return next((g for g in self.region.graphs if g.phase != "backward"), None)
