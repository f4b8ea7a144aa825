"""The benchmark's own measuring: what can be asserted of it without timing anything."""

import gc
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import dtypetrace

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
overhead = pytest.importorskip("overhead", reason="needs diffusers")


class Step:
    """A small training step in the shape of the benchmark's work."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 2))
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def step(self) -> None:
        x = torch.randn(4, 8)
        self.model(x.to(self.model[0].weight.dtype)).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def test_identical_steps_add_no_record():
    assert overhead.memory_growth(Step, steps=6).records == 0


def test_identical_steps_leave_no_object_behind():
    """Counted in objects, which torch's own caches do not blur; those that another thread makes meanwhile do not come again."""

    def growth() -> int:
        work, counts = Step(), []
        with dtypetrace.trace(work.model):
            for number in range(40):
                work.step()
                if number in (19, 39):
                    gc.collect()
                    counts.append(len(gc.get_objects()))
        return counts[1] - counts[0]

    assert any(growth() <= 4 for _ in range(4))
