"""The dtypes that DDP and FSDP were configured with, against the scaler, autocast and the gradients: real wrappers over one gloo rank."""

from __future__ import annotations

import programs
import pytest
import torch
import torch.distributed as dist
from torch import nn

import dtypetrace

SETUP = """
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, fully_shard
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
DDP = nn.parallel.DistributedDataParallel
OPTIMIZER = torch.optim.AdamW
bf16, fp16, f32 = torch.bfloat16, torch.float16, torch.float32
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8))
"""
STEPS = """
optimizer = OPTIMIZER(net.parameters(), 1e-3)
SCALER
for _ in range(3):
    with torch.autocast("cpu", dtype=COMPUTE or bf16, enabled=COMPUTE is not None):
        loss = net(torch.randn(4, 8)).float().pow(2).mean()
    BACKWARD
    optimizer.zero_grad()
"""
PLAIN = "loss.backward(); optimizer.step()"
SCALED = "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()"
SHARD = "for layer in (*net, net):\n    fully_shard(layer, mp_policy=MixedPrecisionPolicy(%s))"
FSDP = "net = FullyShardedDataParallel(net, mixed_precision=MixedPrecision(%s), device_id=torch.device('cpu'))"


@pytest.fixture(autouse=True)
def rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def train(tmp_path, wrap: str, compute: str = "None", scaler: str = "", numerics: bool = True) -> programs.Program:
    text = (
        SETUP
        + wrap
        + STEPS.replace("COMPUTE", compute)
        .replace("SCALER", f"scaler = {scaler}" if scaler else "")
        .replace("BACKWARD", SCALED if scaler else PLAIN)
    )
    program = programs.run(tmp_path, text, numerics=numerics)
    assert program.error is None, program.error
    assert not program.trace._watch.recorder.broken, program.recording.not_seen
    return program


def warned(program) -> list[str]:
    return [f.code for f in program.findings if f.severity != "note"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("numerics", [True, False], ids=["numerics", "dtypes"])
@pytest.mark.parametrize(("wrap", "compute", "scaler"), [
    ("net = DDP(net)", "None", ""),
    ("net = DDP(net, gradient_as_bucket_view=True)", "bf16", ""),
    ("net = DDP(net); net.register_comm_hook(None, fp16_compress_hook)", "fp16", "torch.amp.GradScaler('cpu')"),
    ("net = DDP(net.to(bf16).float())", "bf16", ""),
    (SHARD % "param_dtype=bf16, reduce_dtype=f32", "None", ""),
    (SHARD % "param_dtype=bf16", "bf16", ""),
    (SHARD % "param_dtype=bf16, reduce_dtype=f32, output_dtype=f32", "None", ""),
    (FSDP % "param_dtype=bf16, reduce_dtype=f32", "None", ""),
    (FSDP % "param_dtype=bf16, reduce_dtype=bf16, buffer_dtype=f32", "None", ""),
])  # fmt: skip
def test_healthy_settings_are_silent(wrap, compute, scaler, numerics, tmp_path):
    assert warned(train(tmp_path, wrap, compute, scaler, numerics)) == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("wrap", "compute", "code", "said"), [
    ("net = DDP(net); net.register_comm_hook(None, fp16_compress_hook)", "None", "DT404", "averages gradients in float16"),
    (SHARD % "param_dtype=bf16, reduce_dtype=fp16", "None", "DT404", "averages gradients in float16"),
    (SHARD % "param_dtype=fp16", "None", "DT404", "computes in float16"),
    (FSDP % "param_dtype=bf16, reduce_dtype=fp16", "None", "DT404", "averages gradients in float16"),
    (SHARD % "param_dtype=bf16, reduce_dtype=f32", "fp16", "DT401", "casts the parameters to bfloat16; autocast then computes in float16"),
    (FSDP % "param_dtype=bf16, keep_low_precision_grads=True" + "\nOPTIMIZER = torch.optim.SGD", "None", "DT306", "bfloat16 gradients of float32 weights"),
])  # fmt: skip
def test_what_does_not_go_together(wrap, compute, code, said, tmp_path):
    program = train(tmp_path, wrap, compute, numerics=False)
    assert warned(program) == [code], program.trace
    finding = program.findings[0]
    assert said in f"{finding.title}, {finding.flow[-1].said}"


def test_a_model_that_is_cast_after_ddp_was_built(tmp_path):
    for late, expected in (("net = DDP(net); net.to(bf16)", ["DT405"]), ("net = DDP(net.to(bf16))", [])):
        text = (
            SETUP
            + late
            + "\noptimizer = torch.optim.SGD(net.parameters(), 1.0)\nnet(torch.randn(4, 8).to(bf16)).float().sum().backward()\noptimizer.step()"
        )
        program = programs.run(tmp_path, text)
        assert program.error is None and [f.code for f in program.findings] == expected, program.trace


