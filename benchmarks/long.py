"""Twenty thousand steps of a small model under one trace: do later steps cost more than early ones, and does memory grow?

    python benchmarks/long.py [--steps N] [--kind plain|numerics]

Each kind has a process of its own. After every eight traced steps, the same eight run in a thread that is not watched: what else
the machine does meets both, and cancels in the ratio of their times. A chunk is two hundred steps of each. Printed are
the median of the chunks' ratios in the first thousand (after a warm-up) and in the last; the second over the first, which has
the bar (within 2%); the same between neighbouring thousands, which shows how exact the measuring is; and the memory of the
process after the first thousand and at the end.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from statistics import median

import torch
from torch import nn

import dtypetrace

TURN = 8
CHUNK = 200
THOUSAND = 1000 // CHUNK
WARM = 200


def trainer() -> Callable[[], None]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs, targets = torch.randn(16, 64), torch.randn(16, 64)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def turn(step: Callable[[], None]) -> float:
    """The processor's time of some steps, of the calling thread."""
    begin = time.thread_time()
    for _ in range(TURN):
        step()
    return time.thread_time() - begin


def chunk(watched: Callable[[], None], plain: Callable[[], None], beside: ThreadPoolExecutor) -> float:
    """What a traced step costs over an unwatched one."""
    traced = alone = 0.0
    for _ in range(CHUNK // TURN):
        traced += turn(watched)
        alone += beside.submit(turn, plain).result()
    return traced / alone


def resident() -> float:
    """MiB of the process, after a collection."""
    gc.collect()
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * 4096 / 2**20


def measure(kind: str, steps: int) -> None:
    torch.set_num_threads(1)
    trace = dtypetrace.trace(precision="values" if kind == "numerics" else "off", every=1)
    watched, plain = trainer(), trainer()
    ratios: list[float] = []
    with ThreadPoolExecutor(1) as beside, trace:
        beside.submit(torch.set_num_threads, 1).result()
        for _ in range(WARM // CHUNK):
            chunk(watched, plain, beside)
        for number in range(steps // CHUNK):
            ratios.append(chunk(watched, plain, beside))
            if number == THOUSAND - 1:
                early, records = resident(), len(trace._watch.recorder.ops)
        late, grown = resident(), len(trace._watch.recorder.ops) - records
    assert trace._watch.recorder.broken is False, trace.recording.not_seen
    thousands = [median(ratios[n : n + THOUSAND]) for n in range(0, len(ratios) - THOUSAND + 1, THOUSAND)]
    first, last = thousands[0], median(ratios[-THOUSAND:])
    between = sorted(b / a for a, b in pairwise(thousands))
    print(
        f"{kind:9} {steps:,} steps: {first:.2f}x in the first thousand, {last:.2f}x in the last: {last / first:.3f}x "
        f"(neighbouring thousands {between[0]:.3f}x to {between[-1]:.3f}x); "
        f"memory {late / early:.4f}x, {late - early:+.1f} MiB of {early:.0f}; {grown} new records",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000, help="at least 2,000")
    parser.add_argument("--kind", choices=("plain", "numerics"))
    options = parser.parse_args()
    if options.kind:
        measure(options.kind, options.steps)
        return
    for kind in ("plain", "numerics"):
        subprocess.run([sys.executable, __file__, "--kind", kind, "--steps", str(options.steps)], check=True)


if __name__ == "__main__":
    main()
