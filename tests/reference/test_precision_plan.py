"""Which modules to keep wide: ranked by what their roundings do, searched, and verified by running the step."""

from __future__ import annotations

import copy
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import dtypetrace
from dtypetrace.reference.keeping import keep_wide
from dtypetrace.rules.precision_plan import step_error
from dtypetrace.tracing import Trace

ROOT = Path(__file__).resolve().parents[2]


class Centred(nn.Module):
    """Differences of near numbers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lin = nn.Linear(width, width)

    def forward(self, x):
        h = self.lin(x) + 30.0
        return h - h.mean(-1, keepdim=True)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inp, self.mid = nn.Linear(16, 32), nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32))
        self.centred, self.head = Centred(32), nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.centred(self.inp(x) + self.mid(self.inp(x))))


def training(net, half=torch.bfloat16):
    """One step of a copy of a model, the same at every call."""

    def step():
        torch.manual_seed(1)
        model = copy.deepcopy(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with torch.autocast("cpu", dtype=half):
            loss = model(torch.randn(16, 16)).float().pow(2).mean()
        loss.backward()
        optimizer.step()

    return step


def planned(step, tolerance: float):
    with dtypetrace.trace(precision="reference") as t:
        step()
    return t.precision_plan(tolerance, step=step)


def test_the_module_that_loses_the_digits_is_kept_and_that_is_enough():
    torch.manual_seed(0)
    plan = planned(training(Net()), 0.02)
    assert [c.module for c in plan.keep] == ["centred"] and plan.verified
    assert plan.before.worst > 0.02 > plan.after.worst
    frame = plan.to_dataframe()
    assert list(frame[frame.keep].module) == ["centred"] and len(frame) == len(plan.ranked)
    assert "keep 1 of" in str(plan) and "verified by running the step with it" in str(plan)


def test_without_a_step_to_run_the_plan_is_predicted_and_says_so():
    torch.manual_seed(0)
    with dtypetrace.trace(precision="reference") as t:
        training(Net())()
    plan = t.precision_plan(0.02)
    assert plan.keep[0].module == "centred" and plan.after is None and not plan.verified
    assert "not verified" in str(plan)
    assert t.precision_plan(0.5).keep == () and "no module needs" in str(t.precision_plan(0.5))
    with dtypetrace.trace() as plain:
        pass
    with pytest.raises(ValueError, match="no reference"):
        plain.precision_plan()


def test_shares_of_a_run_without_backward_are_of_all_rounding():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).bfloat16()
    with dtypetrace.trace(precision="reference") as t:
        print(model(torch.randn(4, 8).bfloat16()).float().sum().item())
    assert sum(c.share for c in t.precision_plan(1e-9).ranked) == pytest.approx(1)


class Loud(nn.Module):
    def forward(self, x):
        return (x * 600).square().mean(-1, keepdim=True).sqrt() * x


def test_a_module_whose_range_is_too_small_comes_first():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), Loud(), nn.Linear(16, 16), nn.Tanh()).half()
    x = torch.randn(4, 16).half()

    def step():
        with torch.no_grad():
            copy.deepcopy(model)(x)

    plan = planned(step, 0.05)
    assert plan.ranked[0].module == "2" and plan.ranked[0].infinite
    assert [c.module for c in plan.keep] == ["2"] and plan.before.results == float("inf") and plan.verified


def test_what_is_kept_computes_wide_and_is_taken_out_again():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh())).bfloat16()
    seen = []
    model[1][0].register_forward_hook(lambda module, args, out: seen.append((args[0].dtype, out.dtype)))
    kept = keep_wide(model, ["1", "1.0", "nothing"])
    assert kept.modules == ("1",) and model[1][0].weight.dtype is torch.float32
    assert model(torch.ones(2, 4).bfloat16()).dtype is torch.bfloat16 and seen[-1] == (torch.float32, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model.float()(torch.ones(2, 4))
    assert seen[-1][0] is torch.float32
    kept.remove()
    assert not model[1]._forward_pre_hooks and not model[1]._forward_hooks


def test_a_name_that_no_module_has_is_reported():
    model = nn.Sequential(nn.Linear(2, 2)).bfloat16()
    with Trace(reference=True, keep_wide=("0", "head")) as trace:
        model(torch.ones(1, 2).bfloat16())
    unknown = [line for line in trace.recording.not_seen if "has a module of this name" in line]
    assert len(unknown) == 1 and unknown[0].startswith("--keep-wide head: ")


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_command_finds_and_verifies_the_plan(tmp_path):
    file = tmp_path / "train.py"
    text = Path(__file__).read_text()
    classes = text[text.index("class Centred") : text.index("def training")]
    file.write_text(
        "import torch\nfrom torch import nn\n" + classes + "torch.manual_seed(0)\nnet = Net()\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\nfor _ in range(3):\n"
        "    with torch.autocast('cpu', dtype=torch.bfloat16):\n        loss = net(torch.randn(16, 16)).float().pow(2).mean()\n"
        "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n"
    )
    ended = plan_of(file, "--tolerance", "0.02")
    assert ended.returncode == 0, ended.stderr
    assert "centred" in ended.stdout and "verified by running" in ended.stdout


def plan_of(file: Path, *options: str):
    command = [sys.executable, "-m", "dtypetrace", "plan", *options, str(file)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


# ---------------------------------------------------------------- real models


def needs(*names: str) -> None:
    missing = [n for n in names if importlib.util.find_spec(n) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")


@pytest.mark.slow
def test_the_decoder_of_an_autoencoder_overflows_float16():
    needs("diffusers")
    from diffusers import AutoencoderKL

    torch.manual_seed(0)
    vae = AutoencoderKL(
        in_channels=3, out_channels=3, latent_channels=4, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    ).eval()  # fmt: skip
    with torch.no_grad():  # the scale that activations of the known decoder have in its last blocks
        vae.decoder.up_blocks[1].resnets[0].conv1.weight.mul_(3e5)
    vae = vae.half()
    z = torch.randn(1, 4, 8, 8).half()

    def step():
        with torch.no_grad():
            copy.deepcopy(vae.decoder)(z)

    plan = planned(step, 0.05)
    assert plan.ranked[0].module.startswith("up_blocks.1.resnets.0")
    assert plan.before.worst == float("inf") and plan.verified, str(plan)
    assert len(plan.keep) <= 3


@pytest.mark.slow
def test_a_llama_with_rotary_tables_stays_within_its_tolerance():
    needs("transformers")
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    model, ids = LlamaForCausalLM(config).bfloat16(), torch.randint(0, 64, (2, 12))

    def step():
        again = copy.deepcopy(model)
        again(input_ids=ids, labels=ids).loss.backward()
        torch.optim.SGD(again.parameters(), lr=0.1).step()

    with dtypetrace.trace(precision="reference") as t:
        step()
    before = step_error(t.recording)
    plan = t.precision_plan(before.worst * 0.7, step=step)
    assert plan.verified and plan.after.worst <= 0.7 * before.worst, str(plan)
    assert 0 < len(plan.keep) < len(plan.ranked)


def float32_step():
    net = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 1))

    def step():
        net(torch.randn(4, 16)).square().mean().backward()

    return step


def functional_step():
    weight = torch.randn(16, 16, requires_grad=True)
    return lambda: (torch.randn(4, 16) @ weight).square().mean().backward()


def inference():
    net = nn.Linear(16, 1)
    return lambda: net(torch.randn(4, 16))


@pytest.mark.parametrize(
    "make",
    [float32_step, inference, functional_step],
)
def test_where_nothing_was_narrow_there_is_no_plan(make):
    step = make()
    with dtypetrace.trace(precision="reference") as t:
        step()
    plan = t.precision_plan(step=step)
    assert not plan.judged and not plan.verified and not plan.keep
    assert str(plan).lower().startswith("no plan: ") and "the step computed in float32" in str(plan)
    assert "error" not in str(plan)


def test_the_same_step_under_autocast_is_judged():
    step = float32_step()
    with dtypetrace.trace(precision="reference") as t, torch.autocast("cpu", torch.bfloat16):
        step()
    assert t.precision_plan().judged
