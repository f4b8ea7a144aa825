"""Warnings keep their file and line while a trace runs.

Python attributes a warning to a frame that it finds by counting (``stacklevel``), and applies the filters for that
frame's module. With modes and hooks on, our handlers are on the stack, torch functions written in Python run twice, and
modules are called from another line. So if the count passed one of those, the warning is attributed again: to the frame
that the count would reach without them.

A call that is repeated beside the program's warns again; nobody hears of that (``unheard``).
"""

from __future__ import annotations

import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeVar

import torch

from .. import program
from . import global_hooks, private

_HANDLE = torch.overrides.handle_torch_function.__code__
_INNER = next(
    c for c in private.module_internals.Module._call_impl.__code__.co_consts if getattr(c, "co_name", "") == "inner"
)
_MODULE: Any = warnings
"""The same module as Any: its type stubs lack some attributes."""
_Result = TypeVar("_Result")
_PAST_THE_STACK = ("<sys>", 0) if sys.version_info >= (3, 13) else ("sys", 1)


def install(own: Callable[[str], bool]) -> Callable[[], None]:
    """Attributes warnings correctly until the returned function is called. ``own``: whether a file is dtypetrace's."""
    shows = _MODULE._showwarnmsg

    def _showwarnmsg(message: Any) -> None:
        frame = sys._getframe(1)
        if _in_unheard(frame):
            return
        if frame.f_code is _blame.__code__ or not _blame(message, frame, own):
            shows(message)

    # a warning attributed to us must reach _showwarnmsg, which then applies the user's filters
    ours = ("always", None, Warning, re.compile(re.escape(__package__.partition(".")[0] + ".")), 0)
    filters = _MODULE.filters
    filters.insert(0, ours)
    _MODULE._showwarnmsg = _showwarnmsg

    def remove() -> None:
        if _MODULE._showwarnmsg is _showwarnmsg:
            _MODULE._showwarnmsg = shows
        for rules in (filters, _MODULE.filters):  # an open catch_warnings has a copy of them
            if ours in rules:
                rules.remove(ours)

    return remove


def ours() -> Callable[..., None] | None:
    """What shows warnings while a trace is open, None where none is."""
    shows: Callable[..., None] = _MODULE._showwarnmsg
    return shows if shows.__module__ == __name__ else None


def unheard(function: Callable[[], _Result]) -> _Result:
    """Calls a function of ours; what it warns of is dropped, the warnings of torch's C++ included.

    Those are emitted where torch's outermost Python method ends, which would be the program's call: so this calls the
    function inside a method of a tensor of its own.
    """
    results: list[_Result] = []

    def called(number: float) -> float:
        results.append(function())
        return number

    one = getattr(_of_thread, "one", None)
    if one is None:  # made once, because that costs more than all of this
        one = _of_thread.one = torch.zeros(1, dtype=torch.float32, device="cpu")
    one.apply_(called)
    return results[0]


_of_thread = threading.local()
"""A tensor for each thread, see ``unheard``."""


def _in_unheard(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code is unheard.__code__:
            return True
        frame = frame.f_back
    return False


def _blame(message: Any, frame: FrameType, own: Callable[[str], bool]) -> bool:
    """Emits the warning again at the right frame; False where it was right already."""
    try:
        level, blamed, changed = _level(message, frame, own)
    except Exception:
        return False  # leave it: a lost warning is worse than a misplaced one
    if not changed:
        return False
    category, text = message.category, str(message.message)
    wrong = blamed.f_globals.get("__warningregistry__", {})
    for key in ((text, category, message.lineno), (text, category, 0), (text, category)):
        wrong.pop(key, None)
    _MODULE.onceregistry.pop((text, category), None)
    file, line = _PAST_THE_STACK
    names = vars(sys)
    for right, right_line in _plain(frame, own):
        if level == 0:
            file, line, names = right.f_code.co_filename, right_line, right.f_globals
            break
        level -= 1
    registry = names.setdefault("__warningregistry__", {})
    module = names.get("__name__") or "<unknown>"
    warnings.warn_explicit(message.message, category, file, line, module, registry, names, message.source)
    return True


CALLED: tuple[Callable[..., bool], ...] = (_in_unheard, _blame)
"""What ours calls before it shows a warning."""


def _level(message: Any, frame: FrameType | None, own: Callable[[str], bool]) -> tuple[int, Any, bool]:
    """How many frames were counted, which frame was found, and whether a frame of ours was counted."""
    level = 0
    changed = False
    while frame is not None:
        code = frame.f_code
        if not _bootstrap(code.co_filename):
            changed = changed or own(code.co_filename) or code is _INNER
            if code.co_filename == message.filename and frame.f_lineno == message.lineno:
                return level, frame, changed
            level += 1
        frame = frame.f_back
    return level, None, False


def _plain(frame: FrameType | None, own: Callable[[str], bool]) -> Iterator[tuple[FrameType, int]]:
    """The frames and their lines as they would be without the trace."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename == program.__file__:
            return  # below this there is only the runner
        if own(code.co_filename) or code is _HANDLE:
            called = None
            while frame is not None and (own(frame.f_code.co_filename) or frame.f_code is _HANDLE):
                if frame.f_code.co_filename == program.__file__:
                    return
                if frame.f_code.co_name == "__torch_function__":
                    called = getattr(frame.f_locals.get("func"), "__code__", called)
                frame = frame.f_back
            if frame is not None and frame.f_code is called:
                frame = frame.f_back  # a torch function in Python: its first run only called the second
            continue
        if _bootstrap(code.co_filename):
            frame = frame.f_back
            continue
        if code is _INNER and not _has_hooks(frame.f_locals.get("self")):
            frame = frame.f_back
            if frame is None:
                return
            yield frame, _direct_call_line(frame.f_code)
        else:
            yield frame, frame.f_lineno
        frame = frame.f_back


def _bootstrap(filename: str) -> bool:
    return "importlib" in filename and "_bootstrap" in filename  # as warnings.warn leaves them out


def _has_hooks(module: Any) -> bool:
    """Whether the module goes through its hooks even without us."""
    kinds = ("forward_hooks", "forward_pre_hooks", "backward_hooks", "backward_pre_hooks")
    return any(getattr(module, f"_{kind}", None) or global_hooks.of_the_program(f"_global_{kind}") for kind in kinds)


def _direct_call_line(code: Any) -> int:
    """The line of ``_call_impl`` that calls forward where there is no hook: its first return."""
    import dis

    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        # since Python 3.13, starts_line only says whether a line begins
        line = getattr(instruction, "line_number", None) or instruction.starts_line or line
        if instruction.opname == "RETURN_VALUE":
            return line
    return line
