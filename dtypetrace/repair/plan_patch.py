"""A precision plan as a patch of the program's source: candidates, from the places where the model got its dtypes.

A candidate is nothing more until the patched program was run and its error measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ..records import Frame, Recording
from ..records.text import ProgramText
from ..rules.precision_plan import Paths
from ..rules.run_facts import held_weights
from ..source import models
from ..source.patch import Patch

MOST = 4
"""Candidates: each of them is a run."""


def patches(recording: Recording, modules: Sequence[str]) -> Iterator[Patch]:
    """Patches that keep these modules (paths in the outermost one called) in float32, the likeliest first. The
    program's files are read as they are now."""
    files = {f.file for place in recording.places for f in place.stack if f.user}
    text = ProgramText.taken(files, raw=files)
    tried: set[tuple[str, tuple[str, ...]]] = set()
    for frame, root, paths in _places(recording, modules):
        made = models.made(text, frame)
        if made is None:
            continue
        for names in (*_below(modules, root, made.expression), *_relative(modules, paths)):
            if (made.expression, names) in tried or len(tried) == MOST:
                continue
            tried.add((made.expression, names))
            patch = Patch(text)
            changes = patch.locate(models.kept_wide(text, made, names))
            if len(changes) == 2 and patch.set(changes) == changes:
                yield patch


def _places(recording: Recording, modules: Sequence[str]) -> list[tuple[Frame, str, frozenset[str]]]:
    """Frames of the user's in which the weights of all these modules got their dtype, with the outermost module's name
    and all modules whose weights did; those with the most weights first, then the innermost."""
    path_of = Paths(recording)
    of_frame: dict[tuple[Frame, str], set[str]] = defaultdict(set)
    depth: dict[Frame, int] = {}
    for weight in held_weights(recording):
        root, path = path_of.root_of(weight.module), path_of(weight.module)
        if root is None or path is None or weight.event < 0:
            continue
        stack = recording.places[recording.events[weight.event].place].stack
        for number, frame in enumerate(f for f in stack if f.user):
            of_frame[frame, root].add(path)
            depth[frame] = min(depth.get(frame, number), number)
    known = {path for paths in of_frame.values() for path in paths}
    needed = {path for path in known if any(path == m or path.startswith(m + ".") for m in modules)} or known
    found = [(frame, root, frozenset(paths)) for (frame, root), paths in of_frame.items() if needed <= paths]
    return sorted(found, key=lambda place: (-len(place[2]), depth[place[0]]))


def _below(modules: Sequence[str], root: str, expression: str) -> Iterator[tuple[str, ...]]:
    """The modules' names in the model that an expression is, where the outermost module called (``vae.decoder``) is
    that model or a part of it."""
    inside = expression.removeprefix("self.")
    if root == inside:
        yield tuple(modules)
    elif root.startswith(inside + "."):
        yield tuple(f"{root.removeprefix(inside + '.')}.{m}" for m in modules)


def _relative(modules: Sequence[str], paths: frozenset[str]) -> Iterator[tuple[str, ...]]:
    """The modules' names in the model of a statement, by which the weights of these paths got their dtype: the model
    is the outermost module, or one around all of them."""
    yield tuple(modules)
    around = min(paths, key=len).split(".")
    while around and not all(p == ".".join(around) or p.startswith(".".join(around) + ".") for p in (*paths, *modules)):
        around.pop()
    for end in range(len(around), 0, -1):
        prefix = ".".join(around[:end]) + "."
        if all(m.startswith(prefix) for m in modules):
            yield tuple(m.removeprefix(prefix) for m in modules)
