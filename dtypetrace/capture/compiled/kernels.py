"""Where kernels leave out a rounding that eager makes: found from what each loop computes, reads and writes.

A kernel computes 16-bit numbers in float32. It rounds one where it is written to memory, and what is read from there is
rounded. What a loop computes and uses itself is not; nor is what it takes from another loop of its kernel before that
one has written it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...tables.dtypes import HALF
from ...tables.operators import tagged
from .inductor import Buffer, Called
from .ledger import Compiled

WIDTH = {"float16": 16, "bfloat16": 16, "float32": 32, "float64": 64}


class Kernels:
    """A compiled graph's nodes in order, and the buffers that its kernels write."""

    def __init__(self, compiled: Compiled) -> None:
        self.nodes = {n.name: n for n in compiled.nodes}
        self.buffers = buffers = compiled.buffers
        self._emulated = {n.name for n in compiled.nodes if n.barrier or "saved" in compiled.ends.get(n.name, ())}
        """The nodes where torch's emulation of eager's casts asks for roundings."""
        self._holders = self._find_holders()
        self._inside = [self._computed(b) for b in buffers]
        self._homes: dict[str, list[int]] = {}
        for number, names in enumerate(self._inside):
            for name in names:
                self._homes.setdefault(name, []).append(number)

    # ------------------------------------------------------------ what is where

    def source(self, name: str) -> str:
        """The node whose numbers a node shows, through views."""
        while (node := self.nodes.get(name)) is not None and tagged(node.op, "view") and node.inputs:
            if (under := self.nodes.get(node.inputs[0])) is None or under.dtype not in ("", node.dtype):
                break
            name = under.name
        return name

    def _find_holders(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, buffer in enumerate(self.buffers):
            for name in {buffer.node, self.source(buffer.node)} - {""}:
                found.setdefault(name, []).append(number)
        return found

    def _reads(self, buffer: Buffer, name: str) -> bool | None:
        """Whether a loop takes a node's numbers before they are written; None where it does not read them."""
        held = {b for number in self._holders.get(name, ()) for b in self.buffers[number].names} - {*buffer.names}
        how = [before for read, before in buffer.reads if read in held]
        return any(how) if how else None

    def _computed(self, buffer: Buffer) -> frozenset[str]:
        """The nodes that a loop computes itself, of those that it was made from."""
        used = {self.source(i) for n in buffer.nodes if n in self.nodes for i in self.nodes[n].inputs}
        waiting = [self.source(buffer.node)] if buffer.node else [n for n in buffer.nodes if n not in used]
        found: set[str] = set()
        while waiting:
            name = waiting.pop()
            node = self.nodes.get(name)
            if node is None or name in found or name not in buffer.nodes:
                continue
            found.add(name)
            inputs = [s for i in node.inputs for s in (i, self.source(i))]
            waiting += [s for s in inputs if self._reads(buffer, s) is None]
        return frozenset(found)

    def in_loop(self, name: str) -> bool:
        """Whether a loop computes a node, and not a library's kernel."""
        return any(self.buffers[number].loop for number in self._homes.get(name, ()))

    def memory(self, name: str) -> str:
        """The dtype in which a node's numbers are written to memory, empty where they are not."""
        written = (self.buffers[number] for number in self._holders.get(name, ()))
        return next((b.dtype or self.nodes[name].dtype for b in written if not b.removed), "")

    # ------------------------------------------------------------ roundings

    def _passes_unrounded(self, name: str, user: str) -> bool:
        """Whether a loop that computes ``user`` takes the numbers of a 16-bit node as they are in float32."""
        for number in self._homes.get(user, ()):
            buffer = self.buffers[number]
            early = name in self._inside[number] or bool(self._reads(buffer, name))
            emulated = buffer.rounds and not self._emulated.isdisjoint((name, user))
            if early and buffer.loop and not emulated:
                return True
        return False

    def unrounded(self) -> dict[str, tuple[int, ...]]:
        """For each node the positions of the inputs of which it gets numbers that eager rounds first."""
        found: dict[str, tuple[int, ...]] = {}
        for name, node in self.nodes.items():
            taken = tuple(n for n, i in enumerate(node.inputs) if self._is_unrounded(i, name, found))
            if taken:
                found[name] = taken
        return found

    def _is_unrounded(self, name: str, user: str, found: Mapping[str, tuple[int, ...]]) -> bool:
        if tagged(self.nodes[user].op, "view") and user in self.nodes:
            # a view computes nothing: what it shows is judged where it is used
            return False
        name = self.source(name)
        node = self.nodes.get(name)
        if node is None or not node.inputs or tagged(node.op, "factory"):
            return False
        exact = tagged(node.op, "view", "copy", "exact") or self._widens(node)
        if node.dtype in HALF and not self._passes_unrounded(name, user):
            return False
        return bool(found.get(name)) if exact else node.dtype in HALF

    def _widens(self, node: Called) -> bool:
        given = self.nodes.get(self.source(node.inputs[0])) if node.inputs else None
        return (
            tagged(node.op, "cast")
            and given is not None
            and WIDTH.get(given.dtype, 0) < WIDTH.get(node.dtype, 0)
        )  # fmt: skip
