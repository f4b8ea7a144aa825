"""The few functions that are replaced while a trace runs, and put back after it.

Modes and hooks do not see these events at all: a change of the default dtype, a tensor that is made
into a Parameter, a compiled function, a warning that torch's C++ attributes to the frame that
called it (which, with a mode on, is ours).
"""

from __future__ import annotations

import sys
import warnings
from functools import wraps
from typing import Any, Callable

import torch
from torch import nn

from . import _compat, _witness


class Patches:
    """Installed and removed as one; each clean-up is a small function in a list."""

    def __init__(self, recorder) -> None:
        self.recorder = recorder
        self._undo: list[Callable[[], None]] = []
        self._eager = False

    def install(self) -> None:
        self._undo = []
        self._replace(torch, "set_default_dtype", self._set_default_dtype(torch.set_default_dtype))
        self._replace(torch, "compile", self._compile(torch.compile))
        self._replace(warnings, "_showwarnmsg", self._show_warning(warnings._showwarnmsg))
        self._watch_parameters()
        self.mind_compile()

    def remove(self) -> None:
        while self._undo:
            self._undo.pop()()
        self._eager = False

    def _replace(self, owner: Any, name: str, new: Any) -> None:
        old = getattr(owner, name)
        setattr(owner, name, new)
        # whoever replaced it meanwhile keeps what he put there
        self._undo.append(lambda: setattr(owner, name, old) if getattr(owner, name) is new else None)

    # ------------------------------------------------------------ torch.compile

    def mind_compile(self) -> None:
        """Sets the force_eager stance once dynamo is there. Importing it takes most of a second, so not before."""
        if not self._eager and "torch._dynamo.eval_frame" in sys.modules:
            self._eager = True
            self._undo.append(_compat.force_eager())

    def _compile(self, original: Callable) -> Callable:
        @wraps(original)
        def compile(*args, **kwargs):
            compiled = original(*args, **kwargs)
            self.mind_compile()
            self.recorder.not_seen["compiled code: torch.compile regions ran eagerly while watched"] = None
            return compiled

        return compile

    # ------------------------------------------------------------ births

    def _set_default_dtype(self, original: Callable) -> Callable:
        @wraps(original)
        def set_default_dtype(d) -> None:
            original(d)
            recorder = self.recorder
            place = recorder.place(recorder.thread_state(), sys._getframe(1))
            recorder.default_place = -1 if torch.get_default_dtype() is torch.float32 else place

        return set_default_dtype

    def _watch_parameters(self) -> None:
        """``Parameter(x)`` shares x's storage under a new object that no mode sees made.

        Not one level lower, at ``Tensor._make_subclass``: dynamo, imported meanwhile, registers that
        function by identity and would keep ours for good.
        """
        original = nn.Parameter.__dict__["__new__"]
        recorder = self.recorder

        @wraps(original.__func__)
        def __new__(cls, data=None, requires_grad=True):
            try:
                made = original.__func__(cls, data, requires_grad)
            except Exception as error:
                frame = sys._getframe(1)
                _witness.guarded(recorder, recorder.thread_state(), cls, (data, requires_grad), {}, error, frame)
                raise
            if isinstance(data, torch.Tensor) and not recorder.broken:
                known = recorder.origins.of(data)
                if known is not None:
                    recorder.origins.mark(made, known.step, known.op)
            return made

        new = nn.Parameter.__new__ = staticmethod(__new__)

        def restore() -> None:
            if nn.Parameter.__dict__["__new__"] is new:
                nn.Parameter.__new__ = original

        self._undo.append(restore)

    # ------------------------------------------------------------ warnings

    def _show_warning(self, original: Callable) -> Callable:
        """Re-emits a warning that was attributed to dtypetrace at the frame it belongs to.

        The filters are asked again there, with that frame's own registry, so it is shown, raised,
        recorded or dropped just as without us.
        """
        hidden = self.recorder.places.own

        def _showwarnmsg(message) -> None:
            if not hidden(message.filename):
                return original(message)
            frame = _rightful_frame(hidden)
            for registry in _own_registries():
                registry.clear()
            warnings.onceregistry.pop((str(message.message), message.category), None)
            if frame is None:
                return original(message)
            registry = frame.f_globals.setdefault("__warningregistry__", {})
            warnings.warn_explicit(
                message.message, message.category, frame.f_code.co_filename, frame.f_lineno,
                frame.f_globals.get("__name__") or "<unknown>", registry, frame.f_globals, message.source,
            )  # fmt: skip

        return _showwarnmsg


def _own_registries():
    package = __name__.rpartition(".")[0]
    for name, module in list(sys.modules.items()):
        if name.startswith(package):
            registry = getattr(module, "__warningregistry__", None)
            if registry is not None:
                yield registry


def _rightful_frame(own: Callable[[str], bool]):
    """The frame that would have been blamed: the nearest below our handlers.

    For a torch function written in Python the stack reads user, function, ``handle_torch_function``,
    handler, function again; the first run of the function stands in for the second.
    """
    frame = sys._getframe(2)
    while frame is not None and not own(frame.f_code.co_filename):
        frame = frame.f_back  # Python's own machinery, and a torch function that warned with a stacklevel
    called = None
    while frame is not None and (own(frame.f_code.co_filename) or frame.f_code is _HANDLE):
        func = frame.f_locals.get("func") if frame.f_code.co_name == "__torch_function__" else None
        called = getattr(func, "__code__", called)
        frame = frame.f_back
    if frame is not None and frame.f_code is called:
        frame = frame.f_back
    return frame


_HANDLE = torch.overrides.handle_torch_function.__code__
