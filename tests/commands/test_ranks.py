"""Jobs of several real processes on gloo: one right report each, whatever happens to a rank."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import warm

import dtypetrace

pytestmark = pytest.mark.slow

HEAD = """
import os, sys, torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
dist.init_process_group("gloo")
rank, world, what = dist.get_rank(), dist.get_world_size(), sys.argv[1]
torch.manual_seed(0)
"""
TAIL = """
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
for step in range(2):
    x = torch.randn(4, 8, dtype=torch.bfloat16)
    if what == "all" or what == "one" and rank == 1:
        x = x * torch.ones(4, 1)
    if what == "killed" and rank == 1 and step:
        os.kill(os.getpid(), 9)
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""
MODELS = {
    "ddp": "model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2)).bfloat16())",
    "fsdp": """
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
for part in (*model, model):
    fully_shard(part, mesh=init_device_mesh("cpu", (world,)), mp_policy=policy)
""",
    "tensor": """
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2)).bfloat16()
parallelize_module(model, init_device_mesh("cpu", (world,)), {"0": ColwiseParallel(), "1": RowwiseParallel()})
""",
}


REDUCED = {
    "ddp": {("gradients", "bfloat16", "")},
    "fsdp": {("gradients", "float32", "float32"), ("weights gathered", "bfloat16", "bfloat16")},
}


def torchrun(folder: Path, kind: str, what: str, ranks: int) -> tuple[int, str]:
    """The status of the job, and all that its processes printed; docs/test_guide.py starts such processes anew."""
    (folder / "train.py").write_text(HEAD + MODELS[kind] + TAIL)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    own = ["-m", "dtypetrace", "run", "--save", "run.trace", "--json", "run.json", "train.py", what]
    ended = warm.run([*launcher, *own], folder, TMPDIR=str(folder))
    output = ended.stdout + ended.stderr
    assert "internal error" not in output
    assert not list(folder.glob("dtypetrace-*")), "the parts stay"
    return ended.returncode, output


def reports(output: str) -> int:
    """How many reports were printed: each has one line that sums it up."""
    summary = r"^(?:dtypetrace: no dtype problem found|\d+ (?:error|warning|note)s?\b).*\([\d,]+ ops?\)"
    return len(re.findall(summary, output, re.M))


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_healthy_job(tmp_path, kind):
    status, output = torchrun(tmp_path, kind, "healthy", 2)
    assert status == 0 and reports(output) == 1, output
    trace = dtypetrace.load(tmp_path / "run.trace")
    assert not [f for f in trace.findings if f.severity != "note"]
    assert trace.recording.meta["ranks"] == "0, 1"
    names = {p.name.partition(".")[2] for p in trace.recording.parameters}
    assert names == {"0.weight", "0.bias", "1.weight", "1.bias"}
    reduced = {(r.what, r.dtype, r.asked) for r in trace.receipt().rows if r.part == "reduction"}
    assert reduced >= REDUCED[kind]
    assert len(list(tmp_path.glob("run.rank*.trace"))) == 2 and (tmp_path / "run.json").exists()


def test_a_mistake_on_one_rank(tmp_path):
    status, output = torchrun(tmp_path, "ddp", "one", 2)
    assert status and reports(output) == 1, output
    found = [f for f in dtypetrace.load(tmp_path / "run.trace").findings if f.severity == "error"]
    assert [f.code for f in found] == ["DT101"]
    assert found[0].notes[0].startswith("on rank 1 only")
    assert found[0].culprit.origin.line == 1 + output_line(tmp_path, "torch.ones(4, 1)")


def output_line(folder: Path, text: str) -> int:
    return next(n for n, line in enumerate((folder / "train.py").read_text().splitlines()) if text in line)


def test_a_rank_that_was_killed_is_named(tmp_path):
    status, output = torchrun(tmp_path, "ddp", "killed", 2)
    assert status and reports(output) == 1, output
    assert "not seen: rank 1: there is no trace of it" in output


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("what", ["healthy", "all", "one", "killed"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_each_kind_of_job(tmp_path, kind, what, ranks):
    status, output = torchrun(tmp_path, kind, what, ranks)
    assert bool(status) == (what != "healthy") and reports(output) == 1, output
    trace = dtypetrace.load(tmp_path / "run.trace")
    found = [f for f in trace.findings if f.severity != "note"]
    if what in ("all", "one"):
        assert [f.code for f in found] == ["DT101"], output
        assert found[0].culprit.origin.line == 1 + output_line(tmp_path, "torch.ones(4, 1)")
        assert found[0].notes[0].startswith("on rank 1 only") == (what == "one"), found[0].notes
    else:
        assert not found, output
    assert ("not seen: rank 1: there is no trace of it" in output) == (what == "killed")
    names = {p.name.partition(".")[2] for p in trace.recording.parameters}
    assert names == {"0.weight", "0.bias", "1.weight", "1.bias"}
