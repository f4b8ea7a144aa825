"""What watching costs a program that is compiled: a step of forward and backward, and the compilation itself.

    python benchmarks/compiled.py

Exits with 1 if a bar is missed. The step is one compiled region, forward and backward, in one thread. Groups of watched and unwatched
steps take turns, and each step is timed by itself, by the time of the processor; the first of a group is left out. A figure is the
ratio of the medians; the same of every other unwatched group over the rest shows what the machine adds. Compilations begin with empty
caches, in turn, and the least of each counts.
"""

from __future__ import annotations

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

GROUPS, STEPS = 24, 4
"""Groups of watched steps, and as many of unwatched ones; steps of a group that are timed."""
COMPILATIONS = 2


class Blocks(nn.Module):
    """Two residual blocks of width 512."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(512), nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x.square().mean()


def step() -> Callable[[], None]:
    torch.manual_seed(0)
    model, inputs = Blocks(), torch.randn(256, 512)
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


def steps(numerics: bool) -> tuple[float, float]:
    """A watched step over an unwatched one, and an unwatched one over itself."""
    work = step()
    work(), work()
    plain: tuple[list[float], list[float]] = [], []
    watched: list[float] = []
    for number in range(GROUPS):
        plain[number % 2].extend(group(work))
        with dtypetrace.trace(precision="values" if numerics else "off", every=1):
            watched += group(work)
    return median(watched) / median(plain[0] + plain[1]), median(plain[0]) / median(plain[1])


def compilation() -> float:
    """Compiling forward and backward in a trace, over compiling them without one."""
    found: dict[bool, list[float]] = {False: [], True: []}
    for number in range(2 * COMPILATIONS + 1):
        watched = bool(number % 2)
        torch._dynamo.reset()
        with fresh_cache(), dtypetrace.trace(precision="values", every=1) if watched else nullcontext():
            begin = time.process_time()
            step()()
            found[watched] += [time.process_time() - begin] if number else []  # the first one imports inductor
    return min(found[True]) / min(found[False])


def main() -> int:
    torch.set_num_threads(1)
    torch._inductor.config.compile_threads = 1
    show = "{:.3f}x".format
    (alone, noise), (numerics, more_noise) = steps(False), steps(True)
    rows = [
        Row("a watched step of compiled code, over an unwatched one", alone, show, 1.02, 1.01),
        Row("the same with numerics, as dtypetrace run has it", numerics, show, 1.02, 1.01),
        Row("unwatched steps over unwatched ones, in both", max(noise, more_noise), show),
        Row("compiling forward and backward, over without a trace", compilation(), show, 1.15, 1.05),
    ]
    print(table("two residual blocks of width 512 with inductor, on the CPU", rows), flush=True)
    return int(any(row.verdict == "MISSED" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
