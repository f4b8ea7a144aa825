"""The program's text: whole files by name, as they were at one moment, parsed on demand.

A trace copies the text once, when it ends. The rules read that copy, so files that are edited, moved or deleted
afterwards change nothing. Only this file reads source files; all other code gets a text.
Standard library only.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from ..terminal import unwarned
from .findings import NOTHING, Change, Edit

MOST_PARSED = 256
"""Parsed files that are kept; a parsed file takes about 20 times the memory of its text."""


@dataclass(frozen=True)
class ParsedFile:
    """A file's lines and syntax tree. Columns count characters from 1."""

    lines: Sequence[str]
    tree: ast.Module
    path: str = ""

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def ends(self) -> dict[tuple[int, int], list[ast.expr]]:
        """The expressions that end at a (line, column)."""
        found: dict[tuple[int, int], list[ast.expr]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr):
                found.setdefault(self.end(node), []).append(node)
        return found

    @cached_property
    def surrounding(self) -> tuple[ast.stmt, ...]:
        """The statements with a body that context managers or decorators surround."""
        kinds = (ast.With, ast.AsyncWith, ast.FunctionDef, ast.AsyncFunctionDef)
        return tuple(node for node in ast.walk(self.tree) if isinstance(node, kinds))

    def start(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        """Line and column at which a node begins."""
        return node.lineno, self._characters(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        """Line and column behind a node's last character."""
        line = node.end_lineno or node.lineno
        return line, self._characters(line, node.end_col_offset or 0)

    def contains(self, node: ast.expr | ast.stmt, line: int, column: int) -> bool:
        return self.start(node) <= (line, column) <= self.end(node)

    def between(self, start: tuple[int, int], stop: tuple[int, int]) -> str:
        """The text between two positions."""
        (first, begin), (last, end) = start, stop
        if first == last:
            return self.lines[first - 1][begin - 1 : end - 1]
        middle = self.lines[first : last - 1]
        return "".join((self.lines[first - 1][begin - 1 :], *middle, self.lines[last - 1][: end - 1]))

    def segment(self, node: ast.expr | ast.stmt | ast.keyword) -> str:
        return self.between(self.start(node), self.end(node))

    def indent(self, node: ast.expr | ast.stmt) -> str:
        """What stands before a node on its line: only blanks where the node is the first on it."""
        line, column = self.start(node)
        return self.lines[line - 1][: column - 1]

    def replaced(self, node: ast.expr | ast.stmt | ast.keyword, after: str, change: Change = NOTHING) -> Edit:
        """The edit that writes another text in the place of a node."""
        return Edit(self.path, self.start(node), self.end(node), self.segment(node), after, change)

    def line_before(self, node: ast.expr | ast.stmt, line: str) -> Edit:
        """The edit that puts a line before a statement, in front of its first name."""
        row, column = self.start(node)
        word = _FIRST_NAME.match(self.segment(node))
        first = word[0] if word is not None else ""
        after = f"{line}\n{self.indent(node)}{first}"
        return Edit(self.path, (row, column), (row, column + len(first)), first, after)

    def _characters(self, line: int, offset: int) -> int:
        """A 0-based UTF-8 byte offset, as ``ast`` counts, as a column."""
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        return offset + 1 if text.isascii() else len(text.encode()[:offset].decode(errors="replace")) + 1


_FIRST_NAME = re.compile(r"[^\W\d]\w*")


class ProgramText:
    """Whole files of a program as they were at one moment.

    ``raw`` holds the bytes of files that a patch may change: their encoding and line ends must be kept.

    >>> ProgramText({"a.py": ["x = 1\\n"]}).line("a.py", 1)
    'x = 1'
    """

    def __init__(self, files: Mapping[str, Sequence[str]], raw: Mapping[str, bytes] | None = None) -> None:
        self._files = files
        self._raw = raw or {}

    @classmethod
    def taken(
        cls, files: Iterable[str], raw: Iterable[str] = (), patched: Mapping[str, str] = MappingProxyType({})
    ) -> ProgramText:
        """The present text of some files, and the bytes of some; files that cannot be read are left out.

        ``patched`` holds texts that a program ran with instead of those on disk.
        """
        found = {file: lines_of(universal(patched[file])) if file in patched else _lines_now(file) for file in files}
        return cls({file: lines for file, lines in found.items() if lines}, _bytes_now(raw))

    @property
    def files(self) -> Iterable[str]:
        return self._files.keys()

    def lines(self, file: str) -> Sequence[str]:
        """A file's lines with their ends; none where its text is not available."""
        return self._files.get(file, ())

    def line(self, file: str, number: int) -> str:
        """One line without its end, counted from 1; empty where there is no such line."""
        lines = self.lines(file)
        return lines[number - 1].rstrip("\n") if 0 < number <= len(lines) else ""

    def raw(self, file: str) -> bytes | None:
        return self._raw.get(file)

    def parsed(self, file: str) -> ParsedFile | None:
        """The file's syntax tree, None where its text is not available or does not parse."""
        lines = self.lines(file)
        return _parsed(file, lines) if lines else None


class _LiveText(ProgramText):
    """The text as it is now, for capture and healing, which run at the same time as the program."""

    def __init__(self) -> None:
        super().__init__({})

    def lines(self, file: str) -> Sequence[str]:
        return _lines_now(file)

    def raw(self, file: str) -> bytes | None:
        return _bytes_now((file,)).get(file)


NO_TEXT = ProgramText({})
LIVE = _LiveText()


def lines_of(text: str) -> list[str]:
    r"""The lines with their ends; a ``\r\n`` stays one.

    ``str.splitlines`` also cuts at form feeds, vertical tabs, file separators, NEL and the line separators of Unicode.
    In Python's grammar, in ``linecache`` and in ``git diff`` those are characters of a line like any other.

    >>> lines_of("a\x0cb\nc")
    ['a\x0cb\n', 'c']
    """
    return _LINE.findall(text)


_LINE = re.compile(r"[^\n]*\n|[^\n]+")


def universal(text: str) -> str:
    r"""The text with every line end as ``\n``, as Python reads files."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def show_patched(texts: Mapping[str, str]) -> None:
    """Makes ``linecache``, and so tracebacks and warnings, use patched texts for these files instead of those on
    disk."""
    for file, text in texts.items():
        linecache.cache[file] = (len(text), None, lines_of(universal(text)), file)


def _lines_now(file: str) -> Sequence[str]:
    """From ``linecache``, where the text of notebook cells and ``python -c`` programs is registered too."""
    try:
        return linecache.getlines(file)
    except ValueError:  # a name that no file can have
        return ()


def _bytes_now(files: Iterable[str]) -> dict[str, bytes]:
    found = {}
    for file in files:
        try:
            with open(file, "rb") as opened:
                found[file] = opened.read()
        except (OSError, ValueError):  # a notebook cell, a file that is gone, a name that no file can have
            pass
    return found


_known: dict[str, tuple[Sequence[str], ParsedFile | None]] = {}


def _parsed(file: str, lines: Sequence[str]) -> ParsedFile | None:
    """Parses each text of a file once: ``linecache`` returns the same list until the file changes."""
    known = _known.pop(file, None)
    if known is None or known[0] is not lines:
        known = lines, _parse(file, lines)
    _known[file] = known
    while len(_known) > MOST_PARSED:
        del _known[next(iter(_known))]  # the least recently used one
    return known[1]


def _parse(file: str, lines: Sequence[str]) -> ParsedFile | None:
    with unwarned():  # Python warned of the program's text when it compiled it
        try:
            return ParsedFile(lines, ast.parse("".join(lines)), file)
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last: nested too deep for the parser
            return None
