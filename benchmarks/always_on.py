"""What a trace costs that stays on: 1,000 steps with one in 200 watched, over the same steps unwatched.

    python benchmarks/always_on.py

Exits with 1 if a bar is missed. One model is trained in one thread. Steps under a detached trace, groups with a watched step and the
first steps of a trace are timed beside each other; all are minima over several traces. Between watched steps nothing is installed but
the hook that counts steps (tests/capture/test_windows.py looks), so its own time is measured. The sum is made for 1,000 steps: the
first three, five later ones, and 1,000 calls of the hook.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from overhead import Row, cpu_work, table

import dtypetrace

STEPS, EVERY = 1000, 200
"""What the sum is made for."""
TRACES, APART, WATCHED = 4, 12, 4
"""What is measured: so many traces, in each so many later watched steps, so far apart."""
FIRST = 4
"""Steps that are timed together at the beginning; three of them are watched."""
GROUP = 2
"""Later steps that are timed together."""


def encoder() -> Callable[[], None]:
    """Two encoder layers of width 256 on 256 tokens, and AdamW."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.1, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    inputs, targets = torch.randn(4, 64, 256), torch.randn(4, 64, 256)

    def step() -> None:
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def small_unet() -> Callable[[], None]:
    return cpu_work().step


def group(step: Callable[[], None], steps: int) -> float:
    """Seconds of the processor for each of some steps."""
    begin = time.thread_time()
    for _ in range(steps):
        step()
    return (time.thread_time() - begin) / steps


def hook_seconds(trace: dtypetrace.Trace, optimizer: object) -> float:
    """What the hook that counts adds to the end of an optimizer's step."""
    tables = sys.modules["torch.optim.optimizer"]
    ours = tables._global_optimizer_post_hooks
    best = {}
    steps = trace.windows.steps, trace.windows.rounds
    for _ in range(20):
        for hooks in (ours, ours.program):
            begin = time.thread_time()
            for _ in range(500):
                for hook in hooks.values():
                    hook(optimizer, (), {})
            best[id(hooks)] = min(best.get(id(hooks), 1.0), (time.thread_time() - begin) / 500)
            trace.windows.steps, trace.windows.rounds = steps  # none of these was a step
    return best[id(ours)] - best[id(ours.program)]


def measure(step: Callable[[], None], numerics: bool) -> dict[str, float]:
    """Seconds of the fastest step of each kind; ``first`` and ``later`` are what a watched step adds."""
    step()
    best: dict[str, float] = {}

    def note(kind: str, seconds: float) -> None:
        best[kind] = min(best.get(kind, float("inf")), seconds)

    for _ in range(TRACES):
        with dtypetrace.trace(precision="values" if numerics else "off", every=APART) as trace:
            note("first", group(step, FIRST))
            while trace.windows.rounds < APART * WATCHED:
                before = trace.windows.watched
                seconds = group(step, GROUP)
                note("later" if trace.windows.watched > before else "plain", seconds)
            trace.windows.every = 10**9
            note("hook", hook_seconds(trace, trace.windows._pace()))
        assert not trace._watch.recorder.broken, trace.recording.not_seen
    best["first"] = (best["first"] - best["plain"]) * FIRST
    best["later"] = (best["later"] - best["plain"]) * GROUP
    return best


def rows(step: Callable[[], None], bars: bool) -> list[Row]:
    """The rows of one work."""
    found = []
    for name, numerics in (("trace(every=200)", False), ("run --every 200, values measured", True)):
        best = measure(step, numerics)
        counting = 1 + best["hook"] / best["plain"]
        whole = counting + (best["first"] + best["later"] * (STEPS // EVERY)) / best["plain"] / STEPS
        limits = (1.01, 1.005) if bars else (None, None)
        found += [
            Row(f"always on: {STEPS:,} steps under {name}, over unwatched", whole, ratio, *limits),
            Row("  a step between watched ones, over unwatched", counting, ratio),
            Row("  the first three together add, in steps", best["first"] / best["plain"], ratio),
            Row("  a later watched step adds, in steps", best["later"] / best["plain"], ratio),
        ]
    return found


def ratio(value: float) -> str:
    return f"{value:.4f}x"


def main() -> int:
    torch.set_num_threads(1)
    missed = False
    for name, make, bars in (
        ("two encoder layers of width 256: an op takes 60 us", encoder, True),
        ("small UNet: an op takes 6 us", small_unet, False),
    ):
        found = rows(make(), bars)
        missed |= any(r.verdict == "MISSED" for r in found)
        print(table(f"{name}, on the CPU", found), flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
