"""Where weights do not learn in half, `dtypetrace fix` writes the edit that keeps them in float32, and runs it first."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import warm

from dtypetrace.records import Recording
from dtypetrace.records.ledger import empty
from dtypetrace.repair import mends
from dtypetrace.repair.runs import Outcome
from dtypetrace.repair.search import Repair

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(8, 2).to(torch.bfloat16)
nn.init.constant_(net.weight, 0.5)
weights = net.parameters()
optimizer = torch.optim.SGD(weights, lr=1e-5)
for step in range(4):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = net(torch.ones(4, 8)).float().pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("moved", int((net.weight != 0.5).sum()))
"""


def fix(folder, *words, timeout=300):
    return warm.run(["-m", "dtypetrace", "fix", *words, "program.py"], folder, timeout=timeout)


def plainly(folder):
    done = warm.run(["program.py"], folder)
    assert done.returncode == 0, done.stderr
    return done


def test_fix_writes_the_float32_weights_once_a_run_has_proven_them(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = fix(tmp_path, "--write")
    assert done.returncode == 0, done.stderr
    assert "proven: DT304 is gone, nothing is refused, and there is no new finding; " in done.stderr
    assert "+net = nn.Linear(8, 2).to(torch.float32)" in done.stdout
    assert plainly(tmp_path).stdout == "moved 16\n"


def test_a_refused_program_is_repaired_first_and_then_what_it_does_not_learn(tmp_path):
    refused = PROGRAM.replace("torch.ones(4, 8)", "torch.ones(4, 8, dtype=torch.float64)").replace(
        'with torch.autocast("cpu", dtype=torch.bfloat16)', "if True"
    )
    (tmp_path / "program.py").write_text(refused)
    done = fix(tmp_path)
    assert done.returncode == 0, done.stderr
    changed = [line for line in done.stdout.splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert "torch.ones(4, 8, dtype=torch.bfloat16)" in changed[0], done.stdout
    assert done.stdout.count("--- a/program.py") == 2 and "DT304: 2 bfloat16 weights" in done.stderr, done.stderr


def test_a_refused_program_gets_no_setting_against_damage_that_was_not_found(tmp_path):
    (tmp_path / "program.py").write_text("""\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
keep, weights = torch.rand(32, 4) > 0.9, torch.cat([torch.full((1, 1), 1e-7), torch.ones(31, 1)])
for step in range(2):
    with torch.autocast("cpu", dtype=torch.float16):
        scores = net(torch.randn(32, 8)).masked_fill(keep, -1e9)
    loss = (scores.float().softmax(-1) * weights).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""")
    done = fix(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("--- a/program.py") == 1 and "GradScaler" not in done.stdout, done.stdout
    assert "DT404" in done.stderr and "not patched: the patch is for what is refused" in done.stderr, done.stderr


def test_fix_writes_a_loss_scaler_where_gradients_vanish_in_float16(tmp_path):
    (tmp_path / "program.py").write_text("""\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(2):
    with torch.autocast("cpu", dtype=torch.float16):
        loss = net(torch.randn(256, 8)).float().square().mean() * 1e-4
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""")
    done = fix(tmp_path, "--write")
    assert done.returncode == 0, done.stderr
    assert "is gone, nothing is refused, and there is no new finding" in done.stderr, done.stderr
    written = (tmp_path / "program.py").read_text()
    assert 'scaler = torch.amp.GradScaler("cpu")\noptimizer' in written
    assert "    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()\n" in written
    plainly(tmp_path)


def test_adapters_become_float32_where_they_were_cast_and_the_frozen_base_stays_narrow(tmp_path):
    (tmp_path / "program.py").write_text("""\
import torch
from torch import nn

torch.manual_seed(0)
base = nn.Linear(32, 32).half().requires_grad_(False)
adapter = nn.Sequential(nn.Linear(32, 4, bias=False), nn.Linear(4, 32, bias=False)).half()
optimizer = torch.optim.AdamW(adapter.parameters(), lr=1e-3)
for step in range(5):
    x = torch.randn(16, 32)
    out = base(x.half()).float() + adapter(x.to(adapter[0].weight.dtype)).float()
    loss = (out - x.sin()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(base.weight.dtype, adapter[0].weight.dtype)
""")
    done = fix(tmp_path, "--write")
    assert done.returncode == 0, done.stderr
    assert "proven: DT303 is gone" in done.stderr, done.stderr
    assert "as large as in higher precision" in done.stderr, done.stderr
    added = [line for line in done.stdout.splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert len(added) == 1 and added[0].endswith("bias=False)).to(torch.float32)"), added
    assert plainly(tmp_path).stdout == "torch.float16 torch.float32\n"


def test_what_is_the_authors_choice_is_said_in_words(tmp_path):
    text = (ROOT / "dtypetrace" / "tables" / "code_pages" / "DT402.md").read_text()
    (tmp_path / "program.py").write_text(text.split("```python\n")[1].split("```")[0])
    done = fix(tmp_path)
    assert done.returncode == 1 and not done.stdout, done.stderr
    assert "DT402: the quantised weights of `0` cannot be trained" in done.stderr
    assert "By hand: put LoRA adapters on the quantised modules" in done.stderr
    assert "not patched: you choose which modules get adapters, and how large the adapters are" in done.stderr


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["prodigy", "adamw_underflow", "sgd"])
def test_adapters_of_the_public_cases_learn_once_the_patch_is_written(name, tmp_path):
    pytest.importorskip("peft"), pytest.importorskip("prodigyopt"), pytest.importorskip("diffusers")
    file = ROOT / "tests" / "cases" / f"case_seed_lora_{name}.py"
    (tmp_path / "program.py").write_text(file.read_text())
    done = fix(tmp_path, "--write", timeout=900)
    assert done.returncode == 0, done.stderr
    assert "proven: DT30" in done.stderr and "as large as in higher precision" in done.stderr, done.stderr
    out = tmp_path / "out.json"
    assert not warm.run(["-m", "dtypetrace", "run", "--json", str(out), "program.py"], tmp_path, models=True).returncode
    assert not [f for f in json.loads(out.read_text())["findings"] if f["severity"] in ("error", "warning")]


TRAINED = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)){cast}
optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
scaler = torch.amp.GradScaler("cpu"{scaler})
for step in range(2):
    with torch.autocast("cpu", dtype=torch.{computes}):
        loss = net(torch.randn(64, 8)).float().square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


@pytest.mark.parametrize(
    ("code", "cast", "scaler", "computes", "new"),
    [
        ("DT501", "", "", "bfloat16", ['GradScaler("cpu", enabled=False)']),
        ("DT401", ".bfloat16()", "", "float16", ['GradScaler("cpu", enabled=False)', "dtype=torch.bfloat16"]),
        pytest.param(
            "DT401", ".bfloat16()", ", enabled=False", "float16", ["dtype=torch.bfloat16"], marks=pytest.mark.exhaustive
        ),
    ],
)
def test_fix_changes_settings_that_cannot_work_together(code, cast, scaler, computes, new, tmp_path):
    text = TRAINED.format(cast=cast, scaler=scaler, computes=computes)
    (tmp_path / "program.py").write_text(text)
    done = fix(tmp_path, "--write")
    assert done.returncode == 0, done.stderr
    assert f"proven: {code} is gone, nothing is refused" in done.stderr, done.stderr
    before = text.splitlines()
    changed = [line for line in (tmp_path / "program.py").read_text().splitlines() if line not in before]
    assert len(changed) == len(new) and all(part in line for part, line in zip(new, changed))


@pytest.mark.parametrize(
    ("severity", "steps", "counts"),
    [("note", 4, False), ("warning", 4, True), ("error", 4, True), ("warning", 3, False), ("error", 3, True)],
)
def test_fix_tries_edits_for_what_run_reports_and_run_says_where_steps_are_too_few(
    severity, steps, counts, monkeypatch
):
    found = SimpleNamespace(code="DT304", kind="lost-update", severity=severity, fix=None, culprit="weight")
    monkeypatch.setattr(mends.rules, "find", lambda recording: (found,))
    recording = SimpleNamespace(updates=(SimpleNamespace(steps=steps),))
    assert [t.finding for t in mends.troubles(recording)] == [found] * counts


# ---------------------------------------------------------------- the proof, on made runs


def outcome(recording=None, *, error=None) -> Outcome:
    return Outcome(recording or Recording(), 0, error, empty(), "")


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (outcome(), "takes no optimizer step"),
        (outcome(error={"type": "KeyError", "message": "", "frames": []}), "ends with KeyError"),
    ],
)
def test_what_is_not_shown_is_not_proven(after, why):
    finding = SimpleNamespace(code="DT304", kind="plan", fix=SimpleNamespace(kind="plan"))
    proof = mends._proof(Repair(None), outcome(), after, mends.Trouble(finding, ()))
    assert not proof.proven and why in proof.why


def test_run_tries_what_it_shows_and_writes_nothing(tmp_path):
    text = "import torch\nweights = torch.ones(4, 4).half()\nprint(torch.zeros(2, 4) @ weights)\n"
    (tmp_path / "program.py").write_text(text)
    done = warm.run(["-m", "dtypetrace", "run", "--try", "program.py"], tmp_path)
    assert done.returncode == 1, "the script's own status"
    assert "\nproven: " in done.stderr, done.stderr
    assert (tmp_path / "program.py").read_text() == text
