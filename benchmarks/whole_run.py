"""What `dtypetrace run` costs over a whole training: 2,000 steps with a validation each 200, over the same steps unwatched.

    python benchmarks/whole_run.py [MODEL]

Exits with 1 if a bar is missed. One model is trained in one thread, from the first step to the last, twice alone and once under a
trace, in three processes that take turns every ten steps. The start and the report are left out. What is left on while it sleeps is
too little to be told from processes that are not equally fast, so it is timed by itself, too, in the training's own steps. Memory is
counted in 2,000 steps.
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from multiprocessing.connection import Connection
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
ROUNDS, BATCHES, CALLS, GROUP = 3, 10, 200, 10
"""How often all steps are run alone and under a trace; batches of a validation; steps in which the hooks are timed; steps that
are run, or timed, together."""


def race(model: nn.Module, step: Callable[[], None]) -> tuple[list[list[float]], int]:
    """Seconds that all steps took, in each round: alone, alone in another process, and under a trace; and how many of them
    were watched.

    The processes are forked from this one, so that their memory is laid out alike, and take turns every few steps: what
    else slows the machine, or speeds it up, meets all. Two that do the same still differ: by what the first two do,
    what the third adds can be told.
    """
    step()
    forks = multiprocessing.get_context("fork")
    rounds, watched = [], 0
    for _ in range(ROUNDS):
        runs = []
        for traced in (False, False, True):
            ours, theirs = forks.Pipe()
            process = forks.Process(target=train, args=(model, step, traced, theirs))
            process.start()
            runs.append((process, ours))
        spent = [0.0] * len(runs)
        for turn in range(STEPS // GROUP):
            for number in range(turn, turn + len(runs)):
                pipe = runs[number % len(runs)][1]
                pipe.send(None)
                spent[number % len(runs)] += pipe.recv()
        *_, watched = [pipe.recv() for _, pipe in runs]
        for process, _ in runs:
            process.join()
        rounds.append(spent)
    return rounds, watched


def train(model: nn.Module, step: Callable[[], None], traced: bool, turns: Connection) -> None:
    """Runs some steps each time that it is its turn, and says how many seconds of the processor they took; at the end, how
    many of all were watched. A step has the validation that follows it."""
    with dtypetrace.trace(precision="values") if traced else nullcontext() as trace:
        for first in range(0, STEPS, GROUP):
            turns.recv()
            begin = time.process_time()
            for number in range(first, first + GROUP):
                step()
                if (number + 1) % VALIDATION == 0:
                    model.eval()
                    with torch.no_grad():
                        for _ in range(BATCHES):
                            step.forward()
                    model.train()
            turns.send(time.process_time() - begin)
    if trace is not None:
        assert not trace._watch.recorder.broken, trace.recording.not_seen
    turns.send(trace.windows.watched if trace is not None else 0)


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


def rows(model: nn.Module, step: Callable[[], None]) -> tuple[str, list[Row]]:
    """How much the rounds of one work differ, and its rows."""
    rounds, watched = race(model, step)
    first, second, traced = map(sum, zip(*rounds))
    plain = (first + second) / 2
    usual = plain / (ROUNDS * STEPS)
    spread = lambda ratios: f"{min(ratios):.3f}x to {max(ratios):.3f}x"
    single = spread([2 * c / (a + b) for a, b, c in rounds])
    note = f"in single rounds {single}; one unwatched process over the other {spread([b / a for a, b, _ in rounds])}"
    return note, [
        Row(f"{STEPS:,} steps under run, over unwatched", traced / plain, ratio, 1.03, 1.01),
        Row("  a step asleep, over unwatched", 1 + asleep(step) / usual, ratio, 1.003, 1.003),
        Row(
            f"  {watched} watched steps and the rest add, in steps",
            (traced - plain) / usual / ROUNDS,
            lambda v: f"{v:.1f}",
        ),
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
        note, found = rows(*MODELS[name]())
        missed |= any(r.verdict == "MISSED" for r in found)
        print(table(f"{name}, on the CPU", found), note, sep="\n", flush=True)
    early, late = memory()
    print(f"objects after 500 steps {early:,}, after {STEPS:,} {late:,}")
    return int(missed or late > early + 50)


if __name__ == "__main__":
    sys.exit(main())
