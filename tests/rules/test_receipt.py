"""The receipt: what was asked for in dtypes beside what ran, for every part of a run that has one."""

from __future__ import annotations

import io
import textwrap
import types

import programs
import pytest
import torch
from torch import nn

import dtypetrace


def rows(trace, part: str) -> list[tuple[str, str, str]]:
    return [(r.what, r.dtype, r.asked) for r in trace.receipt().rows if r.part == part]


def net(*layers: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(layers or (nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4))))


def step(model, optimizer, autocast: torch.dtype | None = None) -> None:
    with torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None):
        loss = nn.functional.cross_entropy(model(torch.randn(4, 8)).float(), torch.randint(4, (4,)))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def test_a_healthy_mixed_precision_run_has_every_part_and_no_difference():
    model = net()
    model[1].requires_grad_(False)
    optimizer = torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)
    with dtypetrace.trace(model) as t:
        step(model, optimizer, torch.bfloat16)
    assert rows(t, "parameters") == [("all", "float32", "")]
    assert rows(t, "frozen parameters") == [("all", "float32", "")]
    assert rows(t, "compute")[0] == ("matmuls", "bfloat16", "bfloat16")
    assert ("loss", "float32", "") in rows(t, "compute")
    assert rows(t, "gradients") == [("all", "float32", "float32")]
    assert [r[:2] for r in rows(t, "optimizer state")] == [
        (f"AdamW {name}", "float32") for name in ("step", "exp_avg", "exp_avg_sq")
    ]
    assert rows(t, "loss scaler") == [("", "off", "")]
    assert not any(r.differs for r in t.receipt().rows) and not t.findings


def test_a_model_that_a_function_made_and_dropped_is_in_it():
    def main() -> None:
        model = net()
        step(model, torch.optim.SGD(model.parameters(), 0.1))

    with dtypetrace.trace() as t:
        main()
    assert rows(t, "parameters") == [("all", "float32", "")]


def test_what_a_class_declares_stands_beside_what_is_held():
    class Model(nn.Module):
        _keep_in_fp32_modules = ["norm"]

        def __init__(self):
            super().__init__()
            self.proj, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

        def forward(self, x):
            return self.norm(self.proj(x))

    model = Model().half()
    with dtypetrace.trace(model) as t:
        model(torch.randn(2, 8, dtype=torch.float16))
    assert set(rows(t, "parameters")) == {("proj", "float16", ""), ("norm", "float16", "float32")}
    (norm,) = [r for r in t.receipt().rows if r.differs]
    assert norm.by == "Model._keep_in_fp32_modules"


@pytest.mark.parametrize("write", ["torch", "safetensors"])
def test_a_checkpoint_has_the_dtypes_of_the_file_beside_those_that_train(tmp_path, write):
    from safetensors.torch import save_file

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with dtypetrace.trace(model) as t:
        step(model, optimizer)
        narrow = {name: tensor.half() for name, tensor in model.state_dict().items()}
        if write == "torch":
            torch.save({"model": narrow}, io.BytesIO())
        else:
            save_file(narrow, tmp_path / "model.safetensors")
    found = {(r.dtype, r.asked) for r in t.receipt().rows if r.part == "checkpoint written"}
    assert found == {("float16", "float32")} and not t.findings
    assert not hasattr(torch.serialization._save, "__wrapped__")  # nothing is left behind


