"""The contents of drawings: small networkx graphs of nodes and edges with their texts, for ``render.svg`` to lay out.

A finding's picture follows its flow from the birth to the place where the problem appears, with the other operands next
to it. A slice's picture consists of ops: consecutive ops that keep a dtype become one node; casts and promotions never
do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx

from ..records import UNWATCHED, Chain, Finding, FlowStep, Input, Op, Operand, Place, Recording, Witness
from ..tables.dtypes import FLOATING
from ..terminal import seen
from . import listings

MOST_NODES = 60
_LOOKED_AT = 4000
_DAMAGE = "damage"
_MOST_BESIDE = 6
"""Other origins that are drawn next to the flow; more would hide it."""


@dataclass(frozen=True)
class Node:
    """One box. kind: birth cast promotion attribute op run stream collision damage."""

    kind: str
    label: str
    dtype: str
    place: str = ""
    detail: str = ""


class Pictures:
    """Draws from one recording; without one (a finding by itself) the runs between the steps are left out."""

    def __init__(self, recording: Recording | None = None) -> None:
        self._recording = recording or Recording()
        self._at: dict[Place, list[int]] = {}
        numbers: dict[int, list[int]] = {}
        for number, op in enumerate(self._recording.ops):
            numbers.setdefault(op.place, []).append(number)
        for place, own in numbers.items():
            if 0 <= place < len(self._recording.places):
                self._at.setdefault(self._recording.places[place], []).extend(own)

    # ------------------------------------------------------------ a finding

    def finding(self, f: Finding) -> nx.DiGraph:
        """From the birth to the collision or the damage, with the origins of the other operands."""
        graph = nx.DiGraph()
        last = Node("collision" if f.kind == "collision" else _DAMAGE, f.op or f.code, "", _spot(f.site), f.module)
        if f.flow:
            self._spine(graph, f.flow, last, self._witness_producers(f))
        else:
            _put(graph, "end", last)
        shown: set[tuple[Any, ...]] = set()
        born = {f.flow[0].place} if f.flow else set()
        for operand in f.operands:
            if f.flow and (operand is f.culprit or operand.origin.place in born and operand.dtype == f.flow[0].to):
                continue
            if operand.dtype in FLOATING or not f.flow:
                self._beside(graph, operand, shown)
        return graph

    def _spine(self, graph: nx.DiGraph, flow: Sequence[FlowStep], last: Node | None, producers: Sequence[int]) -> None:
        before: Any = None
        for index, step in enumerate(flow):
            final = last is not None and index == len(flow) - 1
            name = "end" if final else ("step", index)
            _put(graph, name, last if final and last is not None else _step_node(step, index))
            if before is not None:
                source = flow[index - 1]
                attribute = step.how == "attribute"
                run = () if attribute else self._run(source, step, producers if final else ())
                if run:
                    _put(graph, ("run", index), _run_node(run, source.to))
                    _join(graph, before, ("run", index), source.to, main=True)
                    before = ("run", index)
                _join(
                    graph,
                    before,
                    name,
                    source.to,
                    main=True,
                    note=f"read as {step.via or 'an attribute'}" if attribute else "",
                )
            if step.how == "promotion" and not final:
                others = [d for d in step.source.split(" + ") if before is None or d != flow[index - 1].to]
                for other in others if before is not None else ():
                    _put(graph, ("stream", index, other), Node("stream", "the other operand", other))
                    _join(graph, ("stream", index, other), name, other)
            before = name

    def _beside(self, graph: nx.DiGraph, operand: Operand, shown: set[tuple[Any, ...]]) -> None:
        key = (operand.origin.kind, operand.origin.place.stack[:1], operand.dtype)
        if key in shown or len(shown) >= _MOST_BESIDE:
            return
        shown.add(key)
        origin = operand.origin
        label = f"{origin.op}()" if origin.op and origin.op != UNWATCHED else operand.shown
        _put(
            graph,
            key,
            Node(
                "cast" if origin.kind == "cast" else "birth",
                label,
                operand.dtype,
                _spot(origin.place),
                _BORN.get(origin.kind, ""),
            ),
        )
        _join(graph, key, "end", operand.dtype, note=operand.shown)

    def _witness_producers(self, f: Finding) -> list[int]:
        """The ops that made the culprit of a refused call."""
        culprit = f.culprit
        return [
            w.producer
            for r in self._recording.refused
            if culprit is not None
            and r.op == f.op
            and r.phase == f.phase
            and listings.place(self._recording, r.place) == f.site
            for w in r.witnesses
            if w.index == culprit.index and w.dtype == culprit.dtype and w.producer >= 0
        ]

    def _run(self, source: FlowStep, step: FlowStep, producers: Sequence[int]) -> tuple[str, ...]:
        """Names of the ops that carried a dtype from one step of a flow to the next, in order."""
        ops = self._recording.ops
        goals = {n for n in self._at.get(source.place, ()) if source.to in ops[n].outputs}
        starts = producers or [
            i.producer
            for n in self._at.get(step.place, ())
            if ops[n].op == step.op
            for i in ops[n].inputs
            if i.dtype == source.to
        ]
        came: dict[int, int] = dict.fromkeys(starts, -1)
        waiting = [n for n in came if n >= 0]
        for number in waiting:  # grows during the loop
            if number in goals:
                way = []
                number = came[number]
                while number >= 0:
                    way.append(ops[number].op)
                    number = came[number]
                return tuple(way)
            if len(waiting) < _LOOKED_AT:
                for operand in ops[number].inputs:
                    if operand.dtype == source.to and 0 <= operand.producer < number and operand.producer not in came:
                        came[operand.producer] = number
                        waiting.append(operand.producer)
        return ()

    # ------------------------------------------------------------ chains

    def chains(self, chains: Iterable[Chain]) -> nx.DiGraph:
        """How some tensors got their dtypes; tensors with the same chain share it."""
        graph = nx.DiGraph()
        stories: dict[tuple[Any, ...], list[str]] = {}
        for chain in chains:
            stories.setdefault((chain.dtype, chain.flow), []).append(chain.name)
        for number, ((dtype, flow), names) in enumerate(list(stories.items())[: MOST_NODES // 4]):
            part = nx.DiGraph()
            self._spine(part, flow, None, ())
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            _put(part, "end", Node("op", names[0] + more, dtype))
            if flow:
                _join(part, ("step", len(flow) - 1), "end", dtype, main=True)
            graph.update(nx.relabel_nodes(part, {n: (number, n) for n in part}))
        return graph

    # ------------------------------------------------------------ a slice of ops

    def ops(self, op: int, limit: int = MOST_NODES) -> nx.DiGraph:
        """What led to one op: the ``limit`` nearest nodes, with ops that keep their dtype contracted."""
        whole = self._contracted(self._upstream(op), op)
        kept, front = {op: None}, [op]
        while front and len(kept) < limit:
            above = dict.fromkeys(p for n in front for p in whole.predecessors(n) if p not in kept)
            front = list(above)[: limit - len(kept)]
            kept |= dict.fromkeys(front)
        return nx.DiGraph(whole.subgraph(kept))

    def _upstream(self, op: int) -> list[int]:
        seen, waiting = {op}, [op]
        for number in waiting:
            for operand in self._recording.ops[number].inputs:
                # an op's first operands were made before it, so this never loops
                if 0 <= operand.producer < number and operand.producer not in seen and len(seen) < _LOOKED_AT:
                    seen.add(operand.producer)
                    waiting.append(operand.producer)
        return sorted(seen)

    def _contracted(self, numbers: Sequence[int], end: int) -> nx.DiGraph:
        """The graph of some ops, consecutive quiet ops as one node; ``end`` is the op that the picture is about."""
        ops = self._recording.ops
        node_of, quiet = self._runs(numbers, end)
        members: dict[int, list[int]] = {}
        for number in numbers:
            members.setdefault(node_of[number], []).append(number)
        graph = nx.DiGraph()
        for name, own in members.items():
            _put(graph, name, self._op_node(own))
        for number in numbers:
            name = node_of[number]
            for operand in ops[number].inputs:
                seen = operand.producer in node_of and operand.producer < number
                if seen and node_of[operand.producer] != name:
                    _join(graph, node_of[operand.producer], name, operand.dtype, main=True)
                born = operand.event >= 0 and operand.dtype in FLOATING
                if not seen and born and (number not in quiet or operand.holder is None):
                    self._origin(graph, operand, name)
        return graph

    def _runs(self, numbers: Sequence[int], end: int) -> tuple[dict[int, int], set[int]]:
        """The node that each op belongs to, named by its first op, and which ops are quiet: those that keep their one
        dtype.

        Quiet ops join the quiet ops that they follow, but only those with the same number of dtype changes above them.
        So nothing that leaves a group comes back to it.
        """
        ops = self._recording.ops
        changes_above: dict[int, int] = {}
        node_of: dict[int, int] = {}
        quiet: set[int] = set()
        for number in numbers:
            above = [i.producer for i in ops[number].inputs if i.producer in node_of and i.producer < number]
            changes_above[number] = max((changes_above[p] + (p not in quiet) for p in above), default=0)
            node_of[number] = number
            if number == end or not _quiet(ops[number]):
                continue
            runs = [node_of[p] for p in above if p in quiet and changes_above[p] == changes_above[number]]
            quiet.add(number)
            if runs:
                node_of[number] = runs[0]
                if joined := set(runs[1:]) - {runs[0]}:
                    node_of.update({n: runs[0] for n, run in node_of.items() if run in joined})
        return node_of, quiet

    def _op_node(self, own: Sequence[int]) -> Node:
        op = self._recording.ops[own[0]]
        dtype = next((d for d in op.outputs if d in FLOATING), op.outputs[0] if op.outputs else "")
        if len(own) > 1:
            return _run_node([self._recording.ops[n].op for n in own], dtype)
        kind = listings.change(op)
        return Node(
            {"": "op", "write": "cast", "autocast": "cast"}.get(kind, kind),
            op.op,
            dtype,
            _spot(listings.place(self._recording, op.place)),
            op.module,
        )

    def _origin(self, graph: nx.DiGraph, operand: Input | Witness, name: int) -> None:
        event = self._recording.events[operand.event]
        node = ("origin", operand.event)
        if node not in graph:
            label = f"{event.op}()" if event.op else event.name or event.how
            where = listings.place(self._recording, event.place)
            _put(
                graph,
                node,
                Node("birth", label, event.to, _spot(where), _BORN.get(event.how, "")),
            )
        _join(graph, node, name, operand.dtype)


def _spot(place: Place) -> str:
    """File and line, the user's first if a library's is below it: ``train.py:88 › embeddings.py:1063``."""
    frames = dict.fromkeys(f for f in (place.user_frame, *place.stack[:1]) if f is not None)
    return " › ".join(f"{f.file.rpartition(os.sep)[2]}:{f.line}" for f in frames)


def _quiet(op: Op) -> bool:
    """Whether an op keeps a dtype: that of its floating tensors if it has any; an index among them does not count."""
    taken, given = {i.dtype for i in op.inputs}, set(op.outputs)
    if given & FLOATING:
        return len((taken | given) & FLOATING) == 1 and (not taken or bool(taken & FLOATING))
    return len(taken | given) == 1


_BORN = {
    "factory": "made here", "cast": "cast here", "conversion": "converted here", "parameter": "a module's constructor",
    "load": "loaded", "input": "created before tracing", "worker": "from a DataLoader worker",
    "autocast": "cast by autocast", "reinterpret": "bits reinterpreted", "promotion": "computed from integers",
}  # fmt: skip


def _step_node(step: FlowStep, index: int) -> Node:
    label = f"{step.op}()" if step.op.isidentifier() else step.op or step.how
    kind = {"autocast": "cast", "copy": "cast"}.get(step.how, step.how)
    if index == 0:
        return Node("birth", label, step.to, _spot(step.place), "born here")
    widened = f"{step.source} → {step.to}" if step.source != step.to else step.module
    return Node(
        kind if kind in ("cast", "promotion", "attribute") else "op", label, step.to, _spot(step.place), widened
    )


def _run_node(names: Sequence[str], dtype: str) -> Node:
    different = list(dict.fromkeys(names))
    words = ", ".join(different[:3]) + (", …" if len(different) > 3 else "")
    return Node(
        "run",
        f"{len(names)} op{'s' if len(names) > 1 else ''} keep{'' if len(names) > 1 else 's'} {dtype or 'it'}",
        dtype,
        "",
        words,
    )


def _put(graph: nx.DiGraph, name: Any, node: Node) -> None:
    graph.add_node(name, node=node)


def _join(graph: nx.DiGraph, above: Any, below: Any, dtype: str, *, main: bool = False, note: str = "") -> None:
    graph.add_edge(above, below, dtype=dtype, main=main, note=note)


def text(graph: nx.DiGraph) -> str:
    """A picture in words: one line for each node, below the nodes that it follows."""
    lines = []
    for name in nx.topological_sort(graph):
        node = graph.nodes[name]["node"]
        above = ", ".join(
            dict.fromkeys(
                f"{graph.nodes[p]['node'].label} ({graph.edges[p, name]['dtype']})" for p in graph.predecessors(name)
            )
        )
        words = "  ".join(t for t in (node.label, node.dtype, node.place, node.detail) if t)
        lines.append(words + (f"  after {above}" if above else ""))
    return "\n".join(map(seen, lines))
