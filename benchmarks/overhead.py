"""What watching costs: prints the cost table, and exits with 1 if a bar is missed.

    python benchmarks/overhead.py [--quick]

Every figure is a ratio of minima over interleaved rounds: in each round every contestant does the
same work, in the same process, so that a busy machine slows all of them alike. A step is timed in parts
(the blocks of a model; forward, backward, optimizer), and the minima of the parts are added: what disturbs
a part in one round hardly does in all of them. The first step of a round has rows of its own.
"""

from __future__ import annotations

import argparse
import gc
import platform
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._debug_mode import DebugMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

sys.path.insert(0, str(Path(__file__).parents[1]))
import dtypetrace
from dtypetrace.capture import declared, updates

KILOBYTE = 1024


# ---------------------------------------------------------------- the work


@dataclass
class Work:
    """One identical step, to be run again and again."""

    name: str
    model: torch.nn.Module
    parts: Sequence[Callable[[], Any]]
    """What a step does, one after the other; each is timed for itself."""
    ops: int = 0
    """Operators that one step dispatches."""

    def step(self) -> None:
        for part in self.parts:
            part()

    def __post_init__(self) -> None:
        self.step()  # makes gradients and optimizer state
        with _Counting() as counting:
            self.step()
        self.ops = counting.count


def sd_unet(device: str = "meta", dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    """Stable Diffusion 1.5's UNet, 860M parameters, with random weights."""
    from diffusers import UNet2DConditionModel

    with torch.device(device):
        return UNet2DConditionModel(sample_size=64, cross_attention_dim=768).to(dtype)


def meta_work() -> Work:
    """Forward and backward of SD1.5's UNet on the meta device: no arithmetic, so what is left is cost per op. Each of
    its blocks is called with what the whole model calls it with."""
    unet = sd_unet()
    kinds = {"ResnetBlock2D", "Transformer2DModel", "Downsample2D", "Upsample2D", "TimestepEmbedding"}
    whole = {"conv_in", "conv_norm_out", "conv_act", "conv_out"}
    blocks = [m for name, m in unet.named_modules() if type(m).__name__ in kinds or name in whole]
    calls: list[Callable[[], Any]] = []

    def noted(block: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        args, kwargs = tree_map_only(torch.Tensor, _leaf, (args, kwargs))
        made: list[torch.Tensor] = []

        def forward() -> None:
            made[:] = [t for t in tree_leaves(block(*args, **kwargs)) if isinstance(t, torch.Tensor)]

        def backward() -> None:
            torch.autograd.backward(made, [torch.empty_like(t) for t in made])
            made.clear()

        calls.extend((forward, backward))

    hooks = [block.register_forward_pre_hook(noted, with_kwargs=True) for block in blocks]
    try:
        unet(
            torch.empty(2, 4, 64, 64, device="meta"),
            torch.empty(2, dtype=torch.int64, device="meta"),
            torch.empty(2, 77, 768, device="meta"),
        )
    finally:
        for hook in hooks:
            hook.remove()
    return Work("SD1.5 UNet, meta, forward and backward of its blocks", unet, [*calls, unet.zero_grad])


def _leaf(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().requires_grad_(tensor.requires_grad)


def cpu_work() -> Work:
    """A small UNet on the CPU with real numbers: forward, backward and an AdamW step."""
    from diffusers import UNet2DConditionModel

    unet = UNet2DConditionModel(
        sample_size=8, block_out_channels=(32, 64), layers_per_block=1, cross_attention_dim=32, norm_num_groups=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(unet.parameters())
    noisy, when, text = torch.randn(1, 4, 8, 8), torch.tensor([7]), torch.randn(1, 4, 32)
    losses: list[torch.Tensor] = []

    def forward() -> None:
        losses.append(unet(noisy, when, text).sample.square().mean())

    def backward() -> None:
        losses.pop().backward()

    parts = [forward, backward, optimizer.step, optimizer.zero_grad]
    return Work("small UNet, CPU, forward, backward and AdamW", unet, parts)


def gpu_work() -> Work:
    """SD1.5's UNet in float16 on the GPU: forward, backward and an SGD step that moves nothing."""
    unet = sd_unet("cuda", torch.float16)
    optimizer = torch.optim.SGD(unet.parameters(), lr=0.0)
    noisy = torch.randn(2, 4, 64, 64, device="cuda", dtype=torch.float16)
    when = torch.tensor([7, 8], device="cuda")
    text = torch.randn(2, 77, 768, device="cuda", dtype=torch.float16)

    def step() -> None:
        unet(noisy, when, text).sample.float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return Work("SD1.5 UNet, float16 on the GPU", unet, [step])


# ---------------------------------------------------------------- the contestants


class _Counting(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


class _EmptyFunctionMode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class _EmptyDispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class _LeanDispatchMode(TorchDispatchMode):
    """As empty, and without the two frames an op that torch adds to keep dynamo out."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def _pair(dispatch: type[TorchDispatchMode]) -> AbstractContextManager:
    stack = ExitStack()
    stack.enter_context(dispatch())
    stack.enter_context(_EmptyFunctionMode())
    return stack


Contestant = Callable[[Work], AbstractContextManager]
CONTESTANTS: dict[str, Contestant] = {
    "nothing": lambda work: nullcontext(),
    "empty pair": lambda work: _pair(_EmptyDispatchMode),
    "leanest pair": lambda work: _pair(_LeanDispatchMode),
    "dtypetrace": lambda work: dtypetrace.trace(work.model, precision="off", every=1),
    "dtypetrace, numerics": lambda work: dtypetrace.trace(work.model, precision="values", every=1),
}
SLOW_CONTESTANTS: dict[str, Contestant] = {
    "DebugMode, modules": lambda work: DebugMode(record_nn_module=True),
    "DebugMode, modules and stacks": lambda work: DebugMode(record_nn_module=True, record_stack_trace=True),
    "DebugMode, as much": lambda work: DebugMode(
        record_torchfunction=True, record_nn_module=True, record_stack_trace=True
    ),
}


STEPS = 4
"""Steps of a contestant in a round, the first one included."""
NUMERICS_STEPS = 20
"""Steps over which the cost of numerics is averaged: values need not be looked at in all of them."""


@dataclass
class Times:
    """The least seconds that a contestant took: for entering and leaving its block, and for each part of each step."""

    entering: float = float("inf")
    leaving: float = float("inf")
    parts: dict[tuple[int, int], float] = field(default_factory=dict)
    """By the step's number and the part's."""

    def note(self, step: int, part: int, spent: float) -> None:
        self.parts[step, part] = min(self.parts.get((step, part), float("inf")), spent)

    @property
    def first(self) -> float:
        """The first step."""
        return sum(spent for (step, _), spent in self.parts.items() if step == 0)

    @property
    def step(self) -> float:
        """A later step; infinite where there was none."""
        least: dict[int, float] = {}
        for (step, part), spent in self.parts.items():
            if step:
                least[part] = min(least.get(part, float("inf")), spent)
        return sum(least.values()) if least else float("inf")

    @property
    def cold(self) -> float:
        """A block opened and closed round one step."""
        return self.entering + self.first + self.leaving

    @property
    def average(self) -> float:
        """A step of a block opened and closed round all steps."""
        return (self.entering + sum(self.parts.values()) + self.leaving) / (1 + max(step for step, _ in self.parts))


def race(
    work: Work, rounds: int, slow_rounds: int, clock: Callable[[], float], numerics_steps: int = STEPS
) -> dict[str, Times]:
    """Interleaves the contestants and keeps the minima. ``clock`` is in seconds. The slow contestants run two steps."""
    times = {name: Times() for name in (*CONTESTANTS, *SLOW_CONTESTANTS)}
    for turn in range(rounds):
        for name, contestant in {**CONTESTANTS, **(SLOW_CONTESTANTS if turn < slow_rounds else {})}.items():
            steps = 2 if name in SLOW_CONTESTANTS else numerics_steps if name.endswith("numerics") else STEPS
            gc.collect()
            kept = times[name]
            start = clock()
            with contestant(work):
                kept.entering = min(kept.entering, clock() - start)
                for step in range(steps):
                    for number, part in enumerate(work.parts):  # one line calls all: a call from another is a new place
                        start = clock()
                        part()
                        kept.note(step, number, clock() - start)
                start = clock()
            kept.leaving = min(kept.leaving, clock() - start)
    return times


def receipt_share(work: Work, clock: Callable[[], float]) -> float:
    """What the receipt takes of a watched run of as many steps as a round has: it reads each model when that first runs
    and when an optimizer first steps, what trainers and optimizers were told, and the dtypes of an optimizer's state;
    nothing of it runs with an op."""
    spent = 0.0

    def timed(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            nonlocal spent
            start = clock()
            found = original(*args)
            found = tuple(found) if found is not None else None
            spent += clock() - start
            return found

        return call

    with ExitStack() as stack:
        for module, name in ((declared, "take"), (declared, "of_step"), (updates, "state_of")):
            stack.enter_context(mock.patch.object(module, name, timed(getattr(module, name))))
        with dtypetrace.trace(work.model, every=1):
            start = clock()
            for _ in range(STEPS):
                work.step()
            whole = clock() - start
    return spent / whole


# ---------------------------------------------------------------- memory


_SWEEP = 10
"""Steps within which the table of live tensors is swept at least once: it grows until then."""


@dataclass(frozen=True)
class Growth:
    """What ``steps`` more identical steps added to a trace after its first."""

    steps: int
    size: int
    """Bytes of Python memory after garbage collection: the least after the last ten steps less the least of the ten
    from the second on."""
    records: int
    """Ops, events and places."""


def memory_growth(make: Callable[[], Work], steps: int = 30) -> Growth:
    """Watches one step of new work, then ``steps`` more, and compares.

    tracemalloc begins before the work is made: it does not see freed what is older, and would count as growth whatever
    takes the place of that.
    """

    def records() -> int:
        seen = trace.recording
        return len(seen.ops) + len(seen.events) + len(seen.places)

    def size() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        work, sizes = make(), []
        with dtypetrace.trace(work.model, precision="off", every=1) as trace:
            for step in range(1 + steps):  # one line calls them all: a call from another line is another place
                work.step()
                if step == 0:
                    before = records()
                else:
                    sizes.append(size())
            return Growth(steps, min(sizes[-_SWEEP:]) - min(sizes[:_SWEEP]), records() - before)
    finally:
        tracemalloc.stop()


def peak_memory(work: Work, contestant: Contestant) -> int:
    """Bytes of device memory at the peak of a step."""
    with contestant(work):
        work.step()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        work.step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()


def synchronisation(work: Work) -> str:
    """Which call of a watched step waits for the device; empty if none does. The step alone must not either."""
    for contestant in (CONTESTANTS["nothing"], CONTESTANTS["dtypetrace"]):
        with contestant(work):
            work.step()
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error")
            try:
                work.step()
            except RuntimeError as error:
                return str(error).splitlines()[0]
            finally:
                torch.cuda.set_sync_debug_mode("default")
    return ""


# ---------------------------------------------------------------- the table


@dataclass(frozen=True)
class Row:
    """One line of the table. ``bar`` and ``aim`` are upper limits of ``value``; None for a row that only informs.

    ``before``: the figure of version 0.1, for which the bars were set.
    """

    what: str
    value: float
    show: Callable[[float], str]
    bar: float | None = None
    aim: float | None = None
    before: str = ""

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return ""
        if self.value <= self.aim:
            return "aim met"
        return "bar met" if self.value <= self.bar else "MISSED"


def times_over(value: float) -> str:
    return f"{value:.2f}x"


def fraction(value: float) -> str:
    return f"1/{1 / value:.1f}"


def percent(value: float) -> str:
    return f"{value:.2%}"


def microseconds(value: float) -> str:
    return f"{value * 1e6:.1f} us"


def seconds(value: float) -> str:
    return f"{value:.2f} s"


def kilobytes(value: float) -> str:
    return f"{value / KILOBYTE:.1f} KB"


def count(value: float) -> str:
    return f"{value:.0f}"


def cost_rows(work: Work, times: dict[str, Times], bars: bool = True) -> list[Row]:
    """The rows of one race. On the meta device the bars hold; with real numbers the work's own noise is in the way."""
    plain = times["nothing"].step
    added = {name: (t.step - plain) / work.ops for name, t in times.items() if t.step != float("inf")}
    rows = [
        Row(
            "added per op, over the empty pair",
            added["dtypetrace"] / added["empty pair"],
            times_over,
            *((2.0, 1.65, "1.8x to 2.1x") if bars else ()),
        )
    ]
    stacks = added.get("DebugMode, modules and stacks")
    if stacks:
        rows.append(
            Row(
                "added per op, against DebugMode with modules and stacks",
                added["dtypetrace"] / stacks,
                fraction,
                *((1 / 15, 1 / 25) if bars else ()),
            )
        )
    as_much = added.get("DebugMode, as much")
    if as_much:
        rows.append(
            Row(
                "added per op, against DebugMode recording as much",
                added["dtypetrace"] / as_much,
                fraction,
                *((1 / 15, 1 / 25) if bars else ()),
            )
        )
    rows.append(
        Row("added per op, over the leanest empty pair", added["dtypetrace"] / added["leanest pair"], times_over)
    )
    rows += [
        Row(f"  added per op by {name}", value, microseconds) for name, value in added.items() if name != "nothing"
    ]
    traced = times["dtypetrace"]
    rows.append(Row("a step, watched over unwatched", traced.step / plain, times_over))
    rows.append(Row("the first step, watched over unwatched", traced.first / plain, times_over))
    if not bars:  # on the meta device there are no values to look at
        numerics = times["dtypetrace, numerics"]
        rows.append(
            Row(
                "added per op with numerics, over the empty pair",
                added["dtypetrace, numerics"] / added["empty pair"],
                times_over,
            )
        )
        rows.append(Row("a step, watched with numerics over unwatched", numerics.step / plain, times_over))
    rows.append(Row("leaving the block", traced.leaving, seconds))
    return rows


def short_rows(times: dict[str, Times], numerics: bool) -> list[Row]:
    """What a short trace costs: round one step, and with numerics round twenty."""
    plain = times["nothing"].step
    pair = times["empty pair"].step - plain
    cold = (times["dtypetrace"].cold - plain) / pair
    what = "cold: a trace opened and closed round one step, over the empty pair"
    rows = [Row(what, cold, times_over, 3.0, 2.2, "4.6x")]
    if numerics:
        over = (times["dtypetrace, numerics"].average - plain) / pair
        what = f"with numerics, averaged over {NUMERICS_STEPS} steps, over the empty pair"
        rows.append(Row(what, over, times_over, 3.0, 2.2, "5.6x"))
    return rows


def growth_rows(growth: Growth) -> list[Row]:
    return [
        Row(
            f"Python memory: growth over {growth.steps} steps from the second on",
            growth.size,
            kilobytes,
            64 * KILOBYTE,
            0,
        ),
        Row(f"new records in {growth.steps} steps after the first", growth.records, count, 0, 0),
    ]


def gpu_rows(work: Work, rounds: int) -> list[Row]:
    def wall() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    times = race(work, rounds, 1, wall)
    peaks = {name: peak_memory(work, CONTESTANTS[name]) for name in ("nothing", "dtypetrace")}
    waits = synchronisation(work)
    if waits:
        print(f"synchronises: {waits}", file=sys.stderr)
    return [
        *cost_rows(work, times, bars=False),
        Row(
            "device memory at peak, watched over unwatched",
            peaks["dtypetrace"] / peaks["nothing"],
            lambda v: f"{v:.4f}x",
            1.01,
            1.0,
        ),
        Row("calls that wait for the device", float(bool(waits)), count, 0, 0),
    ]


def table(title: str, rows: list[Row]) -> str:
    """The rows as text."""
    compared = any(r.before for r in rows)
    cells = [("", *(["before"] if compared else []), "bar", "aim", "measured", "")]
    for r in rows:
        limits = ("", "") if r.bar is None else (r.show(r.bar), r.show(r.aim))
        cells.append((r.what, *([r.before] if compared else []), *limits, r.show(r.value), r.verdict))
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = [title]
    for what, *figures, verdict in cells:
        lines.append(
            f"  {what:<{widths[0]}}" + "".join(f"  {c:>{w}}" for c, w in zip(figures, widths[1:])) + f"  {verdict}"
        )
    return "\n".join(line.rstrip() for line in lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, DebugMode once")
    quick = parser.parse_args(argv).quick
    rounds, slow_rounds = (5, 1) if quick else (15, 2)

    torch.set_num_threads(1)  # process time then is the step's own time, whatever else runs on the machine
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}", end="")
    print(f", {torch.cuda.get_device_name()}\n" if torch.cuda.is_available() else ", no GPU\n", flush=True)

    missed = False

    def show(title: str, rows: list[Row]) -> None:
        nonlocal missed
        missed |= any(r.verdict == "MISSED" for r in rows)
        print(table(title, rows), flush=True)

    work = meta_work()
    times = race(work, rounds, slow_rounds, time.process_time)
    show(f"{work.name}: {work.ops} ops", cost_rows(work, times) + short_rows(times, numerics=False))
    work = cpu_work()
    times = race(work, rounds, slow_rounds, time.process_time, NUMERICS_STEPS)
    show(
        f"{work.name}: {work.ops} ops",
        cost_rows(work, times, bars=False)
        + short_rows(times, numerics=True)
        + [Row("the receipt, share of the watched steps", receipt_share(work, time.process_time), percent, 0.01, 0.005)]
        + growth_rows(memory_growth(cpu_work)),
    )
    if torch.cuda.is_available():
        work = gpu_work()
        show(f"{work.name}: {work.ops} ops", gpu_rows(work, rounds))
    if missed:
        print("a bar is missed")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
