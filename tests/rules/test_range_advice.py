"""Whether a number fits is decided by what happens to it, not by dtypes alone: each diff is followed and runs clean."""

from __future__ import annotations

import pytest
import torch
from followed import applied
from programs import run

CLIPPED = """
import torch
net = nn.Sequential(nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1)).half()
x, y = torch.randn(32, 48).half() * 3, torch.full((32, 1), 300.0)
for _ in range(4):
    ((net(x).float() - y).square().mean() * 64).backward()
    {clip}
    result = [p.grad.float().norm() for p in net.parameters()]
    net.zero_grad()
"""
HALF = "import torch\nnet = nn.Linear(64, 64).half()\nhead = nn.Linear(64, 4).half()\n"
LARGE = "for _ in range(4):\n    h = net(torch.randn(4, 64).half() * 900)\n"
SMALL = "for _ in range(4):\n    w = torch.relu(net(torch.randn(4, 64).half()) - 100)\n"

PROGRAMS = {
    # large numbers that are small again before they are cast back
    "the norm of gradients": (CLIPPED.format(clip="torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0)"), "get_total_norm"),
    "a norm by hand": (HALF + LARGE + "    n = h.square().sum(-1, keepdim=True).sqrt()\n    result = [head(h / n)]\n", ".to(torch.float16)"),
    "what a large number divides": (
        HALF + LARGE + "    n = h.square().sum(-1, keepdim=True)\n    result = [head(h * (100 / n))]\n", ".to(torch.float16)",
    ),
    "a softmax of large scores": (
        HALF + LARGE + "    result = [head(torch.softmax(h @ h.T, -1) @ h / 1000)]\n", "torch.float32",
    ),
    # tiny numbers that are of ordinary size again before they are cast back
    "an epsilon below a sum": (
        HALF + SMALL + "    w = w / (w.sum(-1, keepdim=True) + 1e-8)\n    result = [head(w)]\n", ").to(torch.float16)",
    ),
    "an epsilon below a root": (
        HALF + SMALL + "    n = w * torch.rsqrt(w.square().mean(-1, keepdim=True) + 1e-9)\n    result = [head(n)]\n", ").to(torch.float16)",
    ),
    "an epsilon in a logarithm": (
        HALF + SMALL + "    p = torch.softmax(w * 0 + torch.arange(64).half() * 40, -1)\n    result = [torch.log(p + 1e-10).sum()]\n",
        "torch.float32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_diff_ends_in_finite_numbers(name, tmp_path):
    text, written = PROGRAMS[name]
    torch.manual_seed(0)
    program = run(tmp_path, text, numerics=True)
    serious = [f for f in program.findings if f.severity != "note"]
    fix = serious[0].fix
    assert fix.edits and written in "".join(edit.after for edit in fix.edits), (serious[0].title, fix)
    torch.manual_seed(0)
    again = run(tmp_path, applied(program.text, fix.edits, program.file), name="again.py", numerics=True)
    assert again.error is None and all(torch.isfinite(r).all() for r in again.names["result"])
    assert not [f for f in again.findings if f.severity != "note"], again.findings


def test_a_clipped_norm_that_the_program_uses_is_told_in_words(tmp_path):
    text = CLIPPED.format(clip="norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0)")
    fix = run(tmp_path, text, numerics=True).findings[0].fix
    assert "is not enough" not in fix.why and not fix.edits


def test_under_autocast_no_operand_is_cast_that_autocast_casts_back(tmp_path):
    text = """
    import torch
    net, head = nn.Linear(64, 64), nn.Linear(64, 4)
    with torch.no_grad():
        net.weight.mul_(300)
    for _ in range(4):
        with torch.autocast("cpu", dtype=torch.float16):
            y = head(torch.softmax(net(torch.randn(8, 64) * 300), -1))
    """
    fix = run(tmp_path, text, numerics=True).findings[0].fix
    assert not any("float32" in edit.after for edit in fix.edits)
    assert "cast the operands" not in fix.why and any("outside autocast" in other for other in fix.alternatives)


def test_nothing_is_cast_back_whose_sums_divide_later(tmp_path):
    """Divided by the largest sum, the smallest numbers are zero in float16, and a column of them has the sum zero."""
    balance = "    p = torch.exp(h @ h.T / 4)\n    p = p / p.sum()\n    first = head(p @ h)\n    p = p / p.sum(0)\n"
    program = run(tmp_path, HALF + LARGE.replace("900", "4") + balance + "    result = [first, p]\n", numerics=True)
    fix = next(f for f in program.findings if f.code == "DT301").fix
    assert not any("float16" in edit.after for edit in fix.edits)
