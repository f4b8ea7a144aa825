"""What watching costs a program that is compiled: a step of forward and backward, and the compilation itself.

    python benchmarks/compiled.py

Exits with 1 if a bar is missed. The step is one compiled region, forward and backward, in one thread. What a trace adds to it depends
on its ops and, where their tensors fill the caches, little on their sizes; and it is less than a shared machine's matmuls differ from
one second to the next. So it is measured in the same region with narrower tensors, of two widths, and set against an unwatched step of
the wide one. Groups of watched and unwatched steps take turns, each step is timed by itself, by the time of the processor, and medians
are compared; the first of a group is left out. Compilations begin with empty caches, in turn, the compiler's own processes count, and
the least of each is taken.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from statistics import median

import torch
from torch import nn
from torch._inductor.utils import fresh_cache

sys.path.insert(0, str(Path(__file__).parent))
from overhead import Row, table

import dtypetrace

WIDE, NARROW = 512, (128, 256)
"""Widths of the region: the one that is trained, and those in which it is seen what a trace adds."""
GROUPS, STEPS = 30, 16
"""Groups of watched steps, and as many of unwatched ones; steps of a group that are timed."""
COMPILATIONS = 2


class Blocks(nn.Module):
    """Two residual blocks."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x.square().mean()


def step(width: int = WIDE) -> Callable[[], None]:
    torch.manual_seed(0)
    model, inputs = Blocks(width), torch.randn(256, width)
    compiled = torch.compile(model)

    def run() -> None:
        model.zero_grad()
        compiled(inputs).backward()

    return run


def group(work: Callable[[], None]) -> list[float]:
    """Seconds of the processor for each of some steps, after one that is not counted: it makes the records."""
    found = []
    for _ in range(1 + STEPS):
        begin = time.thread_time()
        work()
        found.append(time.thread_time() - begin)
    return found[1:]


def plain() -> float:
    """Seconds of an unwatched step of the wide region."""
    work = step()
    work(), work()
    return median(group(work) + group(work))


def added(numerics: bool) -> list[float]:
    """Seconds that a trace adds to a step of the region, in each narrow width."""
    return [_added(step(width), numerics) for width in NARROW]


def _added(work: Callable[[], None], numerics: bool) -> float:
    work(), work()
    alone: list[float] = []
    watched: list[float] = []
    for _ in range(GROUPS):
        alone += group(work)
        with dtypetrace.trace(precision="values" if numerics else "off", every=1):
            watched += group(work)
    return median(watched) - median(alone)


def compilation() -> float:
    """Compiling forward and backward in a trace, over compiling them without one."""
    found: dict[bool, list[float]] = {False: [], True: []}
    for number in range(2 * COMPILATIONS + 1):
        watched = bool(number % 2)
        torch._dynamo.reset()
        with fresh_cache(), dtypetrace.trace(precision="values", every=1) if watched else nullcontext():
            begin = sum(os.times()[:4])
            step()()
            found[watched] += [sum(os.times()[:4]) - begin] if number else []  # the first one imports inductor
    return min(found[True]) / min(found[False])


def main() -> int:
    torch.set_num_threads(1)
    torch._inductor.config.compile_threads = 1
    show = "{:.3f}x".format
    milliseconds = "{:.2f}".format
    unwatched, off, numerics = plain(), added(numerics=False), added(numerics=True)
    rows = [
        Row("a watched step of compiled code, over an unwatched one", 1 + max(off) / unwatched, show, 1.02, 1.01),
        Row("the same with numerics, as dtypetrace run has it", 1 + max(numerics) / unwatched, show, 1.02, 1.01),
        Row("  milliseconds of an unwatched step", 1000 * unwatched, milliseconds),
        *(Row(f"  added with numerics where it is {w} wide", 1000 * a, milliseconds) for w, a in zip(NARROW, numerics)),
        Row("compiling forward and backward, over without a trace", compilation(), show, 1.15, 1.05),
    ]
    print(table(f"two residual blocks of width {WIDE} with inductor, on the CPU", rows), flush=True)
    return int(any(row.verdict == "MISSED" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
