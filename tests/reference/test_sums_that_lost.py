"""What long sums in float32 have lost of each of their terms is known to what is computed from them."""

from __future__ import annotations

import programs
import pytest

from dtypetrace.reference import spot_checks

DAMAGED = {
    "a variance of running sums": "first, second = torch.zeros(8), torch.zeros(8)  # born\nfor _ in range(600):\n"
    "    row = 100 + 0.02 * torch.randn(8)\n    first.add_(row)\n    second.add_(row * row)\n"
    "spread = (second / 600 - (first / 600) ** 2).mean().item()",
    "running sums in the rows of one tensor": "sums = torch.zeros(2, 8)  # born\nfor _ in range(500):\n"
    "    row = 250 + 0.1 * torch.randn(8)\n    sums[0] += row\n    sums[1] += row**2\n"
    "spread = (sums[1] / 500 - (sums[0] / 500) ** 2).mean().item()",
    "a clock": "clock, stamps = torch.full((1,), 40000.0), []  # born\nfor step in range(600):\n    clock += 1 / 240\n"
    "    if step in (299, 599):\n        stamps.append(clock.clone())\nspan = (stamps[1] - stamps[0]).item()",
    "the losses of two epochs, each sum a new tensor": "means = []\nfor epoch in range(2):\n    total = torch.zeros(())  # born\n"
    "    for _ in range(400):\n        total = total + (5000.0 + 0.01 * torch.randn(()) - 0.001 * epoch)\n"
    "    means.append(total / 400)\ngain = (means[0] - means[1]).item()",
    "a mean less what it should be": "total = torch.zeros(16)  # born\nfor row in 288.0001 + 0.001 * torch.randn(900, 16):\n"
    "    total += row\nanomaly = (total / 900 - 288.0).mean().item()",
    "the root of a tree of sums": "tree = torch.zeros(63)  # born\nfor value in (4e4, 7e4, 0.05):\n    for leaf in range(31, 63):\n"
    "        delta, node = value * (1 + torch.rand(())) - tree[leaf], leaf\n        while True:\n            tree[node] += delta\n"
    "            if not node:\n                break\n            node = (node - 1) // 2\nmass = (tree[0] * torch.rand(8)).sum().item()",
    "the mean of a few of many entries": "totals = torch.zeros(40)  # born\nfor n in range(900):\n"
    "    totals[n % 2] += 288.0001 + 0.001 * torch.randn(())\n    totals[n % 40] += torch.zeros(())\n"
    "anomaly = (totals[:2] / 450 - 288.0).mean().item()",
}  # fmt: skip
HEALTHY = {
    "a variance of small numbers": "first, second = torch.zeros(8), torch.zeros(8)\nfor _ in range(600):\n"
    "    row = 1 + 2 * torch.randn(8)\n    first.add_(row)\n    second.add_(row * row)\n"
    "spread = (second / 600 - (first / 600) ** 2).mean().item()",
    "a clock from zero": "clock, stamps = torch.zeros(1), []\nfor step in range(600):\n    clock += 1 / 240\n"
    "    if step in (299, 599):\n        stamps.append(clock.clone())\nspan = (stamps[1] - stamps[0]).item()",
    "the losses of two epochs": "means = []\nfor epoch in range(2):\n    total = torch.zeros(())\n    for _ in range(400):\n"
    "        total = total + (2 + 0.3 * torch.rand(()) - 0.1 * epoch)\n    means.append(total / 400)\n"
    "gain = (means[0] - means[1]).item()",
    "a sum in float64": "clock, stamps = torch.full((1,), 40000.0, dtype=torch.float64), []\nfor step in range(600):\n    clock += 1 / 240\n"
    "    if step in (299, 599):\n        stamps.append(clock.clone())\nspan = (stamps[1] - stamps[0]).item()",
    "entries of a table": "table = torch.full((64,), 40000.0)\nfor n in range(640):\n    table[n % 64] += 1 / 240\n"
    "span = (table - 40000.0).mean().item()",
    "a sum that something else has set since": "total = torch.full((4,), 40000.0)\nfor _ in range(400):\n    total += 1 / 240\n"
    "total.copy_(torch.tensor([40000.0, 40001.0, 40002.0, 40003.0]))\nspan = (total - 40000.0).mean().item()",
}  # fmt: skip


def run(text, tmp_path):
    program = programs.run(tmp_path, "torch.manual_seed(0)\n" + text, numerics=True)
    assert program.error is None and not program.recording.not_seen, (program.error, program.recording.not_seen)
    return program, [f for f in program.findings if f.severity != "note"]


def names_the_sum(how, tmp_path):
    program, found = run(DAMAGED[how], tmp_path)
    assert [f.kind for f in found] == ["precision-loss"], program.trace
    assert program.at(found[0].culprit.origin.place).endswith("# born"), program.trace


@pytest.mark.parametrize("how", DAMAGED)
def test_the_sum_is_named_where_a_difference_needs_what_it_lost(how, tmp_path):
    names_the_sum(how, tmp_path)


@pytest.mark.parametrize("how", [how for how in DAMAGED if "mean" in how or "sums" in how])
def test_so_it_is_where_the_checks_of_float32_ended_before(how, tmp_path, monkeypatch):
    monkeypatch.setattr(spot_checks, "PASSED_IN_FLOAT32", 200)
    names_the_sum(how, tmp_path)


@pytest.mark.parametrize("how", HEALTHY)
def test_what_the_sum_lost_does_not_show(how, tmp_path):
    program, found = run(HEALTHY[how], tmp_path)
    assert found == [], program.trace
