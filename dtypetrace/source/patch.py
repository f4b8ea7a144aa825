"""Source patches: edits gathered from several runs, applied to the original text, shown as a diff, and written to all
files or to none.

An edit is reduced to the few characters that it changes, so that edits inside each other can be combined and the
formatting around them stays. All positions refer to the original text; positions in the patched text, found by a later
run, are mapped back to it.

Standard library only, like all code that plans.
"""

from __future__ import annotations

import difflib
import hashlib
import io
import os
import re
import tempfile
import tokenize
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from ..records import Edit
from ..records.text import LIVE, ProgramText, lines_of


class Piece(NamedTuple):
    """``text`` replaces the characters from start to end of the original; ``span`` is the expression that it belongs
    to."""

    start: int
    end: int
    text: str
    span: tuple[int, int]
    order: int = 0
    """Order of edits around the same expression: the first is the inner one."""


@dataclass(frozen=True)
class Change:
    """One edit, with positions in the original text."""

    file: str
    pieces: tuple[Piece, ...]
    lines: tuple[int, ...] = ()
    """The lines of the original text that the pieces begin on."""


class Unpatchable(ValueError):
    """A file that cannot be patched. The text says why and what to do."""


@dataclass
class PatchedFile:
    """One file: its original text, the changes to it, and the patched text."""

    file: str
    original: str
    encoding: str
    digest: str
    pieces: list[Piece] = field(default_factory=list)

    @classmethod
    def read(cls, file: str, program: ProgramText) -> PatchedFile:
        """Raises Unpatchable where the program has no text that can be patched."""
        data = program.raw(file)
        if data is None:
            raise Unpatchable(f"{file}: there is no source to patch")
        try:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
            return cls(file, data.decode(encoding), encoding, hashlib.sha256(data).hexdigest())
        except (SyntaxError, UnicodeDecodeError, LookupError) as error:
            raise Unpatchable(f"{file}: its text cannot be read: {error}") from None

    @classmethod
    def of_lines(cls, file: str, program: ProgramText) -> PatchedFile:
        """A file that is only to be shown: its lines are enough. Raises Unpatchable where there are none."""
        lines = program.lines(file)
        if not lines:
            raise Unpatchable(f"{file}: there is no source to patch")
        return cls(file, "".join(lines), "", "")

    @property
    def text(self) -> str:
        parts: list[str] = []
        at = 0
        for piece in self._sorted():
            parts += (self.original[at : piece.start], piece.text)
            at = max(at, piece.end)
        return "".join((*parts, self.original[at:]))

    def between(self, begin: int, end: int) -> str:
        """The patched text of a part of the original that holds whole pieces or none of them."""
        inside = [p for p in self.pieces if begin <= p.start and p.end <= end]
        other = replace(self, original=self.original[:end], pieces=inside)
        return other.text[begin:]

    def _sorted(self) -> list[Piece]:
        def place(piece: Piece) -> tuple[int, ...]:
            closes = piece.start == piece.end == piece.span[1]
            # several at one place: closings come first, from the inside out; then openings, from the outside in
            return (
                piece.start,
                0 if closes else 1,
                -piece.span[0] if closes else -piece.span[1],
                piece.order if closes else -piece.order,
            )

        return sorted(self.pieces, key=place)

    def add(self, change: Change, order: int) -> bool:
        """Adds a change. Returns False where it conflicts with an existing one. The same change twice counts once."""
        new = [p._replace(order=order) for p in change.pieces]
        known = {p[:4] for p in self.pieces}
        new = [p for p in new if p[:4] not in known]
        for piece in new:
            for other in self.pieces:
                replaces = piece.end > piece.start or other.end > other.start
                overlap = (
                    piece.start < other.end
                    and other.start < piece.end
                    or replaces
                    and other.start == piece.start
                    and other.end == piece.end
                )
                inside = other.start < piece.start < other.end or piece.start < other.start < piece.end
                rival = piece.span == other.span and piece.start == other.start and piece.end == other.end
                if overlap or inside or rival:
                    return False
        self.pieces += new
        return True

    # ------------------------------------------------------------ positions

    def locate(self, edit: Edit) -> Change | None:
        """Maps an edit of the patched text to the original text; None where it touches what a change has inserted."""
        text = self.text
        starts = _line_starts(text)
        if not (0 < edit.start[0] <= len(starts) and 0 < edit.end[0] <= len(starts)):
            return None
        begin, end = starts[edit.start[0] - 1] + edit.start[1] - 1, starts[edit.end[0] - 1] + edit.end[1] - 1
        now = text[begin:end]
        if now.replace("\r\n", "\n") != edit.before:
            return None
        after = edit.after.replace("\n", "\r\n") if "\r\n" in now else edit.after
        span = self._span_back(begin, end)
        if span is None:
            return None
        pieces = []
        for first, last, new in _cut(now, after):
            cut = self._span_back(begin + first, begin + last)
            if cut is None:
                return None
            pieces.append(Piece(min(cut), cut[1], new, span))
        return Change(self.file, tuple(pieces), tuple(self.original.count("\n", 0, p.start) + 1 for p in pieces))

    def _span_back(self, begin: int, end: int) -> tuple[int, int] | None:
        """Maps both ends of a range in the patched text to the original; None where a change inserted one of them."""
        first, last = self._back(begin, opening=True), self._back(end, opening=False)
        return None if first is None or last is None else (first, last)

    def insertion_at(self, line: int, column: int) -> Piece | None:
        """The change that inserted the character at a position of the patched text; None for a character of the
        original."""
        offset = _offset(self.text, line, column)
        return next((piece for piece, begin, end in self._now() if begin <= offset < end), None)

    def argument_at(self, line: int, column: int) -> Piece | None:
        """The change that inserted an argument into the call whose closing bracket is at a position of the patched
        text."""
        text, pieces, depth = self.text, self._now(), 0
        offset = _offset(text, line, column)
        if offset < 0 or text[offset] != ")":
            return None
        for at in range(offset, -1, -1):
            depth += (text[at] in ")]}") - (text[at] in "([{")
            if depth == 0:
                break
            found = next((piece for piece, begin, end in pieces if begin <= at < end), None) if depth == 1 else None
            if found is not None:
                return found
        return None

    def _now(self) -> list[tuple[Piece, int, int]]:
        """The changes, each with its begin and end in the patched text."""
        found, moved = [], 0
        for piece in self._sorted():
            begin = piece.start + moved
            found.append((piece, begin, begin + len(piece.text)))
            moved += len(piece.text) - (piece.end - piece.start)
        return found

    def _back(self, offset: int, *, opening: bool) -> int | None:
        """Maps a position in the patched text to the original; None inside what a change has inserted."""
        moved = 0
        for piece in self._sorted():
            begin = piece.start + moved
            if offset <= begin:
                break
            if offset < begin + len(piece.text):
                return None
            if offset == begin + len(piece.text) and piece.end > piece.start:
                return piece.end
            moved += len(piece.text) - (piece.end - piece.start)
        return offset - moved


