"""Compiled regions, computed once more beside what they really gave: as their kernels round, as eager rounds, and in
float64.

One call of each region is repeated, by the graph that its kernels were written from: the forward at once, and its
backward when that has run, with what its own forward saved. No random number is drawn: a dropout's mask is taken from
what the forward saved. A graph that calls an operator of another library or of the program is left out.

Nothing of the program's is touched: what a graph writes to is copied, and nothing is kept beyond the optimizer's step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..capture import private
from ..capture.compiled.inductor import Repeated, copied_to
from ..capture.compiled.ledger import Captured, Compiled
from ..capture.recorder import Recorder
from . import graph_runs
from .graph_runs import Rounds, Run, Ways

Tensor = torch.Tensor
LARGEST = 1 << 27
"""Elements of all inputs and results of a graph that is repeated."""


class Unrepeated(Exception):
    """Why a graph is not repeated."""


class Regions:
    """Repeats the compiled regions of one run."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._begun: dict[int, _Call] = {}
        """By region: the call whose backward has not run."""
        self.on = True

    def begins(self, region: Captured, compiled: Compiled, inputs: Sequence[Any]) -> Callable[[Any], None] | None:
        """A compiled graph is about to run. Returns what to call with its results; None for nothing."""
        graph = compiled.graph
        if not self.on or graph is None or region.unrepeated:
            return None
        call = _Call(region)
        if compiled.phase == "backward":
            begun = self._begun.get(id(region))
            if begun is None or not begun.saved_these(graph, inputs):
                return None
            call = self._begun.pop(id(region))
        part = self._guarded(region, lambda: _Part(compiled, graph, inputs))
        return None if part is None else lambda results: self._ended(call, part, results)

    def _ended(self, call: _Call, part: _Part, results: Any) -> None:
        self._guarded(call.region, lambda: call.add(part, results))
        if call.has_saved:
            self._begun[id(call.region)] = call

    def _guarded(self, region: Captured, make: Callable[[], Any]) -> Any:
        try:
            with (
                private.DisableTorchFunction(),
                private.DisableTorchDispatch(),
                private.BelowAutograd(),
                private.DisableAutocast(),
            ):
                return make()
        except Unrepeated as why:
            region.unrepeated = True
            self._recorder.ledger.lost[f"compiled code: a region was not computed in float64 ({why})"] = None
            return None

    def forget(self) -> None:
        """An optimizer's step has ended: nothing is kept of the calls before it."""
        self._begun.clear()

    def stop(self) -> None:
        self.on = False
        self.forget()


class _Part:
    """One graph of a region, and what it was called with. It is made before the compiled code runs."""

    def __init__(self, compiled: Compiled, graph: Repeated, inputs: Sequence[Any]) -> None:
        self.compiled, self.graph = compiled, graph
        self.rounds = Rounds(compiled)
        self.nodes = graph.nodes
        if why := next(filter(None, map(graph_runs.unrepeatable, self.nodes)), ""):
            raise Unrepeated(why)
        taken = [n for n in self.nodes if n.op == "placeholder"]
        sizes = [i.numel() for i in inputs if isinstance(i, Tensor)] + [*map(graph_runs.elements, self.nodes)]
        if len(taken) != len(inputs) or sum(sizes) > LARGEST:
            raise Unrepeated("it is too large")
        written = {name for n in self.nodes for name in graph_runs.written(n)}
        self.given: dict[str, Any] = {}
        self._written: dict[str, Tensor] = {}
        """The program's own tensors that the graph writes into."""
        for node, value in zip(taken, inputs):
            self.given[node.name] = value
            if isinstance(value, Tensor) and node.name in written:
                self._written[node.name], self.given[node.name] = value, value.detach().clone()
        self.real: dict[str, Tensor] = {}
        """By node: what the compiled code really gave."""
        self._masks: dict[str, Tensor] = {}

    def ran(self, results: Any) -> None:
        """The compiled code has run."""
        for node, result in zip(self.graph.results, results):
            if node is not None and isinstance(result, Tensor) and node.op != "placeholder":
                self.real[node.name] = result
        for node in self.nodes:
            if (target := copied_to(node)) in self._written:
                self.real[node.args[1].name] = self._written[target]
        self._masks = {name: t for name, t in self.real.items() if t.dtype is torch.bool}
        self._written.clear()
        self.compiled.graph = None  # one call is enough

    def run(self, saved: Mapping[str, Ways | None]) -> Run:
        """What the graph makes in each way. saved: see :class:`graph_runs.Given`."""
        given = graph_runs.Given(self.given, self.graph.constants, saved, self._masks)
        return graph_runs.run(self.nodes, given, self.rounds)


class _Call:
    """One call of a region: its forward, and its backward when that has run."""

    def __init__(self, region: Captured) -> None:
        self.region = region
        self.begun = False
        """Whether its forward has run, and its backward has not."""
        self._saved: dict[str, Ways | None] = {}
        """What the forward returned, to the program or to its backward, by name; None where that is unknown."""
        self._kept: dict[str, Tensor] = {}
        """The same as the compiled code gave it."""
        self._decided: dict[str, Tensor] = {}

    @property
    def has_saved(self) -> bool:
        return self.begun and bool(self._saved)

    def saved_these(self, graph: Repeated, inputs: Sequence[Any]) -> bool:
        """Whether a backward with these inputs is that of this call."""
        names = [n.name for n in graph.nodes if n.op == "placeholder"]
        known = [(self._kept[n], i) for n, i in zip(names, inputs) if n in self._kept and isinstance(i, Tensor)]
        return bool(known) and all(a.data_ptr() == b.data_ptr() and a.shape == b.shape for a, b in known)

    def add(self, part: _Part, results: Any) -> None:
        """The compiled code of a part has run: repeats it, and measures its results."""
        part.ran(results)
        self.begun = part.compiled.phase == "forward"
        run = part.run(self._saved)
        index = {n.name: number for number, n in enumerate(part.compiled.nodes)}
        measured = [
            graph_runs.compared(index[n], real, run.values[n]) for n, real in part.real.items() if n in run.values
        ]
        part.compiled.measured = found = [m for m in measured if m is not None]
        if not found:
            raise Unrepeated("everything in it depends on random numbers")
        if all(graph_runs.close(run.values[n].kernel, real) for n, real in part.real.items() if n in run.values):
            for name, way in run.decided.items():
                if (one := graph_runs.decided(index[name], way, self._decided.get(name))) is not None:
                    found.append(one)
        if self.begun:
            self._saved = {n: run.values.get(n) for n in part.real}
            self._kept = dict(part.real)
            self._decided = {n: way.kernel for n, way in run.decided.items()}
        part.real.clear()
