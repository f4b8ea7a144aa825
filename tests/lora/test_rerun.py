"""`dtypetrace fix` on adapters that do not learn: the script again with them in float32, and both runs compared."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import warm
from torch import nn

from dtypetrace import saved
from dtypetrace.commands import adapters_again
from dtypetrace.lora.rerun import Adapters
from dtypetrace.lora.verdict import AS_THEY_ARE, IN_FLOAT32, UNTRAINED, Measured

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


# ---------------------------------------------------------------- dtypetrace fix


def test_an_edit_that_lets_adapters_learn_needs_no_other_runs_of_them(tmp_path):
    done = fix(tmp_path, text=SCRIPT)
    printed = done.stderr
    assert done.returncode == 0 and "once with training and once without" not in printed, printed
    assert printed.count("adapters in torch.float16") == 1, "what the re-runs print goes nowhere"
    assert (tmp_path / "program.py").read_text() == SCRIPT
    assert '+    with torch.autocast("cpu", dtype=torch.float16): loss = (model(x.half())' in done.stdout
    assert "proven: DT303 is gone, nothing is refused, and there is no new finding" in printed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "steps", "verdict", "status"),
    [
        ("__import__('prodigyopt').Prodigy(model.parameters(), lr=1.0)", 6, "state underflow", 0),
        pytest.param(
            "torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-3)",
            4,
            "state underflow",
            0,
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            "torch.optim.SGD(model.parameters(), lr=0.0)", 4, "no learning rate", 1, marks=pytest.mark.exhaustive
        ),
    ],
)
def test_adapters_of_peft(tmp_path, optimizer, steps, verdict, status):
    pytest.importorskip("peft"), pytest.importorskip("prodigyopt"), pytest.importorskip("transformers")
    text = (
        f"import sys\nsys.path.insert(0, {str(ROOT / 'tests')!r})\nimport torch\nfrom adapters import llama, llama_loss\nmodel = llama(torch.float16)\n"
        f"optimizer = {optimizer}\nscaler = torch.amp.GradScaler('cpu', enabled=False)\nfor step in range({steps}):\n"
        "    scaler.scale(llama_loss(model) * 30).backward()\n    scaler.step(optimizer)\n    optimizer.zero_grad()\n"
    )
    done = fix(tmp_path, text=text, models=True)
    assert done.returncode == status, done.stderr
    assert (f"4 adapters in float16 do not learn ({verdict})" in done.stderr) is (status == 1)
    assert ("\nproven: " in done.stderr) is (status == 0)
    assert (": not confirmed" in done.stderr) is (status == 1)


def test_a_learning_rate_of_zero_is_not_confirmed(tmp_path):
    done = fix(tmp_path, text=SCRIPT.replace("lr=1e-3", "lr=0.0"))
    assert done.returncode == 1 and "steps of AdamW: not confirmed" in done.stderr, done.stderr
    assert "its learning rate is 0)" in done.stderr and "help: keep" not in done.stderr


def test_a_patch_that_puts_adapters_into_float32_fits_with_their_runs(tmp_path):
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
    assert "help: keep the adapters" not in done.stderr, "the patch does that"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("    x = torch.randn", "    assert model[0].lora_up.weight.dtype is torch.float16, 'float16 expected'\n    x = torch.randn"),
         "the run with the adapters in float32 ended in AssertionError: float16 expected"),
        (("optimizer = torch", "import os\nif os.path.exists('ran'): raise SystemExit(0)\nopen('ran', 'w')\noptimizer = torch"),
         "could not check whether the adapters learn in float32: no optimizer was given an adapter in the run with float32"),
        (("for step in", "import os\nif os.path.exists('ran'): os._exit(3)\nopen('ran', 'w')\nfor step in"),
         "could not check whether the adapters learn in float32: the run ended without an answer (exit status 3)"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_reported_in_one_line(tmp_path, change, said):
    done = fix(tmp_path, text=SCRIPT.replace(*change))
    assert done.returncode == 1 and said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and "the adapters' weights move" not in done.stderr


@pytest.mark.parametrize(
    "text",
    [SCRIPT.replace("torch.float16", "torch.float32").replace(".half()", ""), SCRIPT.replace("range(6)", "range(0)")],
)
def test_where_nothing_is_narrow_or_trained_nothing_is_run_again(tmp_path, text):
    done = fix(tmp_path, text=text)
    assert (
        done.returncode == 0
        and "nothing to fix: no dtype is refused in program.py" in done.stderr
        and "float32, trained" not in done.stderr
    )


# ---------------------------------------------------------------- in the program's process


class Holder(nn.Module):
    """Its matrices lie in a container that has no forward of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(8, 8).half().requires_grad_(False)
        self.lora = nn.ParameterDict(
            {"lora_A": nn.Parameter(torch.randn(8, 2).half()), "lora_B": nn.Parameter(torch.zeros(2, 8).half())}
        )

    def forward(self, x):
        self.computed = x @ self.lora["lora_A"]
        return self.base(x) + self.computed @ self.lora["lora_B"]


