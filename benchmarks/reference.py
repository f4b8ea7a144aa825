"""What a reference costs: prints the time of a step with one over a watched one, and the memory of all references.

    python benchmarks/reference.py [--quick]

Exits with 1 if a bar is missed: 4x in time, and in memory twice the model's floating numbers plus the live activations'.
Each figure is a ratio of minima over interleaved rounds in one process; both contestants measure values, as ``run`` does.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from dtypetrace.tracing import Trace

BAR = 4.0
MEMORY_BAR = 2.0
STEPS = 10
"""As many as are followed unless the program says otherwise; the figure is their mean, since not all of them cost the same."""


@dataclass
class Work:
    """One identical training step, and what its model and activations hold in bytes."""

    name: str
    step: Callable[[], Any]
    model: nn.Module


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        x = x + self.mix(h, h, h, need_weights=False)[0]
        return x + self.down(nn.functional.gelu(self.up(x)))


def transformer(
    name: str, width: int, tokens: int, depth: int, dtype: torch.dtype, autocast: torch.dtype | None
) -> Work:
    """A transformer's step with AdamW."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(width) for _ in range(depth)), nn.Linear(width, 16)).to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x = torch.randn(2, tokens, width, dtype=dtype)

    def step() -> None:
        with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
            loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return Work(name, step, model)


def works() -> list[Work]:
    return [
        transformer("small, float32", 64, 32, 3, torch.float32, None),
        transformer("small, bfloat16 weights", 64, 32, 3, torch.bfloat16, None),
        transformer("wide, float32", 384, 128, 3, torch.float32, None),
        transformer("wide, autocast bfloat16", 384, 128, 3, torch.float32, torch.bfloat16),
    ]


class Contestant:
    """Steps of one work under one kind of trace."""

    def __init__(self, work: Work, reference: bool) -> None:
        self.work = work
        self.trace = Trace(numerics=True, reference=reference, reference_steps=1 << 30 if reference else None)
        self.best = float("inf")
        self.bytes = 0

    def run(self) -> None:
        with self.trace:
            begun = time.perf_counter()
            for _ in range(STEPS):
                self.work.step()
            self.best = (time.perf_counter() - begun) / STEPS
            following = self.trace._watch.recorder.reference
            self.bytes = following.most_bytes if following is not None else 0


def peak(work: Work) -> tuple[int, int]:
    """Bytes of all references when a step holds most of them, and of the model with gradients and state, and of saved activations."""
    most = 0
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        work.step()
    weights = 4 * sum(p.nbytes for p in work.model.parameters())  # with their gradients and AdamW's two averages
    with Trace(reference=True, reference_steps=1 << 30) as trace:
        work.step()
        following = trace._watch.recorder.reference
        most = max(most, following.most_bytes) if following is not None else most
    return most, weights + sum(saved.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 2 if parser.parse_args().quick else 4
    print(
        f"# torch {torch.__version__}, {platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"
    )
    print(
        f"{'work':28}{'watched':>10}{'with reference':>16}{'ratio':>8}{'references':>12}{'of model and activations':>26}"
    )
    missed = False
    for work in works():
        work.step()
        best = [float("inf"), float("inf")]
        for _ in range(rounds):
            for i in (0, 1):
                contestant = Contestant(work, bool(i))
                contestant.run()
                best[i] = min(best[i], contestant.best)
        most, held = peak(work)
        ratio, memory = best[1] / best[0], most / held
        missed = missed or ratio > BAR or memory > MEMORY_BAR
        print(
            f"{work.name:28}{best[0] * 1e3:8.1f}ms{best[1] * 1e3:14.1f}ms{ratio:7.2f}x{most / 2**20:10.1f}MB{memory:25.2f}x"
        )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
