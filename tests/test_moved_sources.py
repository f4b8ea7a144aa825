"""What needs the program's text is found once, when the trace ends: no view opens a file of the program or changes with it."""

from __future__ import annotations

import linecache
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

import programs
import pytest

import dtypetrace
from dtypetrace.tracing import Trace

LIBRARY = """
import torch

def table(size):
    angles = torch.arange(size).double()
    return (angles
            .cos()
            .add(1))

def project(net, value):
    return net(value)
"""

COLLISION = """
import torch
import library
scale = torch.ones(4)
sample = torch.zeros(1).bfloat16()
other = torch.ones(3, 4)
wanted = sample.dtype
net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)).to(wanted)
given = (library.table(4)
         .reshape(1, 4)
         .mul(scale))
with torch.autocast("cpu", dtype=torch.bfloat16):
    inside = nn.Linear(4, 4)(batch["mask"])
library.project(net, given)  # the library's line is refused
"""

HEALED = """
import torch
import library
noise = torch.randn(2, 4)
net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)).half()
target = torch.zeros(2, 2)
wanted = target.dtype
out = net(noise)
kept = torch.zeros(4).to(wanted)
kept = kept.to(out.dtype)
F.linear(library.table(4), net[0].weight)
out.masked_fill(out > 0, 1.0).sum().backward()
"""

SILENT = """
import torch
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = torch.full((4, 1, 1), 2.0)
        self.qkv = nn.Linear(32, 96, bias=False)
    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        q, k = (F.normalize(part, dim=-1) * self.gain for part in (q, k))
        return (q @ k.transpose(-1, -2)).softmax(dim=-1).to(v.dtype) @ v
net = Attention().bfloat16()
x = torch.randn(2, 24, 32, dtype=torch.bfloat16)
for _ in range(2):
    net(x).flatten(2)
"""

