"""What `dtypetrace run` costs over a whole training: 2,000 steps, watched while something is new, over the same steps unwatched.

    python benchmarks/whole_run.py

Exits with 1 if a bar is missed. One model is trained in one thread. As in always_on.py, the first steps, a step that the schedule
wakes, and plain steps are timed in several traces, and their minima are added up for the steps that would be watched; which those
are, the scheduler itself says. What is left on while it sleeps is too little to be seen in a step, so it is timed by itself: calls
of a module with the model's parts and an empty forward, and the hook at an optimizer's end. Memory is counted in 2,000 real steps.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from always_on import group, hook_seconds, ratio
from overhead import Row, cpu_work, table

import dtypetrace
from dtypetrace.capture.novelty import Novelty

STEPS, VALIDATION = 2000, 200
TRACES, WAKES = 3, 3
"""Traces that are timed, and later watched steps in each."""


def watched_steps() -> tuple[int, int]:
    """How many of the first steps are watched, and how many of the others, where nothing is new."""
    novelty, awake, on = Novelty(), True, []
    for number in range(1, STEPS + 1):
        on.append(awake)
        awake = novelty.wanted(number + 1, awake)
    first = on.index(False)
    return first, sum(on[first:])


class Probe(nn.Module):
    """A model's parts, and a forward that does nothing."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def calls_seconds(probe: nn.Module) -> float:
    """Seconds of the fastest call."""
    x, best = torch.ones(2, 2), 1.0
    for _ in range(20):
        begin = time.thread_time()
        for _ in range(40):
            probe(x)
        best = min(best, (time.thread_time() - begin) / 40)
    return best


def measure(model: nn.Module, step: Callable[[], None]) -> dict[str, float]:
    """Seconds of a plain step, what the first steps together and a later watched one add, what is on while it sleeps."""
    first, _ = watched_steps()
    step()
    best: dict[str, float] = {}

    def note(kind: str, seconds: float) -> None:
        best[kind] = min(best.get(kind, float("inf")), seconds)

    probe = Probe(model)
    for _ in range(TRACES):
        for _ in range(6):
            note("plain", group(step, 2))
        note("empty", calls_seconds(probe))
        with dtypetrace.trace(precision="values") as trace:
            probe(torch.ones(2, 2))
            note("first", group(step, first))
            while trace.is_attached:
                step()
            windows, novelty = trace.windows, trace.windows.novelty
            novelty._due = lambda number: False
            step()
            type(novelty).heard, heard = property(lambda self: 10**9), type(novelty).heard
            note("listening", calls_seconds(probe))
            type(novelty).heard = heard
            assert not trace.is_attached
            note("hook", hook_seconds(trace, windows._pace()))
            for _ in range(WAKES):
                novelty._due = lambda number: True
                step()  # at its end the next one is found due
                novelty._due = lambda number: False
                before = windows.watched
                seconds = group(step, 2)
                if windows.watched == before + 1:  # it showed nothing new
                    note("later", seconds)
                while trace.is_attached:
                    step()
        assert not trace._watch.recorder.broken, trace.recording.not_seen
    best["first"] = (best["first"] - best["plain"]) * first
    best["later"] = (best["later"] - best["plain"]) * 2
    best["asleep"] = best["listening"] - best["empty"] + max(best["hook"], 0.0)
    return best


def memory() -> tuple[int, int]:
    """Objects after 500 and after 2,000 steps, with a validation each 200."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    counts = []
    with dtypetrace.trace(precision="values"):
        for number in range(1, STEPS + 1):
            net(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if number % VALIDATION == 0:
                net.eval()
                with torch.no_grad():
                    for _ in range(10):
                        net(torch.randn(4, 8))
                net.train()
            if number in (500, STEPS - 3):
                gc.collect()
                counts.append(len(gc.get_objects()))
    return counts[0], counts[1]


def rows(model: nn.Module, step: Callable[[], None], bars: bool) -> list[Row]:
    """The rows of one work."""
    first, later = watched_steps()
    best = measure(model, step)
    asleep = 1 + best["asleep"] / best["plain"]
    watched = (best["first"] + later * best["later"]) / best["plain"]
    validated = watched + best["later"] / best["plain"]  # the first one wakes it
    name = f"{STEPS:,} steps under run, over unwatched"
    return [
        Row(name, asleep + watched / STEPS, ratio, 1.03 if bars else None, 1.01 if bars else None),
        Row(
            f"  with a validation each {VALIDATION}",
            asleep + validated / STEPS,
            ratio,
            1.03 if bars else None,
            1.01 if bars else None,
        ),
        Row("  a step asleep, over unwatched", asleep, ratio, 1.003 if bars else None, 1.003 if bars else None),
        Row(f"  the first {first} together add, in steps", best["first"] / best["plain"], ratio),
        Row(f"  each of {later} later ones adds, in steps", best["later"] / best["plain"], ratio),
    ]


def encoder() -> tuple[nn.Module, Callable[[], None]]:
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

    return model, step


def small_unet() -> tuple[nn.Module, Callable[[], None]]:
    work = cpu_work()
    return work.model, work.step


def main() -> int:
    torch.set_num_threads(1)
    missed = False
    for name, make, bars in (
        ("two encoder layers of width 256: an op takes 60 us", encoder, True),
        ("small UNet: an op takes 6 us", small_unet, True),
    ):
        found = rows(*make(), bars)
        missed |= any(r.verdict == "MISSED" for r in found)
        print(table(f"{name}, on the CPU", found), flush=True)
    early, late = memory()
    print(f"objects after 500 steps {early:,}, after {STEPS:,} {late:,}")
    return int(missed or late > early + 50)


if __name__ == "__main__":
    sys.exit(main())
