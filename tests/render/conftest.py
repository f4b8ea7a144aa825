"""The browser, and the reports that are looked at in it."""

from __future__ import annotations

import os
from pathlib import Path

import programs
import pytest
import recordings
import warm
from browser import launched
from filelock import FileLock

import dtypetrace
from dtypetrace.render import html_report

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def browser():
    with launched() as found:
        yield found


@pytest.fixture(scope="session")
def reports(tmp_path_factory) -> dict[str, Path]:
    """The reports that are looked at, by name, as files: made once, whichever process comes first."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # that of all processes of this session
    made = {name: folder / f"report-{name}.html" for name in ("demo", "clean", "mask", "sd15", "many", "kinds")}
    with FileLock(folder / "reports.lock"):
        if not made["kinds"].exists():
            _make(folder, made)
    return made


def _make(folder: Path, made: dict[str, Path]) -> None:
    (folder / "clean.py").write_text(CLEAN)
    for name, program in (("demo", ROOT / "examples" / "unet_mask.py"), ("clean", folder / "clean.py")):
        warm.run(["-m", "dtypetrace", "run", "--html", str(made[name]), str(program)], ROOT, models=True)
    _sd15(made["sd15"])
    made["many"].write_text(html_report.render(*recordings.many(20_000)), "utf-8")
    mask = programs.run(folder, MASK).trace
    mask.report(made["mask"])
    recording, _ = recordings.many(400)
    findings = [f for kind in recordings.KINDS for f in (recordings.finding(kind), recordings.bare(kind))]
    made["kinds"].write_text(html_report.render(recording, findings), "utf-8")


CLEAN = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


MASK = """
import torch
model = torch.nn.Linear(4, 4).half()
noisy = torch.ones(2, 3, dtype=torch.float16)
mask = torch.ones(2, 1)
model(torch.cat([noisy, mask], 1))
"""


def _sd15(file: Path) -> None:
    """A step of a UNet of Stable Diffusion 1.5's size, without its numbers: 860 million parameters on the meta device."""
    import torch
    from diffusers import UNet2DConditionModel

    with torch.device("meta"):
        unet = UNet2DConditionModel(sample_size=64, cross_attention_dim=768, attention_head_dim=8)
    assert sum(p.numel() for p in unet.parameters()) > 850e6
    optimizer = torch.optim.AdamW(unet.parameters(), foreach=False)
    with dtypetrace.trace(unet) as t:
        with torch.device("meta"):
            sample, timestep, prompt = torch.zeros(1, 4, 64, 64), torch.zeros(1), torch.zeros(1, 77, 768)
        unet(sample, timestep, encoder_hidden_states=prompt).sample.float().square().mean().backward()
        optimizer.step()
    assert t.recording.meta["ops"] > 6000
    t.report(file)
