"""Twenty thousand steps of a small model under one trace: do later steps cost more than early ones, and does memory grow?

    python benchmarks/long.py [--steps N] [--kind plain|numerics]

Each kind has a process of its own. Blocks of a hundred traced steps alternate with blocks of the same steps in a thread that is not
watched, so that what else the machine does meets both. Printed are the processor's time of a traced step over that of an unwatched
one, the least of ten blocks each, in the first thousand (after a warm-up) and in the last; their ratio; and the memory of the process
after the first thousand and at the end.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

import dtypetrace

BLOCK = 100
THOUSAND = 1000 // BLOCK
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


def block(step: Callable[[], None]) -> float:
    begin = time.thread_time()
    for _ in range(BLOCK):
        step()
    return (time.thread_time() - begin) / BLOCK


def resident() -> float:
    """MiB of the process, after a collection."""
    gc.collect()
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * 4096 / 2**20


def measure(kind: str, steps: int) -> None:
    torch.set_num_threads(1)
    trace = dtypetrace.trace(numerics=kind == "numerics")
    watched, plain = trainer(), trainer()
    traced: list[float] = []
    alone: list[float] = []
    with ThreadPoolExecutor(1) as beside, trace:
        beside.submit(torch.set_num_threads, 1).result()
        for _ in range(WARM):
            watched()
            beside.submit(plain).result()
        for number in range(steps // BLOCK):
            traced.append(block(watched))
            alone.append(beside.submit(block, plain).result())
            if number == THOUSAND - 1:
                early, records = resident(), len(trace._watch.recorder.ops)
        late, grown = resident(), len(trace._watch.recorder.ops) - records
    assert trace._watch.recorder.broken is False, trace.recording.not_seen
    first = min(traced[:THOUSAND]) / min(alone[:THOUSAND])
    last = min(traced[-THOUSAND:]) / min(alone[-THOUSAND:])
    print(
        f"{kind:9} {steps:,} steps: {first:.2f}x in the first thousand, {last:.2f}x in the last: {last / first:.3f}x; "
        f"memory {late / early:.4f}x, {late - early:+.1f} MiB of {early:.0f}; {grown} new records",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--kind", choices=("plain", "numerics"))
    options = parser.parse_args()
    if options.kind:
        measure(options.kind, options.steps)
        return
    for kind in ("plain", "numerics"):
        subprocess.run([sys.executable, __file__, "--kind", kind, "--steps", str(options.steps)], check=True)


if __name__ == "__main__":
    main()
