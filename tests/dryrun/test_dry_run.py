"""A dry run needs no device, no weights and no values, and finds what a real run would be refused."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import pytest
import safetensors.torch
import torch

from dtypetrace.commands import dry_run
from dtypetrace.dryrun.hub import NotPretendedError

sys.path.insert(0, str(Path(__file__).parents[1] / "cases"))
import harness
import warm

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


class Ended:
    """How a dry run ended: its exit status, its findings, and what it printed."""

    def __init__(self, folder: Path, text: str, *options: str) -> None:
        script, out = folder / "train.py", folder / "out.json"
        script.write_text(textwrap.dedent(text))
        self.lines = script.read_text().splitlines()
        words = ["-m", "dtypetrace", "run", "--dry-run", "--json", str(out), *options, str(script)]
        ended = warm.run(words, folder, COLUMNS="200")
        self.status, self.out, self.err = ended.returncode, ended.stdout, ended.stderr
        report = json.loads(out.read_text()) if out.exists() else {}
        self.findings = report.get("findings", [])
        self.not_seen = report.get("not_seen", [])

    def born(self, number: int = 0) -> str:
        """The text of the line that the culprit of a finding was born on."""
        return self.lines[self.findings[number]["culprit"]["origin"]["line"] - 1].strip()


@pytest.fixture
def dry(tmp_path):
    return lambda text, *options: Ended(tmp_path, text, *options)


CASES = [p for p in harness.find() if harness.load(p).expect == "collision"]
QUICK = "case_load_assign_half case_attention_alibi case_seed_svd_half"


@pytest.mark.parametrize(
    "path",
    [p if p.stem in QUICK.split() and p.parent == harness.HERE else pytest.param(p, marks=pytest.mark.exhaustive)
     for p in CASES],
    ids=lambda p: p.relative_to(harness.HERE).with_suffix("").as_posix(),
)  # fmt: skip
def test_the_first_finding_is_that_of_a_real_run(path):
    if missing := harness.load(path).missing:
        pytest.skip(f"needs {', '.join(missing)}")
    fault = harness.in_mode(path, "dry")
    assert not fault, fault


PROPOSED = [p for p in CASES if p.parent == harness.HERE]


@pytest.mark.parametrize(
    "path",
    [p if p.stem in QUICK.split()[:2] else pytest.param(p, marks=pytest.mark.exhaustive) for p in PROPOSED],
    ids=lambda p: p.stem,
)
def test_what_if_shows_each_proposed_change_clean(path):
    if missing := harness.load(path).missing:
        pytest.skip(f"needs {', '.join(missing)}")
    fault = harness.in_mode(path, "checked")
    assert not fault, fault


def test_devices_are_pretended(dry):
    ended = dry("""
        import torch
        from torch import nn
        assert torch.cuda.is_available() and torch.cuda.device_count() == 1
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = nn.Linear(4096, 4096).to(device)
        x, y = torch.randn(2, 4096).cuda(), torch.zeros(3, device="cuda:0")
        print(model.weight.device, x.is_cuda, y.device.type, model(x).device, torch.tensor([1.0], device=device).device)
        print(type(model.weight).__name__, model.weight.cpu().device, y.tolist(), (x @ model.weight).cpu().is_cuda)
        """)
    assert ended.status == 0, ended.err
    assert ended.out.splitlines() == ["cuda:0 True cuda cuda:0 cuda:0", "Parameter cpu [0.0, 0.0, 0.0] False"]


def test_all_refusals_come_in_one_pass_and_are_predicted(dry):
    ended = dry("""
        import torch
        from torch import nn
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4))).half()
                self.head = nn.Linear(8, 8)
            def forward(self, x, noise):
                return self.layers(noise) + self.head(self.layers(x))
        x = torch.randn(2, 8, device="cuda", dtype=torch.float16)
        Model().cuda()(x, torch.randn(2, 8, device="cuda"))
        """)
    assert ended.status == 0, ended.err
    assert [(f["predicted"], f["exception"]) for f in ended.findings] == [(True, None)] * 2
    assert {ended.born(0), ended.born(1)} == {
        'Model().cuda()(x, torch.randn(2, 8, device="cuda"))',
        "self.head = nn.Linear(8, 8)",
    }
    assert any("on cpu" in note for note in ended.not_seen)


def test_autocast_on_cuda_has_the_lists_of_cuda(dry):
    ended = dry("""
        import torch
        from torch import nn
        from torch.nn import functional as F
        model = nn.Linear(8, 8).cuda()
        x = torch.randn(2, 8, device="cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            y = model(x)
            made = [y, F.layer_norm(y, (8,)), y.softmax(-1), y.sum(), torch.cat([y, x]), F.conv1d(x[None], x[None, :, :1])]
        print(*(str(t.dtype).removeprefix("torch.") for t in made))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            print(model(x).dtype, nn.Linear(8, 8)(torch.randn(2, 8)).dtype)
        made[0].float().sum().backward()
        print(model.weight.grad.dtype, model.weight.grad.device)
        """)
    assert ended.status == 0, ended.err
    assert ended.out.splitlines() == [
        "float16 float32 float32 float32 float32 float16",
        "torch.float32 torch.bfloat16",
        "torch.float32 cuda:0",
    ]


@pytest.mark.parametrize(("device", "half"), [("cuda", "float16"), ("cuda", "bfloat16"), ("cpu", "bfloat16")])
def test_what_autocast_made_is_its_doing_and_a_call_without_it_is_to_run_under_it(device, half, dry):
    ended = dry(f"""
        import torch
        from torch import nn
        first, model = nn.Linear(8, 8).to("{device}"), nn.Linear(8, 8).to("{device}")
        x = torch.randn(2, 8, device="{device}")
        with torch.autocast("{device}", dtype=torch.{half}):
            y = first(x)
            model(y)
        model(y)
        """)
    assert ended.status == 0 and ended.born() == "y = first(x)", ended.err
    assert f"this call ran under autocast before in the region of train.py:6 ({device}:{half})" in " ".join(
        ended.err.split()
    ), ended.err


def test_what_values_decide_is_answered_so_that_the_program_goes_on(dry):
    ended = dry("""
        import torch
        model = torch.nn.Linear(8, 8).cuda()
        out = model(torch.randn(2, 8, device="cuda"))
        if torch.isnan(out).any() or not torch.isfinite(out).all():
            raise ValueError("not finite")
        if not (out.mean() < 3):
            raise ValueError("too large")
        rounds = 0
        while out.sum() > 0:
            rounds += 1
        for row in out:
            if row.max() < 1e-6:
                continue
            rounds += 1
        assert (out < 1).all()
        print(rounds, out[out > 0].shape, out.argmax(-1).tolist(), out.float().cpu().detach().numpy().shape)
        """)
    assert ended.status == 0, ended.err
    assert ended.out.split("\n")[0] == "3 torch.Size([16]) [1, 1] (2, 8)"
    assert any("train.py:7" in note for note in ended.not_seen)


def test_of_a_large_checkpoint_only_dtypes_and_shapes_are_read(dry, tmp_path):
    """Its values are never read: those of one file are no numbers, and a part of the other is missing."""
    large = torch.full((2048, 2300), torch.nan)
    torch.save({"weight": large.to(torch.bfloat16), "scale": large}, tmp_path / "old.pt")
    safetensors.torch.save_file({"weight": large.half(), "scale": large}, tmp_path / "new.safetensors")
    with (tmp_path / "new.safetensors").open("r+b") as file:
        file.truncate(1 << 24 | 1)
    ended = dry("""
        import torch
        from safetensors.torch import load_file
        for state in (torch.load("old.pt"), load_file("new.safetensors")):
            print({name: (str(t.dtype), tuple(t.shape), t.isnan().any().item()) for name, t in sorted(state.items())})
        model = torch.nn.Linear(2300, 2048, bias=False).cuda()
        model.weight.data = load_file("new.safetensors", device="cuda")["weight"]
        model(torch.randn(2, 2300, device="cuda"))
        """)
    assert ended.status == 0, ended.err
    shape = (2048, 2300)
    assert ended.out.splitlines()[:2] == [
        str({"scale": ("torch.float32", shape, False), "weight": ("torch.bfloat16", shape, False)}),
        str({"scale": ("torch.float32", shape, False), "weight": ("torch.float16", shape, False)}),
    ]
    assert len(ended.findings) == 1 and ended.findings[0]["predicted"]
    assert ended.err.splitlines()[-1].startswith("After the change, check again: dtypetrace run --dry-run ")


def test_a_checkpoint_in_memory_keeps_dtypes_and_shapes(dry):
    """What was read was born where it was read, also where the run itself wrote it."""
    ended = dry("""
        import io, torch
        file = io.BytesIO()
        model = torch.nn.Linear(2048, 2048).cuda()
        torch.save({"model": {n: p.bfloat16() for n, p in model.state_dict().items()}, "step": 3}, file)
        assert file.tell() < 10_000
        file.seek(0)
        state = torch.load(file)
        print(state["step"], state["model"]["bias"].dtype, tuple(state["model"]["weight"].shape), state["model"]["bias"].device)
        model.load_state_dict(state["model"], assign=True)
        model(torch.randn(2, 2048, device="cuda"))
        """)
    assert ended.out.splitlines() == ["3 torch.bfloat16 (2048, 2048) cpu"], ended.err
    weight, _ = (o for o in ended.findings[0]["operands"] if o["dtype"] == "bfloat16")
    assert (weight["origin"]["kind"], weight["origin"]["line"]) == (
        "load",
        1 + ended.lines.index("state = torch.load(file)"),
    )


def test_a_program_that_needs_values_ends_in_one_line(dry):
    ended = dry("""
        import torch
        model = torch.nn.Linear(2048, 2048).cuda()
        torch.save(model.state_dict(), open("copy.pt", "wb"))
        """)
    assert ended.status == 2 and "Traceback" not in ended.err and "Warning" not in ended.err
    last = ended.err.strip().splitlines()[-1]
    assert last.startswith("dtypetrace: error: the dry run stopped at train.py:4 after 0 optimizer steps")
    assert "the program needs values" in last and "--steps" in last


def test_an_operator_without_a_meta_kernel_ends_in_one_line(dry):
    ended = dry("""
        import torch
        @torch.library.custom_op("my::thing", mutates_args=())
        def thing(x: torch.Tensor) -> torch.Tensor:
            return x.clone()
        x = torch.nn.Linear(8, 8).cuda()(torch.randn(2, 8, device="cuda"))
        thing(x)
        """)
    assert ended.status == 2
    last = ended.err.strip().splitlines()[-1]
    assert "Traceback" not in ended.err
    assert last.startswith("dtypetrace: error: the dry run stopped at train.py:7 after 0 optimizer steps")
    assert "register_fake" in last


def test_a_hub_that_cannot_be_reached_ends_in_one_line(dry):
    pytest.importorskip("transformers")
    ended = dry("""
        import torch
        from transformers import AutoModel
        AutoModel.from_pretrained("nobody/no-such-model")
        """)
    assert ended.status == 2
    assert "Traceback" not in ended.err
    assert "stopped at train.py:4" in ended.err and "local folder" in ended.err


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (NotImplementedError(), "the program raised"),
        (NotPretendedError("quantized weights"), "a dry run cannot load this"),
        (
            NotImplementedError("aten::angle: attempted to run this operator with Meta tensors"),
            "aten::angle has no rule",
        ),
        (RuntimeError("There was no fake impl registered for lib.op"), "an operator has no rule"),
    ],
)
def test_only_torch_says_that_an_operator_has_no_kernel(error, why):
    """A method that the program left abstract is the program's own error."""
    assert dry_run._why(error)[0].startswith(why)