def _line_starts(text: str) -> list[int]:
    return [0, *(found.end() for found in re.finditer("\n", text))]


def _offset(text: str, line: int, column: int) -> int:
    """The offset of a line and column (both from 1) in a text; -1 if there is no such position."""
    starts = _line_starts(text)
    return starts[line - 1] + column - 1 if 0 < line <= len(starts) else -1


def _cut(before: str, after: str) -> list[tuple[int, int, str]]:
    """The smallest changes that turn one text into the other: text added around it, or one place inside it."""
    inside = after.find(before)
    if inside >= 0:
        around = [(0, 0, after[:inside]), (len(before), len(before), after[inside + len(before) :])]
        return [part for part in around if part[2]]
    same = os.path.commonprefix((before, after))
    rest, new = before[len(same) :], after[len(same) :]
    tail = len(os.path.commonprefix((rest[::-1], new[::-1])))
    return [(len(same), len(before) - tail, new[: len(new) - tail])]


def disjoint(program: ProgramText, edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
    """The same changes as edits that do not overlap, so that they can be made one after the other, the last first."""
    groups: list[list[Edit]] = []
    for edit in sorted(edits, key=lambda e: (e.file, e.start, tuple(-n for n in e.end))):
        last = groups[-1][0] if groups else None
        if last is not None and last.file == edit.file and edit.start < last.end:
            groups[-1].append(edit)
        else:
            groups.append([edit])
    if len(groups) == len(edits):
        return edits
    patch = Patch(program, shown=True)
    changes = patch.locate(edits)
    if len(changes) < len(edits) or len(patch.set(changes)) < len(edits):
        return edits
    return tuple(_joined(patch.patched_file(group[0].file), group) for group in groups)


def _joined(patched: PatchedFile, group: list[Edit]) -> Edit:
    """One edit for several that lie inside the first."""
    outer, text = group[0], patched.original
    begin, end = _offset(text, *outer.start), _offset(text, *outer.end)
    after = patched.between(begin, end).replace("\r\n", "\n")
    return group[0] if len(group) == 1 else replace(outer, after=after)


class Patch:
    """Changes to several files of a program, in the order in which they were found. ``shown``: they are not written."""

    def __init__(self, program: ProgramText = LIVE, *, shown: bool = False) -> None:
        self.patched_files: dict[str, PatchedFile] = {}
        self._program = program
        self._read = PatchedFile.of_lines if shown else PatchedFile.read

    def patched_file(self, file: str) -> PatchedFile:
        if file not in self.patched_files:
            self.patched_files[file] = self._read(file, self._program)
        return self.patched_files[file]

    def locate(self, edits: Iterable[Edit]) -> tuple[Change, ...]:
        """Maps edits of the present text to the original texts; edits that cannot be made are left out."""
        found = []
        for edit in edits:
            try:
                change = self.patched_file(edit.file).locate(edit)
            except Unpatchable:
                continue
            if change is not None and change.pieces and change not in found:
                found.append(change)
        return tuple(found)

    def set(self, changes: Iterable[Change]) -> tuple[Change, ...]:
        """Replaces all changes by these; returns those that could be combined."""
        for patched_file in self.patched_files.values():
            patched_file.pieces = []
        return tuple(
            change for order, change in enumerate(changes) if self.patched_file(change.file).add(change, order)
        )

    @property
    def texts(self) -> dict[str, str]:
        """The patched text of each file that changes."""
        return {file: patched_file.text for file, patched_file in self.patched_files.items() if patched_file.pieces}

    def diff(self, folder: str | os.PathLike[str] | None = None, *, since: Mapping[str, str] | None = None) -> str:
        """The unified diff; paths inside a folder (default: the working directory) are relative to it. ``since``: the
        patched texts that it begins with, instead of the original ones."""
        before = since or {}
        return "".join(
            line
            for file, patched_file in sorted(self.patched_files.items())
            if patched_file.pieces
            for line in _unified(before.get(file, patched_file.original), patched_file.text, _named(file, folder))
        )

    def write(self) -> None:
        """Writes every file completely, or no file at all if one of them has changed since the run.

        Raises Unpatchable where nothing was written, OSError where a file could not be.
        """
        prepared: list[tuple[str, Path]] = []
        try:
            for file, patched_file in self.patched_files.items():
                if not patched_file.pieces:
                    continue
                path = Path(os.path.realpath(file))
                for needed in (path, path.parent):
                    # a user with permission to write everywhere (root) may still have made a file read-only on purpose
                    if not os.access(needed, os.W_OK) or not needed.stat().st_mode & 0o222:
                        raise Unpatchable(
                            f"{needed} is read-only; nothing was written. Make it writable: chmod u+w {needed}"
                        )
                try:
                    if hashlib.sha256(path.read_bytes()).hexdigest() != patched_file.digest:
                        raise Unpatchable(
                            f"{file} has changed since it was run; nothing was written. Run dtypetrace fix again"
                        )
                    prepared.append((_temporary_copy(path, patched_file.text.encode(patched_file.encoding)), path))
                except OSError as error:
                    raise Unpatchable(
                        f"{file} cannot be written: {error.strerror or error}; nothing was written. Make "
                        f"it and its folder writable"
                    ) from None
            while prepared:
                name, path = prepared[0]
                os.replace(name, path)
                prepared.pop(0)
        finally:
            for name, _ in prepared:
                Path(name).unlink(missing_ok=True)


def _temporary_copy(path: Path, data: bytes) -> str:
    """Writes a new file in the same folder, with this content and the permissions of the file that it will replace."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, path.stat().st_mode & 0o7777)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return name


def _unified(before: str, after: str, name: str) -> Iterable[str]:
    for line in difflib.unified_diff(lines_of(before), lines_of(after), f"a/{name}", f"b/{name}"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _named(file: str, folder: str | os.PathLike[str] | None) -> str:
    relative = os.path.relpath(file, folder or os.getcwd())
    return file.lstrip("/") if relative.startswith("..") else relative.replace(os.sep, "/")


# ---------------------------------------------------------------- which files may be patched

_GENERATED = re.compile(
    r"@generated|\b(?:do not|don't) (?:edit|modify)\b|\bauto-?generated\b|\bgenerated (?:by|from|file|code)\b", re.I
)


def objection(file: str, root: str | os.PathLike[str]) -> str | None:
    """Why a file must not be patched, in one line with what to do; None where it may be."""
    if not os.path.exists(file):
        return f"{file}: there is no source to patch. Put the code into a file"
    real = os.path.realpath(file)
    inside = os.path.realpath(root).rstrip(os.sep) + os.sep
    if not real.startswith(inside):
        through = f" (a link to {real})" if real != os.path.abspath(file) else ""
        return (
            f"{file}{through} lies outside the project {inside[:-1]}. Change it by hand, or name its "
            f"folder with --source"
        )
    try:
        with open(real, encoding="utf-8", errors="replace") as text:
            head = [line for _, line in zip(range(8), text) if line.lstrip().startswith("#")]
    except OSError as error:
        return f"{file} cannot be read: {error.strerror}"
    if any(_GENERATED.search(line) for line in head):
        return f"{file} says that it is generated. Change what generates it"
    return None