def test_preflight_asks_ddp_and_fsdp():
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    codes = lambda *args, **options: [f.code for f in dtypetrace.preflight(*args, **options).findings]
    net = fully_shard(
        nn.Linear(4, 4), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float16)
    )
    assert codes(net) == ["DT404"] and codes(net, scaler=torch.amp.GradScaler("cpu")) == []
    assert codes(net, autocast_dtype=torch.float16) == ["DT404", "DT401"]
    ddp = nn.parallel.DistributedDataParallel(nn.Linear(4, 4).to(torch.bfloat16))
    ddp(torch.ones(2, 4, dtype=torch.bfloat16)).float().sum().backward()
    assert codes(ddp) == []
    for p in ddp.parameters():
        p.grad.data = p.grad.data.float()
    trace = dtypetrace.preflight(ddp)
    assert [(f.code, f.severity, f.culprit.name) for f in trace.findings] == [("DT405", "error", "weight")]
    assert codes(ddp.module) == []


def test_an_optimizer_that_cannot_be_copied_makes_no_trial_step():
    class Lone(torch.optim.SGD):
        def __copy__(self):
            raise RuntimeError("there is one of it")

    model = nn.Linear(4, 4).half()
    trace = dtypetrace.preflight(model, optimizer=Lone(model.parameters(), lr=1e-9))
    assert "DT503" not in [f.code for f in trace.findings] and trace.recording.plans[0].trials == ()


def test_quantised_weights_beside_parts_that_were_chosen_to_be_trained():
    """A head and norms of a frozen, quantised base; where nothing was chosen, integers stand still by mistake."""
    base = nn.ModuleList([nn.Linear(8, 8), nn.LayerNorm(8)])
    base[0].weight = nn.Parameter(torch.zeros(8, 8, dtype=torch.int8), requires_grad=False)
    model = nn.Sequential(*base, nn.Linear(8, 2))
    assert [f.code for f in dtypetrace.preflight(model).findings] == ["DT402"]
    base.requires_grad_(False)
    base[1].weight.requires_grad_(True)
    assert dtypetrace.preflight(model).findings == ()
    model.requires_grad_(False)
    assert [f.code for f in dtypetrace.preflight(model).findings] == ["DT402"]


@pytest.mark.parametrize(("name", "found"), [("scales", []), ("bias", ["DT402"])])
def test_quantised_weights_are_trained_by_their_scales(name, found):
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    for layer in model:
        layer.weight = nn.Parameter(torch.zeros(8, 8, dtype=torch.int32), requires_grad=False)
        layer.register_parameter(name, nn.Parameter(torch.ones(8)))
    assert [f.code for f in dtypetrace.preflight(model).findings] == found


def test_a_scaler_that_is_to_be_left_out_is_no_matter_of_where_weights_were_made(tmp_path):
    program = train(tmp_path, "", compute="bf16", scaler="torch.amp.GradScaler('cpu')")
    (finding,) = [f for f in program.findings if f.code == "DT501"]
    assert finding.fix.place == finding.site != finding.culprit.origin.place


def test_float16_autocast_without_a_loss_scaler_is_said_before_the_first_step():
    found = lambda **options: dtypetrace.preflight(nn.Linear(4, 4), **options).findings
    (finding,) = found(autocast_dtype=torch.float16)
    assert (finding.code, finding.severity) == ("DT404", "warning") and "scaler.scale(loss)" in finding.fix.why
    assert found(autocast_dtype=torch.float16, scaler=torch.amp.GradScaler("cpu")) == ()
    assert found(autocast_dtype=torch.bfloat16) == () and found() == ()


WRAPS = {
    "fully_shard": SHARD % "param_dtype=bf16, reduce_dtype=f32, cast_forward_inputs=False",
    "FSDP": FSDP.replace("device_id", "use_orig_params=True, device_id")
    % "param_dtype=bf16, reduce_dtype=f32, cast_forward_inputs=False, cast_root_forward_inputs=False",
}
MEETS = {
    "float32 data": ("x = torch.randn(4, 8)  #!", "net(x)"),
    "float64 data": ("x = torch.randn(4, 8, dtype=torch.float64)  #!", "net(x)"),
    "in the middle": (
        "scale = torch.linspace(0, 1, 8)  #!\nnet[0].register_forward_hook(lambda m, a, out: out * scale)",
        "net(torch.randn(4, 8).bfloat16())",
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("meets", MEETS)
def test_a_gathered_copy_is_not_what_is_trained(meets, wrap, tmp_path):
    """The optimizer trains float32 weights; the copies that compute are bfloat16 on purpose."""
    before, call = MEETS[meets]
    setup = SETUP.replace("nn.LayerNorm(8)", "nn.Tanh()")
    text = f"{setup}{before}\n{WRAPS[wrap]}\noptimizer = OPTIMIZER(net.parameters(), 1e-3)\n{call}"
    program = programs.run(tmp_path, text)
    f = program.only
    assert f.kind == "collision" and program.at(f.culprit.origin.place).endswith("#!")
    advice = (f.fix.why, *f.fix.alternatives)
    assert not any("float32 for the weights" in words or "autocast" in words for words in advice), advice
    assert not any("weight is bfloat16 because" in line for line in str(f).splitlines())
    assert all(
        o.name in ("input", "0.weight", "0.bias", "2.weight", "2.bias") for o in f.operands if o.holder == "parameter"
    )