def test_a_checkpoint_of_plain_sgd_is_one_to_go_on_from():
    """Its optimizer keeps nothing."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with dtypetrace.trace(model) as t:
        step(model, optimizer)
        narrow = {name: tensor.half() for name, tensor in model.state_dict().items()}
        torch.save({"model": narrow, "optimizer": optimizer.state_dict()}, io.BytesIO())
    assert [f.code for f in t.findings] == ["DT408"]


def test_state_that_a_resume_widened_is_asked_for_by_the_file():
    model = net(nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    with dtypetrace.trace(model) as t:
        step(model, optimizer)
        state = optimizer.state_dict()
        for entry in state["state"].values():
            entry["momentum_buffer"] = entry["momentum_buffer"].bfloat16()
        optimizer.load_state_dict(state)
        step(model, optimizer)
    (row,) = [r for r in t.receipt().rows if r.differs]
    assert (row.what, row.dtype, row.asked) == ("SGD momentum_buffer", "float32", "bfloat16")
    assert row.cause.place.user_frame.line == row.cause.place.line


def test_the_views_agree(tmp_path):
    model = net()
    with dtypetrace.trace(model) as t:
        step(model, torch.optim.AdamW(model.parameters()))
    frame = t.receipt().to_dataframe()
    assert list(frame["part"]) == [r.part for r in t.receipt().rows]
    t.save(tmp_path / "run.trace")
    again = dtypetrace.load(tmp_path / "run.trace")
    assert repr(again.receipt()) == repr(t.receipt()) and again.receipt().rows == t.receipt().rows
    t.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert '<section id="receipt"' in page and "AdamW exp_avg_sq" in page
    assert "AdamW exp_avg_sq" in t.receipt()._repr_html_()


MASTERS = {
    "none": """
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
def update():
    optimizer.step()
    optimizer.zero_grad()
""",
    "in the optimizer's hands": """
masters = [p.detach().float() for p in model.parameters()]
optimizer = torch.optim.SGD(masters, 0.1)
def update():
    for master, p in zip(masters, model.parameters()):
        master.grad, p.grad = p.grad.float(), None
    optimizer.step()
    with torch.no_grad():
        for master, p in zip(masters, model.parameters()):
            p.copy_(master)
""",
    "in the optimizer's state": """
