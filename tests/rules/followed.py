"""Follows the advice of findings as it is printed: the diff is applied, and the program runs again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
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


IMPORTS = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"


def imported(folder: Path, text: str, *, name: str = "program.py") -> programs.Program:
    """Runs a program as a module of the project, which a script of one line imports."""
    part = f"part_{folder.name}_{Path(name).stem}".replace("-", "_")
    file = folder / f"{part}.py"
    file.write_text(text if text.startswith(IMPORTS) else IMPORTS + text, encoding="utf-8")
    sys.path.insert(0, str(folder))
    try:
        ran = programs.run(folder, f"import {part}", name=f"main_{name}")
    finally:
        sys.path.remove(str(folder))
    names = vars(ran.names[part]) if part in ran.names else {}
    return replace(ran, file=str(file), text=file.read_text(encoding="utf-8"), names=names)


def follow(
    folder: Path, text: str, *, rounds: int = 3, run: Callable[..., programs.Program] = programs.run
) -> Followed:
    """Runs a program and applies the diff of its first finding, until none is shown."""
    program = run(folder, text)
    found = Followed(program, program.text)
    before = trained(program)
    for number in range(rounds):
        collision = next((f for f in program.findings if f.kind == "collision"), None)
        if collision is None or collision.fix is None or not collision.fix.edits:
            break
        found.shown.append(collision.fix)
        found.text = applied(found.text, collision.fix.edits, program.file)
        program = found.program = run(folder, found.text, name=f"program{number + 1}.py")
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
