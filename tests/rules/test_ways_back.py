"""A wide part of a narrow model: the diff casts what goes in and what comes out, and a table stays as exact as it was made."""

from __future__ import annotations

import pytest
from followed import follow

BASE = """
torch.manual_seed(0)
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(8, 8).to(torch.bfloat16).requires_grad_(False)
        self.down, self.up = nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)
        self.scale = 2.0
    def forward(self, x):
        {forward}
net = nn.Sequential(Layer(), nn.Linear(8, 4).to(torch.bfloat16).requires_grad_(False))
opt = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad])
for _ in range(2):
    net(torch.ones(3, 8, dtype=torch.bfloat16)).float().square().mean().backward()
    opt.step()
    opt.zero_grad()
"""
BESIDE = {
    "a LoRA layer": "return self.base(x) + self.up(self.down(x)) * self.scale",
    "an adapter": "return x + self.up(F.gelu(self.down(x)))",
    "in several statements": "h = self.down(x)\n        h = self.up(h)\n        return self.base(x) + self.scale * h",
    "after a norm": "h = F.layer_norm(x, (8,))\n        return x + self.up(self.down(h))",
    "a gate": "return torch.tanh(self.up(self.down(x))) * self.base(x)",
}


@pytest.mark.parametrize("forward", BESIDE.values(), ids=BESIDE)
def test_what_a_trained_part_adds_is_cast_back_by_the_same_diff(forward, tmp_path):
    found = follow(tmp_path, BASE.format(forward=forward), rounds=1)
    assert found.clean, (found.program.findings, found.text)
    assert not found.narrowed


def test_a_sum_that_is_wide_on_purpose_stays_wide(tmp_path):
    text = BASE.format(forward="return x.float() + self.up(self.down(x))")
    assert follow(tmp_path, text, rounds=1).text.count(".to(") == text.count(".to(") + 1


def test_what_a_trained_head_gives_stays_wide(tmp_path):
    text = BASE.format(forward="return self.up(self.down(self.base(x)))").replace(
        "net = nn.Sequential(Layer(), nn.Linear(8, 4).to(torch.bfloat16).requires_grad_(False))", "net = Layer()"
    )
    found = follow(tmp_path, text, rounds=1)
    assert found.clean and found.text.count(".to(") == text.count(".to(") + 1, found.text


TABLE = """
import numpy as np
net = nn.Linear(8, 8).to(torch.{dtype})
x = torch.ones(3, 8, dtype=torch.{dtype})
class Schedule:
    def __init__(self, n):
        self.sigmas = torch.from_numpy(np.linspace(0.03, 14.6, n) ** 2)
    def scale(self, x, i):
        return {scaled}
schedule = Schedule(5)
x = x * schedule.sigmas[0]
for i in range(4):
    x = x + net(schedule.scale(x, i)) * (schedule.sigmas[i + 1] - schedule.sigmas[i])
"""
SCALED = {
    "a root": "x / (self.sigmas[i:i + 1] ** 2 + 1).sqrt()",
    "a logarithm": "x * torch.log1p(self.sigmas[i:i + 1])",
    "an exponential": "x * torch.exp(-self.sigmas[i:i + 1])",
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("scaled", SCALED.values(), ids=SCALED)
def test_a_table_is_not_rounded_to_16_bits_where_it_is_made(scaled, dtype, tmp_path):
    found = follow(tmp_path, TABLE.format(scaled=scaled, dtype=dtype))
    assert found.clean, (found.program.findings, found.text)
    if dtype == "bfloat16":
        assert ".sigmas = torch.from_numpy(np.linspace(0.03, 14.6, n) ** 2)\n" in found.text


LEARNED = """
torch.manual_seed(0)
frozen = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)).to(torch.bfloat16).requires_grad_(False)
class Learned(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Parameter(torch.randn(2, 8) * 0.1)
    def forward(self, x):
        return {forward}
learned = Learned()
opt = torch.optim.AdamW(learned.parameters())
for _ in range(2):
    frozen(learned(torch.ones(3, 2, 8, dtype=torch.bfloat16))).float().square().mean().backward()
    opt.step()
    opt.zero_grad()
"""
USED = {
    "a prefix": "torch.cat([self.tokens.expand(len(x), -1, -1), x], 1)",
    "an offset": "x + self.tokens",
    "a factor": "(x * self.tokens.exp()).relu()",
}


@pytest.mark.parametrize("forward", USED.values(), ids=USED)
def test_what_is_trained_beside_the_model_that_refuses_it_is_not_narrowed(forward, tmp_path):
    found = follow(tmp_path, LEARNED.format(forward=forward))
    assert found.clean and not found.narrowed, (found.program.findings, found.text)
    assert "torch.randn(2, 8) * 0.1)" in found.text, found.text


TWO_CALLS = """
def waves(t):
    angle = t[:, None].float() * torch.exp(-torch.arange(4, dtype=torch.float32))
    return torch.cat([angle.sin(), angle.cos()], -1)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.time, self.label = nn.Linear(8, 8), nn.Linear(8, 8)
    @property
    def dtype(self):
        return self.time.weight.dtype
    def forward(self, x, time, label):
        {first}
        emb = self.time(emb)
        second = waves(label)
        return x + emb + self.label(second)
net = Net().to(torch.bfloat16)
net(torch.ones(2, 8, dtype=torch.bfloat16), torch.arange(2), torch.arange(2))
"""
AS_THE_FIRST = {
    "a property": ("emb = waves(time).to(dtype=self.dtype)", "waves(label).to(dtype=self.dtype)"),
    "an argument's dtype": ("emb = waves(time)\n        emb = emb.to(x.dtype)", "waves(label).to(x.dtype)"),
    "like an argument": ("emb = waves(time).type_as(x)", "waves(label).type_as(x)"),
    "a literal": ("emb = waves(time).bfloat16()", "waves(label).bfloat16()"),
}


@pytest.mark.parametrize("how", AS_THE_FIRST)
def test_another_call_of_a_function_is_cast_as_the_program_casts_the_first(how, tmp_path):
    first, written = AS_THE_FIRST[how]
    found = follow(tmp_path, TWO_CALLS.format(first=first), rounds=1)
    assert found.clean and f"second = {written}\n" in found.text, found.text


def test_a_cast_that_names_a_variable_of_the_function_is_no_model(tmp_path):
    first = "kind = x.dtype\n        emb = waves(time).to(kind)"
    found = follow(tmp_path, TWO_CALLS.format(first=first), rounds=1)
    assert found.clean and found.text.count("to(kind)") == 1
