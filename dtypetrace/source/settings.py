"""Where a program wrote a setting that a library was told: the one call of that name with that keyword."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ..records import Frame, Place
from ..records.text import ProgramText
from .expressions import last_part
from .operands import located


def written(text: ProgramText, frames: Iterable[Frame], said: str) -> Place | None:
    """The place of a call such as ``Accelerator(mixed_precision='bf16')`` in the files of some frames, by its name and
    its keyword's; of a name alone (``fully_shard``), of its call; of a keyword alone (``(bf16=True)``), of any call
    that has it. None where there is none, or more than one."""
    name, _, keyword = said.partition("(")
    keyword = keyword.partition("=")[0]
    found: list[Place] = []
    for frame in {frame.file: frame for frame in frames if frame.user}.values():
        file = text.parsed(frame.file)
        calls = (n for n in ast.walk(file.tree) if isinstance(n, ast.Call)) if file is not None else ()
        for call in calls:
            named = name in ("", last_part(call.func)) and (not keyword or any(k.arg == keyword for k in call.keywords))
            if file is not None and named:
                found.append(Place((located(file, frame, call),)))
    return found[0] if len(found) == 1 else None
