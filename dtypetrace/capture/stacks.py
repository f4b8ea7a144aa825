"""Where in the program an op was called: cheap stack keys now, files and columns later.

A stack is kept as ``(code object, f_lasti)`` pairs, which is all that ``co_positions`` needs to
give exact columns at report time. Code objects hold no locals, so nothing is kept alive.
:class:`UserCode` decides which frames are the user's.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from opcode import opmap
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from ..records import Frame, Place
from ..records.text import LIVE, ProgramText, lines_of, universal
from ..source import expressions
from .private import TORCH_FOLDER

_OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MACHINERY = (
    TORCH_FOLDER,
    _OWN_FOLDER,
    os.path.join(sysconfig.get_path("stdlib"), "multiprocessing") + os.sep,
    "<frozen ",
)
_STALE = -2
_GENERATED = re.compile(r"<eval_with_key>|.*[/\\\\]torchinductor_")
"""Names of code that torch generates: graphs, and what inductor writes to its cache."""
_WRAPPERS = (os.sep + "typing_extensions.py", os.sep + "warnings.py")
"""Files in which `@deprecated` wraps torch's functions: such calls begin and end in torch."""


_NOT_HELD = 3
"""References to a frame's dictionary of variables that the program has not asked for: the frame's, and two of ours."""


def variables(frame: FrameType) -> dict[str, Any]:
    """The variables of a function that may still run, by name.

    Until Python 3.13 a frame keeps what was read of its variables, and the memory with it, until it ends. What nobody
    else has asked for is taken away again.
    """
    known = frame.f_locals
    found = dict(known)
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and type(known) is dict and sys.getrefcount(known) <= _NOT_HELD:
        known.clear()
    return found


