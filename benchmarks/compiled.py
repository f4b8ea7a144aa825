"""What watching costs a program that is compiled: a step of forward and backward, and the compilation itself.

    python benchmarks/compiled.py

Exits with 1 if a bar is missed. The step is one compiled region, forward and backward, in one thread; watched and unwatched steps are
timed beside each other, by the time of the processor, and the least of each counts. Compilations begin with empty caches, in turn.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import nn
from torch._inductor.utils import fresh_cache

sys.path.insert(0, str(Path(__file__).parent))
from overhead import Row, table

import dtypetrace

ROUNDS, STEPS = 6, 3
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


def seconds(work: Callable[[], None], times: int = 1) -> float:
    begin = time.thread_time()
    for _ in range(times):
        work()
    return (time.thread_time() - begin) / times


def steps(numerics: bool) -> float:
    """A watched step over an unwatched one."""
    work = step()
    work(), work()
    plain, watched = [], []
    for _ in range(ROUNDS):
        plain.append(seconds(work, STEPS))
        with dtypetrace.trace(precision="values" if numerics else "off", every=1):
            work()  # the first one makes the records
            watched.append(seconds(work, STEPS))
    return min(watched) / min(plain)


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
    rows = [
        Row("a watched step of compiled code, over an unwatched one", steps(False), show, 1.02, 1.0),
        Row("the same with numerics, as dtypetrace run has it", steps(True), show, 1.02, 1.0),
        Row("compiling forward and backward, over without a trace", compilation(), show, 1.15, 1.05),
    ]
    print(table("two residual blocks of width 512 with inductor, on the CPU", rows), flush=True)
    return int(any(row.verdict == "MISSED" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
