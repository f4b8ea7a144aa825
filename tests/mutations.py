"""Seeded damage to texts and plain data, and limits for what reads them: for fuzzing in one process."""

from __future__ import annotations

import copy
import os
import random
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

COUNT = int(os.environ.get("DTYPETRACE_MUTATIONS", "1000"))
"""All tests together; ``make fuzz`` makes more."""
SEED = os.environ.get("DTYPETRACE_SEED", "0")
SECONDS = 10.0
BYTES = 500 << 20

VALUES = (
    None, True, False, 0, -1, 1, -2, 7, 10**6, 2**31, 2**62, 2**63 - 1, 2**63, -(2**63), 10**30, 10**400, 1.5, 1e308,
    float("nan"), float("inf"), "", "x", "error", "float32", "python float", "input", "form", "attribute", "\x1b[31m", "\x9b2J",
    "\u2028", "\u202e", "\ud800", "\x00", "</script><script>x", "{{ 7 * 7 }}", "../../etc/passwd", "/dev/zero", [], {}, [0], [[]],
    {"a": 1}, "A" * 5000, [0] * 300, [[[[[[[[]]]]]]]],
)  # fmt: skip
TEXTS = (
    "\x00", "\x0c", "\x0b", "\x1c", "\x85", "\u2028", "\u2029", "\r", "\r\n", "\n", "\t", "\ufeff", "\u202e", "\U0001f525", "\xa0", "é",
    "\\", '"', "'", '"""', "#", "(", ")", "[", "]", "{", "}", ":", ";", "lambda: ", "if x:\n", "\x1b[2J", "# -*- coding: utf-16 -*-\n",
    "async ", "await ", "f'{", "del ", ".half()", ".to(x.dtype)", "with y: pass\n", "(" * 200, "-" * 3000, "0x", "1e999", "dtype=",
)  # fmt: skip


def random_of(kind: str, number: int) -> random.Random:
    """The random numbers of one mutation: the same whichever others run."""
    return random.Random(f"{SEED} {kind} {number}")


class TooSlow(BaseException):
    """What ran took longer than it may."""


@contextmanager
def limits(seconds: float = SECONDS, memory: int = BYTES) -> Iterator[None]:
    """Stops what takes longer, of the process's own time, with TooSlow, and more memory with MemoryError."""

    def stop(*_: Any) -> None:
        raise TooSlow(f"more than {seconds} s")

    with open("/proc/self/statm") as pages:
        used = int(pages.read().split()[0]) * resource.getpagesize()
    before, (soft, hard) = signal.signal(signal.SIGPROF, stop), resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, hard))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGPROF, before)


def text(given: str, rnd: random.Random) -> str:
    """A text with one to four places cut out, repeated, swapped or written over."""
    for _ in range(rnd.choice((1, 1, 2, 4))):
        if not given:
            return rnd.choice(TEXTS)
        at = rnd.randrange(len(given) + 1)
        to = min(len(given), at + rnd.choice((0, 1, 1, 2, 5, 40)))
        change: Callable[[], str] = rnd.choice(
            (
                lambda: given[:at] + given[to:],
                lambda: given[:at] + rnd.choice(TEXTS) + given[to:],
                lambda: given[:to] + given[at:],
                lambda: given[:at] + chr(rnd.randrange(1, 0x250)) + given[to:],
                lambda: _lines(given, rnd),
            )
        )
        given = change()
    return given


def _lines(given: str, rnd: random.Random) -> str:
    lines = given.split("\n")
    one, other = rnd.randrange(len(lines)), rnd.randrange(len(lines))
    kind = rnd.randrange(5)
    if kind == 0:
        del lines[one]
    elif kind == 1:
        lines[one], lines[other] = lines[other], lines[one]
    elif kind == 2:
        lines.insert(one, lines[other])
    elif kind == 3:
        lines[one] = " " * rnd.choice((1, 4, 8)) + lines[one]
    else:
        del lines[one:]
    return "\n".join(lines)


def coded(given: str, rnd: random.Random) -> bytes:
    """A text as bytes, here and there in another encoding or with bytes that none has."""
    kind = rnd.randrange(8)
    if kind == 0:
        return given.encode("utf-16", "surrogatepass")
    if kind == 1:
        return given.encode("utf-8-sig", "surrogatepass")
    if kind == 2:
        return given.encode("latin-1", "replace")
    data = bytearray(given.encode("utf-8", "surrogatepass"))
    if kind == 3 and data:
        for _ in range(3):
            data[rnd.randrange(len(data))] = rnd.randrange(256)
    return bytes(data)


def ways(data: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every value inside plain data."""
    if way:
        yield way
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, item in items:
        yield from ways(item, (*way, key))


def plain(data: Any, known: list[tuple[Any, ...]], rnd: random.Random) -> Any:
    """Plain data with one to three values replaced, moved, copied from elsewhere, repeated or taken out.

    Half of the mutations are gentle: types stay, so that what is loaded reaches the views.
    """
    data = copy.deepcopy(data)
    gently = rnd.random() < 0.5
    for _ in range(rnd.choice((1, 1, 2, 3))):
        # half of them by walking down from the top: in large tables few values are of a rare kind
        *way, last = rnd.choice(known) if rnd.random() < 0.5 else _walk(data, rnd)
        try:
            at = _at(data, way)
            _change(data, at, last, _at(data, rnd.choice(known)), gently, rnd)
        except (KeyError, IndexError, TypeError):
            pass  # an earlier change took it away
    return data


def _walk(data: Any, rnd: random.Random) -> tuple[Any, ...]:
    way: list[Any] = []
    while isinstance(data, (dict, list)) and data and (not way or rnd.random() < 0.9):
        key = rnd.choice(list(data) if isinstance(data, dict) else range(len(data)))
        way.append(key)
        data = data[key]
    return tuple(way)


def _at(data: Any, way: Any) -> Any:
    for key in way:
        data = data[key]
    return data


def _change(data: Any, at: Any, last: Any, elsewhere: Any, gently: bool, rnd: random.Random) -> None:
    how = rnd.random()
    if gently:
        near = [v for v in VALUES if type(v) is type(at[last])]
        if type(at[last]) is int and how < 0.5:
            at[last] += rnd.choice((-1, 1, 3, -at[last]))
        elif type(at[last]) is type(elsewhere) and how < 0.7 and type(elsewhere) is not list:
            at[last] = elsewhere
        elif near:
            at[last] = copy.deepcopy(rnd.choice(near))
    elif how < 0.5:
        at[last] = copy.deepcopy(rnd.choice(VALUES))
    elif how < 0.65:
        at[last] = copy.deepcopy(elsewhere)
    elif how < 0.8:
        del at[last]
    elif isinstance(at, list):
        other = rnd.randrange(len(at))
        if how < 0.9:
            at[last], at[other] = at[other], at[last]
        else:
            at.insert(other, copy.deepcopy(at[last]))
