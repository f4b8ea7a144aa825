"""The constructor of tensor subclasses, ``Sub([1.0])`` and ``super().__new__(cls, x)``, which torch refuses while a
dispatch mode is on: what the mode returns is a plain tensor. It runs with ours off, and its result is marked here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from . import private, threads
from .births import Called
from .dispatch_mode import DispatchMode
from .mode_stacks import top_dispatch_mode_off
from .session import Session

_KEEP_IT = ("torch._dynamo", "torch.overrides")
"""Modules that keep what they read as ``Tensor.__new__`` in tables, by identity and for good."""


class Constructor:
    """Stands in for ``Tensor.__new__`` while a trace is open."""

    def __init__(self, recorder: Session) -> None:
        self._original: Callable[..., Any] = torch.Tensor.__new__
        self._new = self._watched(recorder)

    def __get__(self, instance: Any, owner: type) -> Callable[..., Any]:
        reader = sys._getframe(1).f_globals.get("__name__", "")
        return self._original if str(reader).startswith(_KEEP_IT) else self._new

    def _watched(self, recorder: Session) -> Callable[..., Any]:
        original = self._original

        def __new__(cls: type[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
            if cls is torch.Tensor or not threads.watched_by(recorder):
                return original(cls, *args, **kwargs)
            with top_dispatch_mode_off(DispatchMode):
                made = original(cls, *args, **kwargs)
            if not recorder.broken:
                try:
                    with private.DisableTorchFunction():
                        called = Called(recorder.thread_state(), cls, args, kwargs, made, sys._getframe(1))
                        recorder.births.called(called)
                except Exception:
                    recorder.fail("the constructor of a tensor subclass")
            return made

        return __new__
