"""Silent faults that are known by what was measured where the numbers are used, beside programs that only look like them."""

import programs
import pytest


def found(folder, text: str):
    program = programs.run(folder, text, numerics=True)
    assert program.error is None, program.error
    return [f for f in program.findings if f.severity != "note"]


def lines(folder, text: str) -> list[str]:
    """The program's lines where the dtypes of the warnings were decided."""
    where = (f.culprit.origin.place.stack[0] for f in found(folder, text) if f.culprit is not None)
    return [(folder / "program.py").read_text().splitlines()[frame.line - 1].strip() for frame in where]


DECAY = """
power = torch.ones((), dtype=torch.bfloat16)
moment, w = torch.zeros(64), torch.randn(64)
for step in range(200):
    moment.mul_(BETA).add_(torch.randn(64), alpha=1 - BETA)
    power *= BETA
    w -= 0.01 * moment / (1 - power).float()
print(w.norm())
"""


@pytest.mark.parametrize(("beta", "harms"), [("0.9", False), ("0.8", False), ("0.995", True)])
def test_a_power_of_a_decay_counts_by_what_one_minus_it_loses(beta, harms, tmp_path):
    assert bool(found(tmp_path, DECAY.replace("BETA", beta))) is harms


SPREAD = """
import torch
times = torch.arange(60_000, dtype=torch.float64) / 200.03 + 1.7e9
class Clock:
    def __init__(self, t):
        self.rate = (len(t) - 1) / (t.max() - t.min())
        self.SPARE = t.diff().std()
clock = Clock((times - times[0]).float())
print(f"{clock.rate:.2f}")
"""


def test_a_result_that_no_line_reads_harms_nobody(tmp_path):
    name = "".join(("jit", "ter"))  # this file is a part of the program, too
    spread = SPREAD.replace("SPARE", name)
    assert found(tmp_path, spread) == []
    read = SPREAD + "print(clock.SPARE.item())"
    assert lines(tmp_path, read.replace("SPARE", name)) == ["clock = Clock((times - times[0]).float())"]
    assert found(tmp_path, spread + "print({k: float(v) for k, v in vars(clock).items()})")


FRAMES = """
from fractions import Fraction
fps = Fraction(30000, 1001)
begins = [float(Fraction(n) / fps) for n in range(FIRST, FIRST + 3000)]
begins = CONSTRUCTOR(begins)
frames = torch.floor(begins.double() * float(fps) + 1e-4).long() - FIRST
inside = (frames >= 0) & (frames < 3000)
labels = torch.full((3000,), -1)
labels[frames[inside]] = torch.arange(3000)[inside]
print((labels < 0).sum())
"""


@pytest.mark.parametrize("constructor", ["torch.tensor", "torch.FloatTensor", "torch.Tensor"])
def test_whole_numbers_of_times_that_float32_moves_beside_them(constructor, tmp_path):
    text = FRAMES.replace("CONSTRUCTOR", constructor)
    assert lines(tmp_path, text.replace("FIRST", "400_000")) == [f"begins = {constructor}(begins)"]
    assert found(tmp_path, text.replace("FIRST", "400")) == []
    wide = text.replace("begins)\nframes", "begins, dtype=torch.float64)\nframes").replace("FIRST", "400_000")
    assert constructor != "torch.tensor" or found(tmp_path, wide) == []


STAMPS = """
import torch
start = START
stamps = [start + 250 * k for k in range(2000)]
times = torch.FloatTensor(stamps)
slots = torch.div(times.double() - start, 60_000, rounding_mode="floor").long().clamp(0, 9)
print(torch.zeros(10).index_add_(0, slots, torch.ones(2000)).max())
"""


def test_a_constructor_that_rounds_numbers_is_the_cause_and_made_wide(tmp_path):
    assert found(tmp_path, STAMPS.replace("START", "0")) == []
    (finding,) = found(tmp_path, STAMPS.replace("START", "1_630_175_280_000"))
    assert [e.after for e in finding.fix.edits] == ["torch.DoubleTensor"], "a cast of what it makes comes too late"


SUMS = """
counts = torch.tensor([[k % 7 + 1, k % 5 + 1] for k in range(80)], dtype=torch.float16)
each = torch.tensor([-19021.370512, -37.845355], dtype=torch.float64)
totals = torch.tensor((counts.double() @ each - 0.01 * torch.rand(80).double()).tolist(), dtype=DTYPE)
left = totals.double() - counts.double() @ each
print(left.std().item())
"""


def test_exact_numbers_in_16_bits_do_not_hide_what_float32_rounds(tmp_path):
    assert lines(tmp_path, SUMS.replace("DTYPE", "torch.float32"))[0].startswith("totals =")
    assert found(tmp_path, SUMS.replace("DTYPE", "torch.float64")) == []


SAMPLING = """
class Scheduler:
    def __init__(self):
        self.levels = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)
    def noisy(self, x, noise, t):
        levels = self.levels.to(DTYPE)
        KEPT
        level = levels[t].view(-1, 1)
        return level.sqrt() * x + (1 - level).sqrt() * noise
    def left(self, x, t):
        level = self.levels[t].float()
        return (x - level.sqrt() * x) / (1 - level).sqrt()
net, scheduler = nn.Linear(8, 8), Scheduler()
optimizer = torch.optim.SGD(net.parameters(), 0.01)
for step in range(40):
    x, t = torch.randn(16, 8).half(), torch.randint(200, 1000, (16,))
    net(scheduler.noisy(x, torch.randn(16, 8).half(), t).float()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
x = torch.randn(16, 8)
with torch.no_grad():
    for t in range(19, -1, -1):
        x = net(x) + scheduler.left(x, t)
print(x.std().item())
"""


def test_what_is_computed_after_a_training_that_was_not_watched_to_its_end(tmp_path):
    spoilt = SAMPLING.replace("KEPT", "self.levels = levels")
    assert lines(tmp_path, spoilt.replace("DTYPE", "x.dtype")) == ["levels = self.levels.to(x.dtype)"]
    assert found(tmp_path, SAMPLING.replace("KEPT", "pass").replace("DTYPE", "x.dtype")) == []
    assert found(tmp_path, spoilt.replace("DTYPE", "torch.float32")) == []


COMPARED = """
import copy
net, w = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)), torch.randn(16, 4)
optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
for step in range(60):
    x = torch.randn(64, 16)
    nn.functional.cross_entropy(net(x), (x @ w).argmax(1)).backward()
    optimizer.step()
    optimizer.zero_grad()
half, gap = copy.deepcopy(net).bfloat16(), 0.0
with torch.no_grad():
    for _ in range(40):
        x = torch.randn(8, 16)
        gap = max(gap, (half(x.bfloat16()).float() - net(x)).abs().max().item())
print(gap)
"""


def test_how_far_a_copy_in_bfloat16_is_from_its_model_may_be_asked(tmp_path):
    assert found(tmp_path, COMPARED) == []
