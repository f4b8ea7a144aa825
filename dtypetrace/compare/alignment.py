"""Which ops of two recordings correspond, and which only one of them has.

Ops are aligned by module, phase and name. One call of a torch function may run several ops, and another version of
torch runs others: of such a call, what comes in and what comes out is compared, and the dtypes that it computes in.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby

from ..records import Input, Op, Recording
from ..rules import patterns
from ..tables.dtypes import FLOATING
from ..tables.operators import is_cast, is_move

Pair = tuple[Recording, Recording]
Key = tuple[str, str]
"""Phase and module."""


@dataclass(frozen=True, slots=True)
class Block:
    """Ops at one point of a module that do not correspond, by number, those of each run."""

    key: Key
    sides: tuple[list[int], list[int]]
    inside: str = ""
    """The function that both runs called there, if these are the ops inside it."""


@dataclass(slots=True)
class Alignment:
    """What corresponds, and what does not."""

    ops: list[tuple[int, int]] = field(default_factory=list)
    """Pairs of ops, by number."""
    calls: list[Block] = field(default_factory=list)
    """Calls of one function that runs other ops inside in the second run."""
    blocks: list[Block] = field(default_factory=list)
    """What only one run has, or both in other ways."""
    apart: list[Block] = field(default_factory=list)
    """Blocks that read nothing of the run and that nothing in it reads, such as what a part of torch runs when it is
    imported: no dtype of the run depends on them."""


def aligned(pair: Pair, roots: tuple[str, str]) -> Alignment:
    """Aligns two recordings. Names of modules are compared without ``roots``, the variables that hold the models."""
    groups: tuple[dict[Key, list[int]], dict[Key, list[int]]] = ({}, {})
    for recording, root, group in zip(pair, roots, groups):
        for number, op in enumerate(recording.ops):
            if not is_move(op) and (op.inputs or op.outputs):
                group.setdefault((op.phase, patterns.below(op.module, root)), []).append(number)
    found = Alignment()
    for key in dict.fromkeys([*groups[0], *groups[1]]):
        one, other = (list(_calls(recording, group.get(key, []))) for recording, group in zip(pair, groups))
        names = [[recording.ops[call[0]].op for call in calls] for recording, calls in zip(pair, (one, other))]
        for how, i, i_end, j, j_end in _opcodes(*names):
            if how == "equal":
                for a, b in zip(one[i:i_end], other[j:j_end]):
                    _align_call(pair, key, a, b, found)
            else:
                sides = [n for call in one[i:i_end] for n in call], [n for call in other[j:j_end] for n in call]
                apart = all(_is_apart(recording, side) for recording, side in zip(pair, sides))
                (found.apart if apart else found.blocks).append(Block(key, sides))
    found.ops.sort()
    return found


def _calls(recording: Recording, numbers: Iterable[int]) -> Iterator[list[int]]:
    """The ops of each call: neighbours of one name and place."""
    for _, call in groupby(numbers, lambda n: (recording.ops[n].op, recording.ops[n].place)):
        yield list(call)


def _opcodes(a: list[str], b: list[str]) -> Iterable[tuple[str, int, int, int, int]]:
    return difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes()


def _align_call(pair: Pair, key: Key, a: list[int], b: list[int], found: Alignment) -> None:
    operators = [[recording.ops[n].aten for n in side] for recording, side in zip(pair, (a, b))]
    if len(a) == len(b) == 1:
        found.ops.append((a[0], b[0]))
        return
    if {*operators[0]} != {*operators[1]}:
        found.calls.append(Block(key, (a, b), pair[0].ops[a[0]].op))
        return
    for how, i, i_end, j, j_end in _opcodes(*operators):
        if how == "equal":
            found.ops += zip(a[i:i_end], b[j:j_end])
        else:
            found.blocks.append(Block(key, (a[i:i_end], b[j:j_end])))


def computed(recording: Recording, call: list[int]) -> set[str]:
    """The floating dtypes that a call computes in: those that its ops take, casts aside."""
    ops = (recording.ops[n] for n in call)
    return {i.dtype for op in ops if not is_cast(op) for i in op.inputs} & FLOATING


def operands(recording: Recording, call: list[int]) -> list[Input]:
    """The floating operands of a call that it did not make itself, each once."""
    found: dict[tuple[int, int, str], Input] = {}
    for number in call:
        for i in recording.ops[number].inputs:
            if i.producer < call[0] and i.dtype in FLOATING:
                found.setdefault((i.producer, i.event, i.name), i)
    return list(found.values())


def _is_apart(recording: Recording, numbers: list[int]) -> bool:
    """Whether ops read only what one of them made, and no other op reads what they made."""
    own = set(numbers)
    for number, op in enumerate(recording.ops):
        if number in own:
            if not _reads_only(op, own):
                return False
        elif op.of in own or any(i.producer in own for i in op.inputs):
            if not is_move(op) or not _reads_only(op, own):
                return False
            own.add(number)
    return True


def _reads_only(op: Op, made: set[int]) -> bool:
    return all(i.producer in made and i.holder is None for i in op.inputs)
