"""Follows the advice of findings as it is printed: the diff is applied, and the program runs again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import programs

from dtypetrace.records import Edit, Fix


@dataclass
class Followed:
    """What came of it."""

    program: programs.Program
    text: str
    shown: list[Fix] = field(default_factory=list)
    narrowed: list[str] = field(default_factory=list)
    """Weights that an optimizer trains, which had been wider."""

    @property
    def clean(self) -> bool:
        return self.program.error is None and not any(f.kind == "collision" for f in self.program.findings)


def follow(folder: Path, text: str, *, rounds: int = 3) -> Followed:
    """Runs a program and applies the diff of its first finding, until none is shown."""
    program = programs.run(folder, text)
    found = Followed(program, program.text)
    before = trained(program)
    for number in range(rounds):
        collision = next((f for f in program.findings if f.kind == "collision"), None)
        if collision is None or collision.fix is None or not collision.fix.edits:
            break
        found.shown.append(collision.fix)
        found.text = applied(found.text, collision.fix.edits, program.file)
        program = found.program = programs.run(folder, found.text, name=f"program{number + 1}.py")
    after = trained(program)
    found.narrowed = [n for n, size in after.items() if size < before.get(n, 0)]
    return found


def trained(program: programs.Program) -> dict[str, int]:
    """Bytes of one element of each weight of the model ``net``, if the program has an optimizer, that it trains."""
    net = program.names.get("net") if "opt" in program.names else None
    return {n: p.element_size() for n, p in net.named_parameters() if p.requires_grad} if net is not None else {}


def applied(text: str, edits: tuple[Edit, ...], file: str) -> str:
    """The text with edits made, last first. Each must find what it replaces."""
    lines = text.splitlines(keepends=True)
    starts = [sum(map(len, lines[:n])) for n in range(len(lines))]
    for edit in sorted(edits, key=lambda e: e.start, reverse=True):
        assert edit.file == file
        begin, end = (starts[row - 1] + column - 1 for row, column in (edit.start, edit.end))
        assert text[begin:end] == edit.before
        text = text[:begin] + edit.after + text[end:]
    return text
