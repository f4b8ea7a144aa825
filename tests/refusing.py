"""Programs that torch refuses for a dtype, each from a few lines whose cause is known, and the test of one.

A program is a function. One of its lines is marked `# BORN`: there the culprit took its dtype; one `# COLLIDES`: there
the refused op was called (a C++ op of the backward pass is named from its forward); `# OTHER` marks where other
operands were born. The decorator says the rest: the wording's name in `tables/refusals.json`, code, op, culprit and
shape, module, and the phase where it is neither forward (in a module) nor other (outside one).

Where two tensors disagree, one has to be the cause: it is the one against its model, against what most of the run
holds, or the one that comes from a default. Programs named `..._swapped` are the same collision with the other side at
fault.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import dtypetrace


@dataclass(frozen=True)
class Program:
    function: Callable[[], None]
    pattern: str
    code: str
    op: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    module: str
    phase: str

    def lines(self, marker: str) -> list[int]:
        text, first = inspect.getsourcelines(self.function)
        return [first + n for n, line in enumerate(text) if re.search(rf"#.*\b{marker}\b", line)]


def refuses(programs: list[Program], pattern: str, says: str, module: str = "", phase: str = ""):
    """The decorator of a program; ``says`` is ``CODE op: culprit dtype AxBxC``, a blank in the culprit's name written |."""
    code, op, name, dtype, shape = re.fullmatch(r"(\w+) (\w+): (\S+) ((?:python )?[\w.]+) (\S+)", says).groups()
    phase = phase or ("forward" if module else "other")
    sizes = tuple(int(n) for n in re.findall(r"\d+", shape))

    def add(function):
        programs.append(Program(function, pattern, code, op, name.replace("|", " "), dtype, sizes, module, phase))
        return function

    return add


def every(programs: list[Program]):
    """The decorator of a test that runs each program."""
    return pytest.mark.parametrize("program", programs, ids=lambda program: program.function.__name__)


def check(program: Program) -> None:
    """Runs a program and compares what is found with what its decorator and its markers say."""
    file = program.function.__code__.co_filename
    torch.manual_seed(0)
    np.random.seed(0)
    raised = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with dtypetrace.trace() as t:
                program.function()
        except Exception as error:
            raised = error
    assert raised is not None, "the program runs through: nothing to refuse"
    recorder = t._watch.recorder
    assert not recorder.broken, list(recorder.not_seen)
    collisions = [f for f in t.findings if f.kind == "collision"]
    assert len(collisions) == 1, [(f.code, f.op, f.exception) for f in collisions]
    (found,) = collisions

    assert found.exception.type == type(raised).__name__
    assert found.exception.message == str(raised)
    assert found.severity == "error"
    (refused,) = t.recording.refused
    assert refused.pattern == program.pattern
    (collides,), born = program.lines("COLLIDES"), program.lines("BORN")
    assert found.culprit is not None, found.operands
    culprit = found.culprit
    wrong = (found.code, found.op, culprit.name, culprit.dtype, culprit.shape, found.module, found.phase)
    assert wrong == (
        program.code,
        program.op,
        program.name,
        program.dtype,
        program.shape,
        program.module,
        program.phase,
    )
    assert (found.site.file, found.site.line) == (file, collides)
    assert (culprit.origin.file, [culprit.origin.line]) == (file, born)
    others = {o.origin.line for o in found.operands if o is not culprit}
    assert others >= set(program.lines("OTHER"))
    for operand in found.operands:
        assert operand.name and operand.dtype and operand.origin.line
        assert operand.device == "cpu" or not operand.shape or operand.dtype.startswith("numpy")
    assert found.fix is not None and found.fix.why