class Wide(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            if "copy" not in self.state[p]:
                self.state[p]["copy"] = p.detach().float()
            self.state[p]["copy"].add_(p.grad.float(), alpha=-0.1)
            p.copy_(self.state[p]["copy"])
optimizer = Wide(model.parameters(), {})
def update():
    optimizer.step()
    optimizer.zero_grad()
""",
    "made anew in each step": """
class Narrow(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            wide = p.float()
            wide.add_(p.grad.float(), alpha=-0.1)
            p.copy_(wide)
optimizer = Narrow(model.parameters(), {})
def update():
    optimizer.step()
    optimizer.zero_grad()
""",
}


@pytest.mark.parametrize("where", MASTERS)
def test_master_weights_are_a_row_and_their_lack_is_in_the_reports_line(tmp_path, where):
    text = f"""
model = nn.Linear(32, 4).to(torch.bfloat16)
{textwrap.dedent(MASTERS[where])}
for _ in range(3):
    model(torch.randn(8, 32).to(torch.bfloat16)).float().square().mean().backward()
    update()
"""
    trace = programs.run(tmp_path, text).trace
    kept = where.startswith("in the")
    assert rows(trace, "master weights") == [(where if kept else "no wide copy", "float32" if kept else "none", "")]
    assert ("weights: bfloat16, no master copy" in repr(trace)) != kept


def test_preflight_is_the_receipt_before_the_first_step():
    class Model(nn.Sequential):
        _keep_in_fp32_modules = ["1"]

    model = Model(nn.Linear(8, 8), nn.LayerNorm(8))
    healthy = dtypetrace.preflight(model, optimizer=torch.optim.AdamW(model.parameters()))
    assert rows(healthy, "parameters") == [("0", "float32", ""), ("1", "float32", "float32")]
    assert not healthy.findings and not any(r.differs for r in healthy.receipt().rows)
    cast = dtypetrace.preflight(model.half())
    assert [f.code for f in cast.findings] == ["DT407"]
    assert [r.asked for r in cast.receipt().rows if r.differs] == ["float32"]


def test_preflight_shows_what_a_resume_left_and_what_is_asked_of_the_steps():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step(model, optimizer)
    resumed = torch.optim.SGD(model.to(torch.bfloat16).parameters(), lr=0.1, momentum=0.9)
    resumed.load_state_dict(optimizer.state_dict())
    found = dtypetrace.preflight(model, optimizer=resumed, autocast_dtype=torch.bfloat16)
    assert rows(found, "optimizer state") == [("SGD momentum_buffer", "bfloat16", "")]
    assert rows(found, "compute") == [("matmuls", "", "bfloat16")] and "float32" not in repr(found.receipt())
    assert not any(r.differs for r in found.receipt().rows)


@pytest.mark.filterwarnings("ignore")
def test_fsdp_sharded_before_the_trace_is_watched_to_its_end(tmp_path):
    """A DTensor names its mesh among its parts; what is no tensor has no origin."""
    text = """
import dtypetrace
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = dist.init_device_mesh("cpu", (1,))
model = nn.Linear(8, 8)
fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
optimizer = torch.optim.AdamW(model.parameters())
with dtypetrace.trace(model) as t:
    for _ in range(2):
        model(torch.randn(4, 8)).float().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
"""
    scope = {"torch": torch, "nn": nn}
    exec(compile(text, "fsdp.py", "exec"), scope)
    trace = scope["t"]
    assert not [reason for reason in trace.recording.not_seen if "internal error" in reason]
    assert [r[:2] for r in rows(trace, "optimizer state")] == [
        (f"AdamW {n}", "float32") for n in ("step", "exp_avg", "exp_avg_sq")
    ]
    assert rows(trace, "compute")[0] == ("matmuls", "bfloat16", "bfloat16")
    assert rows(trace, "reduction") == []  # one rank sends nothing, whatever the policy says


@pytest.mark.parametrize("hook", ["", "model.register_comm_hook(None, default_hooks.fp16_compress_hook)"])
def test_ddps_buckets_are_what_is_reduced(tmp_path, hook):
    text = f"""
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
{hook}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
import time
time.sleep(0.1)  # torch waits for ever if the model is freed before gloo's thread has freed the hook's Python function
dist.destroy_process_group()
"""
    trace = programs.run(tmp_path, text).trace
    kept = "float16" if hook else ""
    sent = ("weights sent", "float32", "")  # when DDP is built
    assert rows(trace, "reduction") == [sent, ("gradients", kept or "float32", kept)]


def test_what_deepspeeds_json_says_stands_beside_what_ran(tmp_path, monkeypatch):
    """The engine is a stand-in with the names of DeepSpeed's: its step calls the optimizer's."""
    engine = types.ModuleType("deepspeed.engine")
    exec(
        "class Engine:\n"
        "    communication_data_type = dtype\n"
        "    bfloat16_enabled = lambda self: True\n"
        "    fp16_enabled = lambda self: False\n"
        "    def step(self, optimizer):\n"
        "        optimizer.step()\n",
        {"dtype": torch.float32, "__name__": "deepspeed.engine"},
        vars(engine),
    )
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with dtypetrace.trace(model) as t:
        model(torch.randn(4, 8)).sum().backward()
        engine.Engine().step(optimizer)
    assert rows(t, "compute")[0] == ("matmuls", "float32", "bfloat16")
    assert [d.dtype for d in t.recording.declared if d.part == "reduction"] == ["float32"]
    assert [f.code for f in t.findings if f.severity != "note"] == ["DT410"]


def test_an_optimizers_own_arguments_are_what_its_state_was_asked_in(tmp_path):
    text = """
class AnyPrecision(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"momentum_dtype": torch.float32, "variance_dtype": torch.bfloat16})
    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            self.state[p]["exp_avg"] = p.grad.bfloat16()
            self.state[p]["exp_avg_sq"] = p.grad.square().bfloat16()
            p.sub_(p.grad, alpha=0.1)
model = nn.Linear(4, 4)
optimizer = AnyPrecision(model.parameters())
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
"""
    state = rows(programs.run(tmp_path, text).trace, "optimizer state")
    assert state == [
        ("AnyPrecision exp_avg", "bfloat16", "float32"),
        ("AnyPrecision exp_avg_sq", "bfloat16", "bfloat16"),
    ]


def test_quantised_weights_have_a_row(tmp_path):
    pytest.importorskip("bitsandbytes")
    text = """
import bitsandbytes
model = nn.Sequential(bitsandbytes.nn.Linear4bit(64, 64, compute_dtype=torch.float32), nn.Linear(64, 2)).to("cpu")
with torch.no_grad():
    model(torch.randn(2, 64))
"""
    program = programs.run(tmp_path, text)
    assert program.error is None
    assert [r[:2] for r in rows(program.trace, "quantised weights")] == [("0", "uint8")]


def test_a_read_of_safetensors_is_seen_and_nothing_is_left_behind(tmp_path):
    from safetensors import safe_open
    from safetensors.torch import load, load_file, save_file

    file, model = tmp_path / "weights.safetensors", net()
    save_file({name: p.half() for name, p in model.state_dict().items()}, file)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with dtypetrace.trace(model) as t:
        step(model, optimizer)
        load_file(file)
        with safe_open(file, framework="pt") as opened:
            opened.get_tensor("0.weight")
        load(file.read_bytes())
    found = rows(t, "checkpoint read")
    assert found.count(("weights.safetensors", "float16", "float32")) == 2
    assert [r for r in found if r[0] != "weights.safetensors"]
    assert "from_file" not in vars(torch.UntypedStorage)


def test_a_file_that_is_read_to_evaluate_stands_beside_what_it_became(tmp_path):
    text = f"""
from safetensors.torch import load_file, save_file
names = [f"{{n}}.{{leaf}}" for n in range(2) for leaf in ("weight", "bias")]
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).to(torch.bfloat16)
file = {str(tmp_path / "weights.safetensors")!r}
save_file({{n: p.detach().float() for n, p in zip(names, model.parameters())}}, file)
model.load_state_dict(load_file(file))
with torch.no_grad():
    model(torch.randn(2, 4).bfloat16())
