"""How cost and memory grow: layers, distinct ops, steps and ranks.

    python benchmarks/scale.py [--most LAYERS]

Exits with 1 if a bar is missed. The model is a chain of small linear layers, ten distinct ops each in a training step; 10,000 of them
(`--most 10000`, some minutes) are 100,000 distinct ops. Seconds of the processor; where a thing can be repeated, the least of three.
Growth is the cost of each op at 2,000 layers over that at 650: 1 where cost grows as the ops do.
"""

from __future__ import annotations

import argparse
import gc
import io
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from overhead import Row, kilobytes, microseconds, seconds, table, times_over

import dtypetrace
from dtypetrace import report
from dtypetrace.compare.ranks import Part, merge
from dtypetrace.results import conclude

SIZES = (10, 100, 1_000, 10_000)
RANKS = (1, 8, 64)


class Chain:
    """A model of so many layers, and its training step."""

    def __init__(self, layers: int) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(2, 2), nn.ReLU())])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.inputs = torch.ones(1, 2)

    def step(self) -> None:
        self.model(self.inputs).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def least(work: Callable[[], Any], rounds: int = 3) -> float:
    best = float("inf")
    for _ in range(rounds):
        gc.collect()
        begin = time.process_time()
        kept = work()
        best = min(best, time.process_time() - begin)
        del kept
    return best


def costs(layers: int, folder: Path) -> dict[str, float]:
    """What a trace of one step of so many layers costs."""
    chain = Chain(layers)
    chain.step()
    plain = least(chain.step)
    leaving = first = float("inf")
    for _ in range(3 if layers <= 1_000 else 1):
        with dtypetrace.trace(chain.model, precision="off", every=1) as trace:
            begin = time.process_time()
            chain.step()
            first = min(first, time.process_time() - begin - plain)
            begin = time.process_time()
        leaving = min(leaving, time.process_time() - begin)
    file = folder / f"{layers}.trace"
    trace.save(file)
    recording = trace.unjudged
    return {
        "ops": len(trace.recording.ops),
        "first": first,
        "leaving": leaving,
        "judging": least(lambda: conclude(recording)),
        "console": least(lambda: report.console(trace, file=io.StringIO())),
        "html": least(lambda: trace.report(folder / "page.html")),
        "show": least(lambda: report.console(dtypetrace.load(file), file=io.StringIO())),
        "bytes": file.stat().st_size,
    }


def memory_after_steps() -> list[int]:
    """Bytes of Python memory that a trace holds after 1, 10 and 1,000 steps."""
    chain, held = Chain(10), []
    chain.step()
    tracemalloc.start()
    with dtypetrace.trace(chain.model, precision="off", every=1):
        for number in range(1, 1_001):
            chain.step()
            if number in (1, 10, 1_000):
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    return held


def seconds_to_merge(layers: int) -> dict[int, float]:
    """Seconds to merge so many ranks of equal traces."""
    chain = Chain(layers)
    with dtypetrace.trace(chain.model, precision="off", every=1) as trace:
        chain.step()
    known = trace.results

    def part(rank: int, world: int) -> Part:
        meta = {**known.recording.meta, "rank": rank, "world": world}
        return Part(rank, replace(known, recording=replace(known.recording, meta=meta)))

    def merged(world: int) -> float:
        return least(lambda: merge([part(n, world) for n in range(world)], world))

    return {world: merged(world) for world in RANKS}


def growth(found: dict[int, dict[str, float]], what: str, larger: int, smaller: int) -> float:
    """The cost for each op at one size over that at another."""
    return (found[larger][what] / found[larger]["ops"]) / (found[smaller][what] / found[smaller]["ops"])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--most", type=int, default=1_000, help="the largest number of layers")
    most = parser.parse_args(argv).most
    torch.set_num_threads(1)
    missed = False

    def show(title: str, rows: list[Row]) -> None:
        nonlocal missed
        missed |= any(r.verdict == "MISSED" for r in rows)
        print(table(title, rows), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        found = {layers: costs(layers, Path(folder)) for layers in SIZES if layers <= most}
        bars = {layers: costs(layers, Path(folder)) for layers in (650, 2_000)}
    middle, large = bars[650], bars[2_000]
    show(
        "long waits",
        [
            Row(
                f"leaving a trace of {middle['ops']:,.0f} distinct ops",
                middle["leaving"],
                seconds,
                0.05,
                0.025,
                "0.03 s",
            ),
            Row(f"console report of {large['ops']:,.0f} ops", large["console"], seconds, 0.3, 0.15),
            Row("  judging them, once", large["judging"], seconds),
            Row(f"HTML of {large['ops']:,.0f} ops", large["html"], seconds, 2.0, 1.0),
            Row(f"show of a saved trace of {large['ops']:,.0f} ops", large["show"], seconds, 0.5, 0.3),
        ],
    )
    for layers, cost in found.items():
        show(
            f"{layers:,} layers: {cost['ops']:,.0f} distinct ops",
            [
                Row("first watched step adds, for each op", cost["first"] / cost["ops"], microseconds),
                Row("leaving the trace", cost["leaving"], seconds),
                Row("judging", cost["judging"], seconds),
                Row("HTML", cost["html"], seconds),
                Row("show", cost["show"], seconds),
                Row("saved, for each op", cost["bytes"] / cost["ops"], lambda v: f"{v:.0f} B"),
            ],
        )
    show(
        "growth for each op from 650 to 2,000 layers",
        [
            Row(what, growth(bars, key, 2_000, 650), times_over, 1.5, 1.1)
            for what, key in (
                ("the first watched step", "first"), ("judging", "judging"), ("HTML", "html"), ("show", "show"),
                ("size of a saved trace", "bytes"),
            )
        ],
    )  # fmt: skip
    held = memory_after_steps()
    show(
        "Python memory of a trace, 10 layers",
        [
            Row("from step 1 to step 10", held[1] - held[0], kilobytes),
            Row("from step 10 to step 1,000", held[2] - held[1], kilobytes, 64 * 1024, 0),
        ],
    )
    merging = seconds_to_merge(100)
    show(
        "ranks of 1,000 ops each, merged",
        [Row(f"{world} rank{'s' * (world > 1)}", taken, seconds) for world, taken in merging.items()]
        + [Row("for each rank, 64 over 8", merging[64] / 8 / merging[8], times_over, 1.5, 1.1)],
    )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
