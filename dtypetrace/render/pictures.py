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

from ..graph import flow as flow_of
from ..records import (
    UNWATCHED,
    Chain,
    Finding,
    FlowStep,
    Input,
    Op,
    Operand,
    Place,
    Recording,
    Refused,
    Witness,
)  # fmt: skip
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
    facts: str = ""
    """Shape and values, read by pointing at it."""
    line: tuple[str, int] = ("", 0)
    """The user's file and line."""


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
        self._values = {v.op: v for v in self._recording.values}
        self._names: dict[tuple[Place, str, str], str] = {}
        for event in self._recording.events:
            if event.assigned and 0 <= event.place < len(self._recording.places):
                where = self._recording.places[event.place]
                self._names.setdefault((where, event.op, event.to), event.assigned[0])

    # ------------------------------------------------------------ a finding

    def finding(self, f: Finding) -> nx.DiGraph:
        """From the birth to the collision or the damage, with the histories of the other operands; empty where nothing
        but a setting is wrong, because then no tensor has gone anywhere."""
        graph = nx.DiGraph()
        if not f.op:
            return graph
        kind = "collision" if f.kind == "collision" else _DAMAGE
        last = Node(kind, f.op, "", _spot(f.site), f.module, line=_line(f.site))
        refused = self._refused(f)
        if f.flow:
            culprit = f.culprit
            producers = [w.producer for w in self._witnesses(refused, culprit) if w.producer >= 0]
            self._spine(graph, f.flow, last, producers)
        else:
            _put(graph, "end", last)
        shown: set[tuple[Any, ...]] = set()
        born = {f.flow[0].place} if f.flow else set()
        for operand in f.operands:
            if f.flow and (operand is f.culprit or operand.origin.place in born and operand.dtype == f.flow[0].to):
                continue
            if operand.dtype in FLOATING or not f.flow:
                self._beside(graph, f, operand, self._witnesses(refused, operand), shown)
        return graph

    def _spine(
        self,
        graph: nx.DiGraph,
        flow: Sequence[FlowStep],
        last: Node | None,
        producers: Sequence[int],
        *,
        prefix: str = "step",
        main: bool = True,
    ) -> Any:
        """One node for each step; returns the last one's name, which is ``end`` where ``last`` is drawn for it."""
        before: Any = None
        for index, step in enumerate(flow):
            final = last is not None and index == len(flow) - 1
            name = "end" if final else (prefix, index)
            _put(graph, name, last if final and last is not None else self._step_node(step, index))
            if before is not None:
                source = flow[index - 1]
                attribute = step.how == "attribute"
                run = () if attribute else self._run(source, step, producers if final else ())
                before = self._carried(graph, before, run, source.to, (prefix, "run", index), main=main)
                note = f"read as {step.via or 'an attribute'}" if attribute else ""
                _join(graph, before, name, source.to, main=main, note=note, read=attribute)
            if step.how == "promotion" and not final:
                others = [d for d in step.source.split(" + ") if before is None or d != flow[index - 1].to]
                for other in others if before is not None else ():
                    _put(graph, (prefix, "stream", index, other), self._stream(step, other))
                    _join(graph, (prefix, "stream", index, other), name, other)
            before = name
        return before

    def _carried(self, graph: nx.DiGraph, before: Any, run: Sequence[str], dtype: str, name: Any, *, main: bool) -> Any:
        """The node of the ops that carried a dtype on; without any, the node before them."""
        if not run:
            return before
        _put(graph, name, _run_node(run, dtype))
        _join(graph, before, name, dtype, main=main)
        return name

    def _beside(
        self, graph: nx.DiGraph, f: Finding, operand: Operand, witnesses: Sequence[Witness], shown: set[tuple[Any, ...]]
    ) -> None:
        """Another operand's history: its steps where its event is known, else its origin."""
        origin = operand.origin
        key = (origin.kind, origin.place.stack[:1], operand.dtype)
        if key in shown or len(shown) >= _MOST_BESIDE:
            return
        shown.add(key)
        witness = next((w for w in witnesses if 0 <= w.event < len(self._recording.events)), None)
        flow = flow_of(self._recording, witness.event) if witness is not None else ()
        prefix = f"beside {len(shown)}"
        if witness is None or not flow:
            called = origin.op if origin.op and origin.op != UNWATCHED else ""
            label = f"{called}()" if called else operand.shown
            named = self._names.get((origin.place, called, operand.dtype))
            label = f"{named} = {label}" if named and called else label
            kind = "cast" if origin.kind == "cast" else "birth"
            born = _BORN.get(origin.kind, "")
            _put(
                graph, prefix, Node(kind, label, operand.dtype, _spot(origin.place), born, line=_line(origin.place))
            )  # fmt: skip
            last: Any = prefix
        else:
            last = self._spine(graph, flow, None, (), prefix=prefix, main=False)
            reach = FlowStep(f.site, f.op, f.module, operand.dtype, operand.dtype, "value")
            producers = [witness.producer] if witness.producer >= 0 else []
            run = self._run(flow[-1], reach, producers)
            last = self._carried(graph, last, run, operand.dtype, (prefix, "run"), main=False)
        _join(graph, last, "end", operand.dtype, note=operand.shown)

    def _refused(self, f: Finding) -> list[Refused]:
        return [
            r
            for r in self._recording.refused
            if (r.op, r.phase) == (f.op, f.phase) and listings.place(self._recording, r.place) == f.site
        ]

    def _witnesses(self, refused: Sequence[Refused], operand: Operand | None) -> list[Witness]:
        """An operand of a finding as it was when its call was refused."""
        return [
            w
            for r in refused
            for w in r.witnesses
            if operand is not None and (w.index, w.dtype) == (operand.index, operand.dtype)
        ]

    def _step_node(self, step: FlowStep, index: int) -> Node:
        label = f"{step.op}()" if step.op.isidentifier() else step.op or step.how
        named = self._names.get((step.place, step.op, step.to))
        label = f"{named} = {label}" if named and step.op else label
        facts, line = self._facts(step), _line(step.place)
        if index == 0:
            cast = step.how == "cast"
            return Node(
                "cast" if cast else "birth", label, step.to, _spot(step.place),
                _BORN["cast"] if cast else "born here", facts, line,
            )  # fmt: skip
        kind = {"autocast": "cast", "copy": "cast"}.get(step.how, step.how)
        widened = f"{step.source} → {step.to}" if step.source != step.to else step.module
        kind = kind if kind in ("cast", "promotion", "attribute") else "op"
        return Node(kind, label, step.to, _spot(step.place), widened, facts, line)

    def _facts(self, step: FlowStep) -> str:
        """Shape and largest value of what a step made, where they were recorded."""
        ops = self._recording.ops
        made = next((n for n in self._at.get(step.place, ()) if ops[n].op == step.op and step.to in ops[n].outputs), -1)
        if made < 0:
            return ""
        shape = f"[{', '.join(map(str, ops[made].shape))}]" if ops[made].shape else ""
        value = self._values.get(made)
        return ", ".join(p for p in (shape, f"largest magnitude {value.peak:.3g}" if value is not None else "") if p)

    def _stream(self, step: FlowStep, dtype: str) -> Node:
        """The operand that a promotion widened, by its name where it has one."""
        ops, events = self._recording.ops, self._recording.events
        inputs = [i for n in self._at.get(step.place, ()) if ops[n].op == step.op for i in ops[n].inputs]
        operand = next((i for i in inputs if i.dtype == dtype), None)
        event = events[operand.event] if operand is not None and 0 <= operand.event < len(events) else None
        name = operand.name if operand is not None else ""
        name = name or (event.assigned[0] if event is not None and event.assigned else "")
        where = listings.place(self._recording, event.place) if event is not None and name else Place()
        return Node("stream", name or "the other operand", dtype, _spot(where), line=_line(where))

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


def _line(place: Place) -> tuple[str, int]:
    frame = place.user_frame
    return (frame.file, frame.line) if frame is not None else ("", 0)


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


def _join(
    graph: nx.DiGraph, above: Any, below: Any, dtype: str, *, main: bool = False, note: str = "", read: bool = False
) -> None:
    """``read``: only the dtype goes on, which ``note`` says where from."""
    graph.add_edge(above, below, dtype=dtype, main=main, note=note, read=read)


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
        lines.append(words + (f"  from: {above}" if above else ""))
    return "\n".join(map(seen, lines))