class Places:
    """Numbers distinct stacks. A place may continue in an ``outer`` one: the place where the enclosing module was
    called."""

    most = 200_000
    """Places that are distinguished."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, ...], int] = {}
        self._entries: list[tuple[int, tuple[tuple[CodeType, int] | Frame, ...]]] = []
        self._given: dict[tuple[Frame, ...], int] = {}
        self._hidden: dict[str, bool] = {}
        # ids of code objects are keys, so the objects must stay alive as long as the table
        self._codes: dict[int, CodeType] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def hidden(self, filename: str) -> bool:
        """Whether frames of this file are left out: torch, dtypetrace and Python's own machinery."""
        known = self._hidden.get(filename)
        if known is None:
            machinery = filename.startswith(_MACHINERY) or filename.endswith(_WRAPPERS)
            known = machinery or _GENERATED.match(filename) is not None
            self._hidden[filename] = known
        return known

    @staticmethod
    def own(filename: str) -> bool:
        """Whether a file is dtypetrace's own."""
        return filename.startswith(_OWN_FOLDER)

    def outside(self, frame: FrameType | None) -> FrameType | None:
        """The nearest frame from this one outwards that is not dtypetrace's own: healing's mode may be around ours."""
        while frame is not None and self.own(frame.f_code.co_filename):
            frame = frame.f_back
        return frame

    def here(self, frame: FrameType | None, boundary: int = 0, outer: int = -1) -> int:
        """Number of the stack from ``frame`` up to the frame whose id is ``boundary``, continued in ``outer``.

        Returns -2 when the boundary frame is not on the stack (an exception that no hook saw has left it).
        """
        start = frame
        hidden = self._hidden
        key = [outer]
        while frame is not None:
            if id(frame) == boundary:
                break
            code = frame.f_code
            skip = hidden.get(code.co_filename)
            if skip is None:
                skip = self.hidden(code.co_filename)
            if not skip:
                key.append(id(code))
                key.append(frame.f_lasti)
            frame = frame.f_back
        else:
            if boundary:
                return _STALE
        if len(key) == 1:
            return outer
        number = self._numbers.get(tuple(key))
        if number is None:
            number = self._add(tuple(key), start, boundary, outer)
        return number

    def only_hidden(self, frame: FrameType | None, outer: tuple[int, CodeType]) -> bool:
        """Whether all frames up to an outer one, given by its id and code, are left out, as those of torch's optimizers
        are."""
        hidden, (boundary, code) = self._hidden, outer
        while frame is not None and hidden.get(frame.f_code.co_filename):
            if id(frame) == boundary:
                return frame.f_code is code
            frame = frame.f_back
        return False

    @property
    def full(self) -> bool:
        """Whether new places are no longer distinguished: a program that compiles new code in each step makes new
        ones without end."""
        return len(self._entries) >= self.most

    def _add(self, key: tuple[int, ...], frame: FrameType | None, boundary: int, outer: int) -> int:
        if self.full:
            return -1
        frames = []
        while frame is not None and id(frame) != boundary:
            frames.append((frame.f_code, frame.f_lasti))
            frame = frame.f_back
        number = self._numbers[key] = self.of_frames(frames, outer)
        return number

    def of_frames(self, frames: list[tuple[CodeType, int]], outer: int = -1) -> int:
        """Number of a stack given innermost first, from a traceback, continued in ``outer``."""
        frames = [(code, _instruction(code, lasti)) for code, lasti in frames if not self.hidden(code.co_filename)]
        key = [outer]
        for code, lasti in frames:
            self._codes[id(code)] = code
            key += (id(code), lasti)
        if len(key) == 1:
            return outer
        number = self._numbers.get(tuple(key))
        if number is None and self.full:
            return -1
        if number is None:
            number = self._numbers[tuple(key)] = len(self._entries)
            self._entries.append((outer, tuple(frames)))
        return number

    def inside(self, number: int, around: int) -> tuple[str, ...]:
        """Names of the functions between a place and one around it; none where the second is not around the first."""
        if number < 0 or around < 0:
            return ()
        (continued, frames), (outside, outer) = self._entries[number], self._entries[around]
        inner = len(frames)
        if continued != around:
            inner -= len(outer)
            if continued != outside or inner <= 0 or frames[inner:] != outer:
                return ()
        return tuple(frame.function if isinstance(frame, Frame) else frame[0].co_name for frame in frames[:inner])

    def codes_between(self, number: int, around: int) -> tuple[CodeType, ...]:
        """The code of the frames between a place and one around it; of all its frames where the second is not around
        it."""
        if number < 0:
            return ()
        outer, frames = self._entries[number]
        outside, known = self._entries[around] if around >= 0 else (-1, ())
        inner = len(frames) - len(known) if outer == outside else len(frames)
        return tuple(frame[0] for frame in frames[: max(inner, 0)] if not isinstance(frame, Frame))

    def same_call(self, one: int, other: int) -> CodeType | None:
        """The code of the function call that both places are in, if they are in one call; else None."""
        if one < 0 or other < 0:
            return None
        (outer, frames), (outside, around) = self._entries[one], self._entries[other]
        if outer != outside or not frames or not around or frames[1:] != around[1:]:
            return None
        first, second = frames[0], around[0]
        if isinstance(first, Frame) or isinstance(second, Frame):
            return None
        return first[0] if first[0] is second[0] else None

    def within_call(self, one: int, other: int) -> bool:
        """Whether the first place is in the function call that the second one is in, or in a call made from there."""
        if one < 0 or other < 0:
            return False
        (outer, frames), (outside, around) = self._entries[one], self._entries[other]
        tail = frames[len(frames) - len(around) :] if len(around) <= len(frames) else ()
        if outer != outside or not tail or isinstance(tail[0], Frame) or isinstance(around[0], Frame):
            return False
        return tail[0][0] is around[0][0] and tail[1:] == around[1:]

    def is_at(self, number: int, code: CodeType, lasti: int) -> bool:
        """Whether the innermost frame of a place is on the line of an instruction."""
        frames = self._entries[number][1] if number >= 0 else ()
        if not frames or isinstance(frames[0], Frame) or frames[0][0] is not code:
            return False
        return _position(*frames[0])[0] == _position(code, lasti)[0]

    @staticmethod
    def callee(code: CodeType, lasti: int) -> str:
        """The name of the function that an instruction calls, else of the function that it is in."""
        called = expressions.callee(LIVE, _live_frame(code, lasti, True)) or code.co_name
        return called.rpartition(".")[2]

    @staticmethod
    def expression(code: CodeType, lasti: int) -> ast.expr | None:
        """The expression that an instruction belongs to; None without the program's text."""
        return expressions.expression_at(LIVE, _live_frame(code, lasti, True))

    def frames(self, number: int, is_user: Callable[[str], bool]) -> tuple[Frame, ...]:
        """One place as files and lines, to be sent to another process."""
        found: tuple[Frame, ...] = ()
        while number >= 0:
            number, frames = self._entries[number]
            found += tuple(f if isinstance(f, Frame) else _live_frame(*f, is_user(f[0].co_filename)) for f in frames)
        return found

    def given(self, frames: tuple[Frame, ...]) -> int:
        """Number of a place that came from another process."""
        number = self._given.get(frames)
        if number is None:
            number = self._given[frames] = len(self._entries)
            self._entries.append((-1, frames))
        return number

    def files(self, is_user: Callable[[str], bool]) -> dict[int, CodeFile]:
        """The file of each code object that a place is in, by the code's id. ``is_user(filename)``: whether a file is
        the user's own code. Asked when a trace ends: later, the working directory or a notebook's names may differ."""
        known: dict[str, CodeFile] = {}
        found = {}
        for number, code in self._codes.items():
            filename = code.co_filename
            file = known.get(filename)
            if file is None:
                file = CodeFile(_file(code), is_user(filename))
                if filename != "<string>":  # several programs' code has this name
                    known[filename] = file
            found[number] = file
        return found

    @property
    def given_files(self) -> set[str]:
        """The files of places that came from other processes."""
        return {f.file for frames in self._given for f in frames}

    def resolve(self, files: Mapping[int, CodeFile], text: ProgramText) -> tuple[Place, ...]:
        """Every place as files, lines and columns. ``files``: from :meth:`files`; ``text``: that of these files."""
        places: list[Place] = []
        # by id: code objects compare equal even if their files differ (a copied file)
        known: dict[tuple[int, int], Frame] = {}
        positions: dict[int, tuple[_Position, ...]] = {}

        def frame(code: CodeType, lasti: int) -> Frame:
            found = known.get((id(code), lasti))
            if found is None:
                if id(code) not in positions:
                    positions[id(code)] = tuple(code.co_positions())
                of_code = positions[id(code)]
                position = of_code[lasti // 2] if 0 <= lasti // 2 < len(of_code) else (None,) * 4
                found = known[id(code), lasti] = _frame(code, files[id(code)], position, text)
            return found

        for outer, frames in self._entries:
            own = tuple(f if isinstance(f, Frame) else frame(*f) for f in frames)
            rest = places[outer].stack if outer >= 0 else ()
            places.append(Place(own + rest))
        return tuple(places)


class CodeFile(NamedTuple):
    """Where a code object comes from."""

    file: str
    user: bool
    """Whether the file is the user's own code."""


def _instruction(code: CodeType, lasti: int) -> int:
    """The instruction that marks a call. Python 3.11 has two; a specialised line calls from the first, not the
    second."""
    return lasti + _TO_CALL if _PRECALL is not None and lasti >= 0 and code.co_code[lasti] == _PRECALL else lasti


_PRECALL = opmap.get("PRECALL")
_TO_CALL = 4


_Position = tuple[int | None, int | None, int | None, int | None]
"""Line, end line, column and end column of an instruction."""


def _position(code: CodeType, lasti: int) -> _Position:
    return next(islice(code.co_positions(), lasti // 2, None), (None,) * 4)


def _live_frame(code: CodeType, lasti: int, user: bool) -> Frame:
    return _frame(code, CodeFile(_file(code), user), _position(code, lasti), LIVE)


def _frame(code: CodeType, origin: CodeFile, position: _Position, text: ProgramText) -> Frame:
    line, end_line, column, end_column = position
    line = line or code.co_firstlineno
    return Frame(
        file=origin.file,
        line=line,
        function=code.co_qualname,
        user=origin.user,
        column=_characters(text, origin.file, line, column),
        end_line=end_line,
        end_column=_characters(text, origin.file, end_line, end_column),
    )


def _file(code: CodeType) -> str:
    return _command(code) or file_named(code.co_filename)


def file_named(filename: str) -> str:
    """How a file is shown: a notebook's cell by its number, any other by its absolute path."""
    return _cell(filename) or (filename if filename.startswith("<") else os.path.abspath(filename))


def _cell(filename: str) -> str | None:
    """A notebook's name for the cell that was compiled under this file name: ``In [7]``; ``linecache`` knows its text
    by it, too."""
    numbered = re.match(r"<ipython-input-(\d+)-", filename)
    if numbered is None and f"{os.sep}ipykernel_" not in filename:
        return None
    name = f"In [{numbered[1]}]" if numbered else None
    shell = sys.modules.get("IPython.core.interactiveshell")
    if (
        shell is not None and shell.InteractiveShell.initialized()
    ):  # a kernel's file names have no number; the compiler knows it
        known = re.search(r"\d+", "".join(shell.InteractiveShell.instance().compile.format_code_name(filename) or ()))
        name = f"In [{known[0]}]" if known else name
    if name and (entry := linecache.cache.get(filename)) and len(entry) > 1:
        size, _, lines, _ = entry
        if not (lines and lines[0].startswith("get_ipython().run_cell_magic(")):  # what that runs has the same name
            linecache.cache[name] = size, None, lines, name  # None: there is no file to compare it with
    return name


def _command(code: CodeType) -> str | None:
    """``-c`` for the program that the interpreter got with that option; its text is also found by this name.

    Python's own name for it, ``<string>``, will not do: text run by ``exec`` has it too, and tracebacks would change.
    """
    if (
        code.co_filename != "<string>"
        or hasattr(sys.modules.get("__main__"), "__file__")
        or "-c" not in sys.orig_argv[:-1]
    ):
        return None
    text = sys.orig_argv[sys.orig_argv.index("-c") + 1]
    if code not in _compiled(text):
        return None
    linecache.cache.setdefault("-c", (len(text), None, lines_of(universal(text)), "-c"))
    return "-c"


@lru_cache(maxsize=1)
def _compiled(text: str) -> tuple[CodeType, ...]:
    """A program's code and that of every function in it."""
    try:
        found = [compile(text, "<string>", "exec", dont_inherit=True)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    for code in found:
        found += [c for c in code.co_consts if isinstance(c, CodeType)]
    return tuple(found)


def _characters(text: ProgramText, file: str, line: int | None, column: int | None) -> int | None:
    """A 0-based UTF-8 byte column as a 1-based character column."""
    if line is None or column is None:
        return None
    found = text.line(file, line)
    if found.isascii():
        return column + 1
    return len(found.encode()[:column].decode(errors="replace")) + 1


class UserCode:
    """Decides which files are the user's own: those under the script's folder or its git root that are not installed,
    be it into that very folder (``pip install --target``). An editable install there is the user's own.

    ``source`` overrides the folder. Notebook cells, ``-c`` programs and text run by ``exec`` are the user's own.
    """

    def __init__(
        self, script: str | os.PathLike[str] | None = None, source: str | os.PathLike[str] | None = None
    ) -> None:
        if script is None:
            script = getattr(sys.modules.get("__main__"), "__file__", None)
        folder = Path(script).resolve().parent if script else Path.cwd()
        if "site-packages" in folder.parts or folder in (
            Path(sys.executable).resolve().parent,
            Path(sys.prefix) / "bin",
        ):
            folder = Path.cwd()  # pytest, a server, a notebook's kernel: started in the program's folder
        self.root = Path(source).resolve() if source else _git_root(folder) or folder
        self._prefix = str(self.root).rstrip(os.sep) + os.sep
        self._installed = tuple(
            {os.path.realpath(p) + os.sep for p in sysconfig.get_paths().values() if p}
            | {os.path.join(os.path.realpath(sys.base_prefix), "lib", "python")}
        )
        self._known: dict[str, bool] = {}
        self._packages: dict[str, frozenset[str]] = {}

    def __call__(self, filename: str) -> bool:
        known = self._known.get(filename)
        if known is None:
            known = self._known[filename] = self._decide(filename)
        return known

    def _decide(self, filename: str) -> bool:
        if filename.startswith("<"):
            return not filename.startswith(("<frozen", "<__array", "<eval_with_key", "<attrs"))
        path = os.path.realpath(filename)
        if not {"site-packages", "dist-packages"}.isdisjoint(path.split(os.sep)):
            return False
        if "ipykernel" in path and not os.path.exists(path):
            return True
        # an interpreter inside the project (a .venv there) is still installed code
        if any(path.startswith(p) and not self._prefix.startswith(p) for p in self._installed):
            return False
        return path.startswith(self._prefix) and not self._was_installed(path)

    def _was_installed(self, path: str) -> bool:
        """Whether an installer put a file into a folder below the root, according to its record next to it."""
        folder = self._prefix
        for name in path.removeprefix(self._prefix).split(os.sep):
            if folder not in self._packages:
                self._packages[folder] = frozenset(_installed_in(folder))
            if name in self._packages[folder]:
                return True
            folder += name + os.sep
        return False


def _installed_in(folder: str) -> Iterator[str]:
    """The packages and modules of a folder that its ``.dist-info`` folders name."""
    try:
        noted = [entry for entry in os.listdir(folder) if entry.endswith(".dist-info")]
    except OSError:  # a file, a zip archive
        return
    for entry in noted:
        try:
            with open(os.path.join(folder, entry, "RECORD"), encoding="utf-8", errors="replace") as record:
                yield from {line.split(",", 1)[0].strip('"').split("/", 1)[0] for line in record}
        except OSError:
            pass


def _git_root(folder: Path) -> Path | None:
    return next((p for p in (folder, *folder.parents) if (p / ".git").exists()), None)
