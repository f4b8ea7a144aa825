"""Ctrl-C in a command that runs a program in other processes: one line, and nothing is left behind."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..repair import children
from .signals import FatalSignals


@contextmanager
def said(command: str) -> Iterator[None]:
    """A block in which Ctrl-C is said in one line. A signal that ends the command ends its processes, too."""
    signals = FatalSignals(lambda name: children.end_all())
    signals.install()
    try:
        yield
    except KeyboardInterrupt:
        begins = "\n" * sys.stderr.isatty()  # a terminal has shown ^C
        print(f"{begins}dtypetrace {command}: interrupted", file=sys.stderr)
        raise
    finally:
        signals.remove()
