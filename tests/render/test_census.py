"""Operators by dtype: what is counted, what autocast is said to have done, and what could not run in a lower dtype."""

from __future__ import annotations

import json

import programs
import warm

from dtypetrace.records import Recording
from dtypetrace.render import census

TEXT = """
net = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 8))
head = nn.Linear(8, 2)

class Rank(nn.Module):
    def forward(self, x):
        try:
            return torch.linalg.svdvals(x)
        except RuntimeError:
            return torch.linalg.svdvals(x.float())

rank = Rank()
for _ in range(3):
    with torch.autocast("cpu", torch.bfloat16):
        h = net(torch.ones(4, 8))
        joined = torch.cat([h, torch.ones(4, 1)], 1)
    rank(h)
    head(h.float()).sum().backward()
"""


def rows(tmp_path, text: str = TEXT):
    program = programs.run(tmp_path, text)
    assert program.error is None
    return {(row["op"], row["phase"]): row for row in program.trace.operators()}, program


def test_a_call_is_counted_once_however_many_operators_it_takes(tmp_path):
    found, _ = rows(tmp_path)
    linear = found["linear", "forward"]
    assert (linear["bf16"], linear["f32"], linear["f16"], linear["other"]) == (6, 3, 0, 0)
    assert linear["flops"] == 3 * 2 * 4 * (8 * 16 + 16 * 8 + 8 * 2)
    assert found["layer_norm", "forward"]["bf16"] == 3
    assert found["mm", "backward"]["flops"] > 0


def test_arithmetic_that_makes_floating_numbers_of_integers_is_counted(tmp_path):
    text = "pixels = torch.ones(2, 3, dtype=torch.uint8)\nwhite = pixels / 255\nrow = pixels + 1\nmade = torch.ones(3)"
    found, _ = rows(tmp_path, text)
    counted = {op: row["f32"] for (op, _), row in found.items()}
    assert counted == {"div": 1}, "and no integers, and no factory"


def test_what_autocast_did_is_reported_as_it_was_seen(tmp_path):
    found, _ = rows(tmp_path)
    assert found["linear", "forward"]["autocast"] == "down"
    assert found["layer_norm", "forward"]["autocast"] == ""
    wide, _ = rows(
        tmp_path,
        "with torch.autocast('cpu', torch.bfloat16):\n    F.mse_loss(torch.ones(2).bfloat16(), torch.ones(2).bfloat16())",
    )
    assert wide["mse_loss", "forward"]["autocast"] == "up"
    mixed, _ = rows(
        tmp_path, "with torch.autocast('cpu', torch.bfloat16):\n    F.mse_loss(torch.ones(2).bfloat16(), torch.ones(2))"
    )
    assert mixed["mse_loss", "forward"]["autocast"] == "promote"


def test_a_matmul_outside_autocast_stands_out_only_where_most_are_inside(tmp_path):
    found, _ = rows(tmp_path)
    assert (found["linear", "forward"]["outside"], found["linear", "forward"]["modules"]) == (3, ["head"])
    plain, _ = rows(tmp_path, "nn.Linear(4, 4)(torch.ones(1, 4))")
    assert plain["linear", "forward"]["outside"] == 0


def test_what_has_no_kernel_names_the_modules_that_need_a_wider_dtype(tmp_path):
    found, _ = rows(tmp_path)
    svd = found["linalg_svdvals", "forward"]
    assert (svd["no_kernel"], svd["modules"], svd["f32"]) == ("bfloat16", ["rank"], 3)


def test_the_costliest_comes_first_and_nothing_gives_nothing(tmp_path):
    _, program = rows(tmp_path)
    work = [row["flops"] for row in program.trace.operators()]
    assert work == sorted(work, reverse=True) and work[0] > 0
    assert census.operators(Recording()) == ()
    assert "nothing" in census.text(Recording())


def test_the_report_and_the_command_line_show_the_same_rows(tmp_path):
    file = tmp_path / "train.py"
    file.write_text("import torch\nfrom torch import nn\n" + TEXT)
    words = ["-m", "dtypetrace", "run", "--json", "out.json", "--save", "t.trace", "train.py"]
    ended = warm.run(words, tmp_path)
    assert ended.returncode == 0, ended.stderr
    reported = json.loads((tmp_path / "out.json").read_text())["operators"]
    assert [row for row in reported if row["op"] == "linear"][0]["bf16"] == 6
    shown = warm.run(["-m", "dtypetrace", "show", "--operators", "t.trace"], tmp_path)
    table = shown.stdout[shown.stdout.index("operator ") :]
    assert "outside autocast: linear ran in float32 3 times in head" in table
    assert "no kernel: linalg_svdvals is not implemented for bfloat16; rank needs a wider dtype" in table