def trained(how, *, scaler=None, steps=3, narrows_again=False):
    adapters = Adapters(how, lambda tensor: -1)
    adapters.install()
    try:
        torch.manual_seed(0)
        model = Holder()
        optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=1e-2)
        if narrows_again:
            model.half()
        for _ in range(steps):
            loss = model(torch.ones(4, 8).half()).float().pow(2).mean()
            made = scaler.scale(loss) if scaler else loss
            adapters.backward(made, made.item())
            made.backward()
            if scaler:
                scaler.step(optimizer), scaler.update()
            else:
                optimizer.step()
            optimizer.zero_grad()
        return adapters.read(""), model
    finally:
        adapters.remove()


@pytest.mark.parametrize("narrows_again", [False, True])
def test_float32_adapters_compute_in_the_dtype_that_they_had(narrows_again):
    measured, model = trained(IN_FLOAT32, narrows_again=narrows_again)
    assert model.lora["lora_A"].dtype is torch.float32 and model.computed.dtype is torch.float16
    assert measured.computes == "float16" and measured.run.dtype == "float32" and len(measured.run.losses) == 3
    assert not torch.is_autocast_enabled("cpu")


def test_as_they_are_nothing_is_changed():
    measured, model = trained(AS_THEY_ARE)
    assert model.lora["lora_A"].dtype is torch.float16 and measured.run.dtype == "float16"
    assert measured.run.changes[0] > 0


def test_untrained_each_step_is_taken_back():
    measured, model = trained(UNTRAINED)
    assert model.lora["lora_B"].count_nonzero() == 0
    assert len(set(measured.run.losses)) == 1 and measured.run.changes[0] > 0
    assert len(set(trained(IN_FLOAT32)[0].run.losses)) == 3


def test_a_scaler_is_left_as_it_is_and_what_it_leaves_out_is_counted():
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    measured, _ = trained(IN_FLOAT32, scaler=scaler)
    assert measured.run.skipped == 3 and measured.run.scale == 2.0**37 == scaler.get_scale()
    assert {m.name for m in measured.mechanisms.values()} == {"scaler backing off"}
    plain = trained(IN_FLOAT32)[0].run.losses[0]
    assert measured.run.losses == pytest.approx((plain,) * 3), "the loss is reported without its scale"


def test_everything_is_put_back():
    before = torch.optim.Optimizer.add_param_group, torch.amp.GradScaler.scale, torch.amp.GradScaler.step
    trained(IN_FLOAT32)
    assert before == (torch.optim.Optimizer.add_param_group, torch.amp.GradScaler.scale, torch.amp.GradScaler.step)


def test_what_was_measured_travels_as_json():
    import json

    measured, _ = trained(AS_THEY_ARE)
    assert saved.unpacked(Measured, json.loads(json.dumps(saved.packed(measured)))) == measured
    assert adapters_again.narrow(measured) == ["lora"]


def test_parameters_may_be_given_by_keyword(tmp_path):
    text = SCRIPT.replace(
        "\nfor step in",
        "\noptimizer.add_param_group(param_group={'params': [torch.nn.Parameter(torch.ones(2))]})\nfor step in",
        1,
    )
    done = fix(tmp_path, "--steps", "2", text=text)
    assert "TypeError" not in done.stderr and "\nproven: " in done.stderr, done.stderr