"""
    program = programs.run(tmp_path, text)
    assert program.error is None and not [f for f in program.findings if f.severity != "note"]
    (row,) = [r for r in program.trace.receipt().rows if r.part == "checkpoint read"]
    assert (row.what, row.dtype, row.asked, row.by) == ("weights.safetensors", "float32", "bfloat16", "the weights")


def test_averages_of_weights_have_a_row(tmp_path):
    text = """
model = nn.Linear(4, 4)
average = [p.detach().clone().half() for p in model.parameters()]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    with torch.no_grad():
        for a, p in zip(average, model.parameters()):
            a.lerp_(p.half(), 0.1)
"""
    assert rows(programs.run(tmp_path, text).trace, "copies of weights") == [("averages", "float16", "float32")]


def test_weights_that_are_sent_have_a_row(tmp_path):
    text = """
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = nn.Linear(4, 4)
model(torch.randn(2, 4))
for p in model.parameters():
    dist.broadcast(p.data.bfloat16(), 0)
loss = torch.zeros(())
dist.all_reduce(loss)
dist.destroy_process_group()
"""
    assert rows(programs.run(tmp_path, text).trace, "reduction") == [("weights sent", "bfloat16", "")]


CHOOSES = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.score, self.experts, self.out = nn.Linear(8, 4), nn.ModuleList(nn.Linear(8, 8) for _ in range(4)), nn.Linear(8, 5)
    def forward(self, x, y):
        if {routed}:
            weight, chosen = self.score(x).softmax(-1).topk(1)
            x = torch.stack([self.experts[int(c)](row) for c, row in zip(chosen[:, 0], x)]) * weight
        logits = self.out(x)
        self.right = (logits.argmax(-1) == y).float().mean()
        return F.cross_entropy(logits, y)
net = Net()
net(torch.randn(6, 8), torch.randint(0, 5, (6,))).backward()
"""


@pytest.mark.parametrize("routed", [True, False])
def test_a_router_is_what_further_products_are_chosen_by(routed, tmp_path):
    rows = programs.run(tmp_path, CHOOSES.format(routed=routed)).trace.receipt().rows
    assert ("router" in [row.what for row in rows]) == routed
