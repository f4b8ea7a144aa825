"""Makes the ledger's records from what was read while the program compiled."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ...records.compiled import Graph, Node, Region, Step
from ...tables.dtypes import REAL
from ...tables.operators import NAMED_CASTS, tagged
from .inductor import Called
from .kernels import Kernels
from .ledger import Captured, Compiled

PlaceOf = Callable[[tuple[tuple[str, int, str], ...]], int]
"""The number of a place, from file, line and function of its frames, innermost first."""


def region(captured: Captured, place_of: PlaceOf) -> Region:
    """The record of one captured graph."""
    whole = next((n.stack for n in captured.nodes if n.stack), ())
    steps, numbers = _steps(captured, place_of)
    values = _Values()
    graphs = []
    for phase in ("forward", "backward"):
        if (compiled := captured.compiled.get(phase)) is not None:
            graphs.append(_graph(compiled, values, numbers, place_of))
    return Region(
        whole[-1][2] if whole else "",
        place_of(whole[-1:]),
        steps,
        tuple(graphs),
        captured.call,
    )


# ---------------------------------------------------------------- what the program says


def _steps(captured: Captured, place_of: PlaceOf) -> tuple[tuple[Step, ...], dict[str, int]]:
    computed = _computed(captured)
    steps: list[Step] = []
    numbers: dict[str, int] = {}
    for node in captured.nodes:
        if node.op in ("input", "constant"):
            continue
        numbers[node.name] = len(steps)
        op = node.op.strip("_") or node.op
        other = captured.otherwise.get(node.name)
        refused, given = (other.op, other.dtypes) if other is not None and not other.gives else ("", ())
        steps.append(
            Step(
                op if (parent := _unpacked(node, captured)) is None else parent.op,
                other.gives if other is not None and other.gives else node.dtype,
                place_of(node.stack),
                _module(node.module),
                op in NAMED_CASTS,
                refused,
                given,
                real=_real(node, captured),
                computed=computed.get(node.name, ""),
            )
        )
    return tuple(steps), numbers


def _computed(captured: Captured) -> dict[str, str]:
    """The dtype in which the compiler ends each call: before its own passes, and after them where it returns that."""
    found = {n.steps[-1]: n.dtype for n in captured.before.values() if n.steps and n.dtype in REAL}
    single = {n.name for n in captured.nodes if not n.several}
    if (forward := captured.compiled.get("forward")) is not None:
        returned = [n for n in forward.nodes if n.steps and "returned" in forward.ends.get(n.name, ())]
        found.update({n.steps[-1]: n.dtype for n in returned if n.steps[-1] in single and n.dtype})
    return found


def _unpacked(node: Called, captured: Captured) -> Called | None:
    """The custom operator of which a node takes one of several results."""
    if node.op != "getitem" or not node.scalars:
        return None
    return next((n for n in captured.nodes if n.name in node.inputs and n.several and n.op in captured.real), None)


def _real(node: Called, captured: Captured) -> str:
    """What the kernel of a custom operator gives, as far as it ran with operands of these dtypes."""
    made = _unpacked(node, captured) or node
    call, number = captured.real.get(made.op), int(node.scalars[0]) if made is not node else 0
    dtypes = {n.name: n.dtype for n in captured.nodes if n.name in made.inputs} if call is not None else {}
    known = call is not None and {*call.given} == {*filter(None, dtypes.values())} and number < len(call.made)
    return call.made[number] if call is not None and known else ""


def _module(path: str) -> str:
    """A module's qualified name within the function that was compiled, from Dynamo's text for it.

    >>> _module("L['self']._modules['layers'][0].mlp")
    'layers.0.mlp'
    """
    text = re.sub(r"^L\['self'\]|^[LG](?=\[)", "", path).replace("_modules", "").replace("_orig_mod", "")
    return ".".join(re.findall(r"\w+", text))


# ---------------------------------------------------------------- what was compiled


class _Values:
    """Numbers what nodes compute: nodes of a region that compute the same have the same number."""

    def __init__(self) -> None:
        self._known: dict[object, int] = {}
        self.of: dict[str, int] = {}
        """By name, in the forward graph: the backward takes what was saved under the name that it has there."""

    def number(self, node: Called, own: Mapping[str, int]) -> int:
        if node.op in ("input", "constant"):
            key: object = node.name
            if node.name in self.of:
                return self.of[node.name]
        else:
            text, order = node.form
            key = node.op, text, tuple(own.get(name, -1) for name in order)
            if tagged(node.op, "random"):
                key = node.name, key
        return self._known.setdefault(key, len(self._known))


def _graph(compiled: Compiled, values: _Values, numbers: Mapping[str, int], place_of: PlaceOf) -> Graph:
    kernels = Kernels(compiled)
    unrounded = kernels.unrounded()
    index = {n.name: number for number, n in enumerate(compiled.nodes)}
    own: dict[str, int] = {}
    nodes = []
    for node in compiled.nodes:
        own[node.name] = values.number(node, own)
        op = "saved" if node.op == "input" and compiled.phase == "backward" and node.name in values.of else node.op
        nodes.append(
            Node(
                op,
                node.dtype,
                place_of(node.stack),
                _module(node.module),
                tuple(index[i] for i in node.inputs),
                unrounded.get(node.name, ()),
                tuple(sorted(compiled.ends.get(node.name, ()))),
                own[node.name],
                next((numbers[s] for s in reversed(node.steps) if s in numbers), -1),
                node.seq if node.seq is not None else -1,
                kernels.memory(node.name),
                node.scalars,
                node.nbytes,
            )
        )
    if compiled.phase != "backward":
        values.of.update(own)
    return Graph(compiled.phase, tuple(nodes), tuple(compiled.measured))
