"""`dtypetrace fix` on scripts whose adapters do not learn."""

from __future__ import annotations

from pathlib import Path

import pytest
import warm

ROOT = Path(__file__).resolve().parents[2]


def fix(folder, *words, text, models=False):
    (folder / "program.py").write_text(text)
    return warm.run(["-m", "dtypetrace", "fix", *words, "program.py"], folder, models=models)


SCRIPT = """
import torch
from torch import nn


class Adapted(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.base = nn.Linear(32, 32, dtype=dtype).requires_grad_(False)
        self.lora_down = nn.Linear(32, 4, bias=False, dtype=dtype)
        self.lora_up = nn.Linear(4, 32, bias=False, dtype=dtype)
        nn.init.zeros_(self.lora_up.weight)

    def forward(self, x):
        return self.base(x) + self.lora_up(self.lora_down(x))


torch.manual_seed(0)
model = nn.Sequential(Adapted(torch.float16), nn.SiLU(), Adapted(torch.float16))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
for step in range(6):
    x = torch.randn(16, 32)
    loss = (model(x.half()).float() - x.sin()).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("adapters in", model[0].lora_up.weight.dtype)
"""


def test_an_edit_that_lets_adapters_learn_is_proven(tmp_path):
    done = fix(tmp_path, text=SCRIPT)
    printed = done.stderr
    assert done.returncode == 0, printed
    assert printed.count("adapters in torch.float16") == 1, "what the re-runs print goes nowhere"
    assert (tmp_path / "program.py").read_text() == SCRIPT
    assert '+    with torch.autocast("cpu", dtype=torch.float16): loss = (model(x.half())' in done.stdout
    assert "proven: DT303 is gone, nothing is refused, and there is no new finding" in printed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "steps"),
    [
        ("__import__('prodigyopt').Prodigy(model.parameters(), lr=1.0)", 6),
        pytest.param(
            "torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-3)",
            4,
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_adapters_of_peft(tmp_path, optimizer, steps):
    pytest.importorskip("peft"), pytest.importorskip("prodigyopt"), pytest.importorskip("transformers")
    text = (
        f"import sys\nsys.path.insert(0, {str(ROOT / 'tests')!r})\nimport torch\nfrom adapters import llama, llama_loss\nmodel = llama(torch.float16)\n"
        f"optimizer = {optimizer}\nscaler = torch.amp.GradScaler('cpu', enabled=False)\nfor step in range({steps}):\n"
        "    scaler.scale(llama_loss(model) * 30).backward()\n    scaler.step(optimizer)\n    optimizer.zero_grad()\n"
    )
    done = fix(tmp_path, text=text, models=True)
    assert done.returncode == 0 and "\nproven: " in done.stderr, done.stderr


def test_a_patch_that_puts_adapters_into_float32_repairs_the_refusal_too(tmp_path):
    """The loss scaler refuses float16: the patch repairs that, and the adapters learn with it."""
    text = SCRIPT.replace("nn.Linear(32, 4, bias=False, dtype=dtype)", "nn.Linear(32, 4, bias=False)").replace(
        "nn.Linear(4, 32, bias=False, dtype=dtype)", "nn.Linear(4, 32, bias=False)"
    )
    text = text.replace(
        "\noptimizer = ",
        "\nfor p in model.parameters():\n    if p.requires_grad:\n        p.data = p.data.to(torch.float16)\noptimizer = ",
    )
    text = text.replace("for step in", "scaler = torch.amp.GradScaler('cpu', init_scale=1024.0)\nfor step in").replace(
        "optimizer.step()", "scaler.step(optimizer)\n    scaler.update()"
    )
    text = text.replace(
        "    loss = (model(x.half())",
        "    with torch.autocast('cpu', dtype=torch.float16):\n        out = model(x.half())\n    loss = (out",
    ).replace("    loss.backward()", "    scaler.scale(loss).backward()")
    done = fix(tmp_path, text=text)
    assert done.returncode == 0, done.stderr
    assert "+        p.data = p.data.to(torch.float32)" in done.stdout
    order = [
        done.stderr.index(part)
        for part in (
            "DT116: ",
            "proven: ",
            "nothing was written. To change",
        )
    ]
    assert order == sorted(order)


@pytest.mark.parametrize(
    "text",
    [SCRIPT.replace("torch.float16", "torch.float32").replace(".half()", ""), SCRIPT.replace("range(6)", "range(0)")],
)
def test_where_nothing_is_narrow_or_trained_there_is_nothing_to_fix(tmp_path, text):
    done = fix(tmp_path, text=text)
    assert done.returncode == 0 and "nothing to fix: no dtype is refused in program.py" in done.stderr
