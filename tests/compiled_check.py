"""Runs one of `compiled_programs` alone and watched, in a process of its own: compiled_check.py PROGRAM BACKEND."""

from __future__ import annotations

import sys

import compiled_programs
from compiled_programs import EAGER, compiled

import dtypetrace

OPTIONS = {"eager": ({"numerics": True, "reference": True},)}
"""By backend: the traces under which a program must compile and compute as it does alone; all three for the others."""


def check(name: str, backend: str) -> None:
    run = lambda: getattr(compiled_programs, name)(backend)
    compiled(run)  # what torch does only the first time
    alone = compiled(run)
    assert compiled(run) == alone, "the program itself does not end the same twice"
    for options in OPTIONS.get(backend, ({}, {"numerics": True}, {"reference": True})):
        trace = dtypetrace.trace(**options)
        assert compiled(run, trace) == alone, options
        assert trace._watch.recorder.broken is False, trace.recording.not_seen
    assert compiled(run) == alone


if __name__ == "__main__":
    assert EAGER in OPTIONS
    check(*sys.argv[1:])