LORA = """
import torch
class Adapted(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A = nn.Linear(32, 4, bias=False)
        self.lora_B = nn.Linear(4, 8, bias=False)
    def forward(self, x):
        return self.base(x) + self.lora_B(self.lora_A(x.to(self.lora_A.weight.dtype))).to(x.dtype)
torch.manual_seed(0)
net = Adapted(nn.Linear(32, 8)).half()
for layer in (net.lora_A, net.lora_B):
    nn.init.constant_(layer.weight, 0.25)
optimizer = torch.optim.SGD(list(net.lora_A.parameters()) + list(net.lora_B.parameters()), lr=2e-5)
for _ in range(3):
    loss = net(torch.randn(16, 32).half()).float().pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

BEFORE = 'batch = {"mask": torch.ones(2, 4), "image": torch.ones(2, 4)}'
KINDS = {
    "collision": (COLLISION, {}, "DT101"),
    "healed": (HEALED, {"autofix": True}, "DT101"),
    "silent": (SILENT, {}, "DT201"),
    "lora": (LORA, {"numerics": True}, "DT304"),
}


class Sources:
    """The folders of a program and of the library that it uses, and what can happen to them."""

    def __init__(self, folder: Path) -> None:
        self.own, self.library = folder / "own", folder / "library"

    def write(self, kind: str) -> None:
        for folder, name, text in ((self.own, "program.py", KINDS[kind][0]), (self.library, "library.py", LIBRARY)):
            folder.mkdir(exist_ok=True)
            (folder / name).write_text(text.lstrip())

    def run(self, kind: str) -> Trace:
        text, options, _ = KINDS[kind]
        self.write(kind)
        sys.path.insert(0, str(self.library))
        try:
            return programs.run(self.own, text, before=BEFORE, **options).trace
        finally:
            sys.path.remove(str(self.library))
            sys.modules.pop("library", None)

    def move(self) -> None:
        shutil.move(self.own, self.own.with_name("elsewhere"))
        shutil.move(self.library, self.library.with_name("other"))

    def edit(self) -> None:
        for file in (self.own / "program.py", self.library / "library.py"):
            file.write_text("# a line more\n" + file.read_text().replace("torch", "tonsils").replace(".dtype", ".kind"))

    def delete(self) -> None:
        shutil.rmtree(self.own)
        shutil.rmtree(self.library)


@pytest.fixture(autouse=True)
def same_run_line(monkeypatch):
    """Two runs of one program differ in when they ran."""
    monkeypatch.setattr("dtypetrace.capture.snapshot.run_line", lambda started: {})


def views(trace: dtypetrace.view.View, folder: Path) -> dict[str, object]:
    """Everything that a trace can be asked to show, as text."""
    trace.to_json(folder / "report.json")
    trace.report(folder / "report.html")
    frames = ("ops", "casts", "parameters", "gradients")
    return {
        "why": repr(trace.why("net")),
        "why in a notebook": trace.why("net")._repr_html_(),
        "findings": trace.findings,
        "a finding in a notebook": [f._repr_html_() for f in trace.findings],
        "fixes": list(map(str, trace.fixes)),
        "diff": trace.diff(),
        "console": repr(trace),
        "notebook": trace._repr_html_(),
        "HTML": (folder / "report.html").read_text("utf-8"),
        "JSON": (folder / "report.json").read_text("utf-8"),
        "frames": [trace.to_dataframe(of).to_csv() for of in frames],
        "operators": trace.operators(),
    }


OPENED: list[str] = []
_watched: list[str] = []


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if _watched and event == "open" and any(str(arguments[0]).startswith(folder) for folder in _watched):
        OPENED.append(str(arguments[0]))


@contextmanager
def watching(*folders: Path):
    """Gathers the files in some folders that are opened inside the block, by any function: an audit hook sees them all."""
    if not hasattr(sys, "_dtypetrace_test_hook"):
        sys.addaudithook(_note)  # which nothing can take away again
        sys._dtypetrace_test_hook = True
    OPENED.clear()
    _watched[:] = map(str, folders)
    try:
        yield OPENED
    finally:
        _watched.clear()


@pytest.mark.parametrize("kind", KINDS)
def test_views_stay_what_they_were_when_the_sources_change(kind, tmp_path):
    sources = Sources(tmp_path)
    changes = {"move": sources.move, "edit": sources.edit, "delete": sources.delete}
    shown, *unasked = [sources.run(kind) for _ in range(1 + len(changes))]
    before = views(shown, tmp_path)
    assert KINDS[kind][2] in [f.code for f in shown.findings], shown
    shown.save(tmp_path / "shown.json")
    for trace, (name, change) in zip(unasked, changes.items()):
        sources.write(kind)
        change()
        linecache.clearcache()
        with watching(sources.own, sources.library) as opened:
            for other in (trace, shown, dtypetrace.load(tmp_path / "shown.json"), _saved(trace, tmp_path)):
                assert_same(views(other, tmp_path), before, name)
        assert not opened


def _saved(trace: Trace, folder: Path) -> dtypetrace.view.SavedTrace:
    trace.save(folder / "kept.json")
    return dtypetrace.load(folder / "kept.json")


def assert_same(after: dict[str, object], before: dict[str, object], why: str) -> None:
    for name, shown in before.items():
        assert after[name] == shown, f"{name}, after the sources were changed: {why}"


def test_the_flow_goes_through_the_read_that_gave_the_dtype(tmp_path):
    """The same with and without its sources: without its text, the flow must not jump to another read."""
    sources = Sources(tmp_path)
    trace = sources.run("collision")
    sources.delete()
    (weight, *_) = [c for c in trace.why("net").chains if c.name == "net.0.weight"]
    assert [step.via for step in weight.flow if step.how == "attribute"] == ["sample.dtype"]
    assert weight.origin.op == "bfloat16" and weight.origin.explicit


def test_judging_a_trace_opens_no_file_either(tmp_path):
    """Leaving the block copies the text; the first view reads that copy."""
    sources = Sources(tmp_path)
    trace = sources.run("healed")
    linecache.clearcache()
    with watching(tmp_path) as opened:
        assert trace.findings and trace.fixes and trace.diff().count("+++") == 1
    assert not opened
