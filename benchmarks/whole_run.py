"""What `dtypetrace run` costs over a whole training: 2,000 steps with a validation each 200, over the same steps unwatched.

    python benchmarks/whole_run.py [MODEL]

Exits with 1 if a bar is missed. One model is trained in one thread, from the first step to the last, alone and under a trace, in
turns; of each step the fastest turn counts. The start and the report are left out. What is left on while it sleeps is too little to
be told from a machine that is not always equally fast, so it is timed by itself, too, in the training's own steps. Memory is counted
in 2,000 steps.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from statistics import mean, median

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from always_on import ratio
from overhead import Row, cpu_work, table

import dtypetrace
from dtypetrace.capture import threads

STEPS, VALIDATION = 2000, 200
TURNS, BATCHES, CALLS, GROUP = 2, 10, 200, 10
"""How often all steps are run alone and under a trace; batches of a validation; steps in which the hooks are timed, so
many together."""


def race(model: nn.Module, step: Callable[[], None]) -> tuple[list[float], list[float], dtypetrace.Trace]:
    """Seconds of each step alone, and under a trace; and the last trace. A step has the validation that follows it."""
    step()
    best, trace = [[float("inf")] * STEPS, [float("inf")] * STEPS], None
    for turn in range(TURNS):
        for traced in (0, 1) if turn % 2 == 0 else (1, 0):  # a machine that grows slower favours neither
            seconds = best[traced]
            gc.collect()
            with dtypetrace.trace(precision="values") if traced else nullcontext() as opened:
                trace = opened or trace
                for number in range(STEPS):
                    begin = time.thread_time()
                    step()
                    if (number + 1) % VALIDATION == 0:
                        model.eval()
                        with torch.no_grad():
                            for _ in range(BATCHES):
                                step.forward()
                        model.train()
                    seconds[number] = min(seconds[number], time.thread_time() - begin)
    assert trace is not None and not trace._watch.recorder.broken, trace.recording.not_seen
    return *best, trace


def asleep(step: Callable[[], None]) -> float:
    """Seconds that what is left on takes in a step that is not watched: in the steps of the training, where the caches
    of the processor hold other things when it is called."""
    spent: list[float] = []

    def timed(function: Callable[..., None]) -> Callable[..., None]:
        def call(*args: object) -> None:
            begin = time.perf_counter()
            function(*args)
            spent[-1] += time.perf_counter() - begin

        return call

    with dtypetrace.trace(precision="values") as trace:
        trace.windows.novelty._due = lambda number: False
        lookout = None
        while len(spent) < CALLS:
            if lookout is None and (lookout := threads.counter()) is not None:
                for name in ("enter", "_left", "step_ends"):
                    setattr(lookout, name, timed(getattr(lookout, name)))
            spent += [0.0] * (lookout is not None)
            step()
        assert not trace.is_attached
    return median(map(mean, zip(*[iter(spent)] * GROUP)))  # not each step does the same


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


def rows(model: nn.Module, step: Callable[[], None]) -> list[Row]:
    """The rows of one work."""
    plain, traced, trace = race(model, step)
    added = sum(traced) - sum(plain)
    usual = sorted(plain)[STEPS // 2]
    return [
        Row(f"{STEPS:,} steps under run, over unwatched", sum(traced) / sum(plain), ratio, 1.03, 1.01),
        Row("  a step asleep, over unwatched", 1 + asleep(step) / usual, ratio, 1.003, 1.003),
        Row(f"  {trace.windows.watched} watched steps and the rest add, in steps", added / usual, lambda v: f"{v:.1f}"),
        Row("  milliseconds of a step", usual * 1e3, lambda v: f"{v:.1f}"),
    ]


class Step:
    """A training step of a model with AdamW. forward: computes the loss."""

    def __init__(self, model: nn.Module, forward: Callable[[], torch.Tensor]) -> None:
        self.forward, self.optimizer = forward, torch.optim.AdamW(model.parameters(), lr=1e-4)

    def __call__(self) -> None:
        self.forward().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def llama() -> tuple[nn.Module, Step]:
    """A Llama of two layers of width 256 on 256 tokens: an op takes 60 us."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=512, num_key_value_heads=4, **sizes)).train()
    tokens = torch.randint(512, (4, 64))
    return model, Step(model, lambda: model(input_ids=tokens, labels=tokens).loss)


def small_unet() -> tuple[nn.Module, Step]:
    """An op takes 6 us."""
    unet = cpu_work().model
    noisy, when, text = torch.randn(1, 4, 8, 8), torch.tensor([7]), torch.randn(1, 4, 32)
    return unet, Step(unet, lambda: unet(noisy, when, text).sample.square().mean())


MODELS = {"llama": llama, "unet": small_unet}


def main() -> int:
    torch.set_num_threads(1)
    missed = False
    for name in sys.argv[1:] or MODELS:
        found = rows(*MODELS[name]())
        missed |= any(r.verdict == "MISSED" for r in found)
        print(table(f"{name}, on the CPU", found), flush=True)
    early, late = memory()
    print(f"objects after 500 steps {early:,}, after {STEPS:,} {late:,}")
    return int(missed or late > early + 50)


if __name__ == "__main__":
    sys.exit(main())
