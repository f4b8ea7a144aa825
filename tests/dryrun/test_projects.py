"""Scripts that say cuda everywhere, shaped like those of diffusers and transformers, go through a dry run; a mistake in
them is found at its line."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECTS = ROOT / "tests" / "projects" / "dry"
sys.path.insert(0, str(PROJECTS))
import models  # noqa: E402
import warm  # noqa: E402
from samples import one_in  # noqa: E402

pytestmark = pytest.mark.slow
if any(importlib.util.find_spec(n) is None for n in ("diffusers", "transformers", "peft", "accelerate")):
    pytest.skip("needs diffusers, transformers, peft and accelerate", allow_module_level=True)


def run(folder: Path, name: str, right: str = "", wrong: str = "", epochs: int = 1):
    """A dry run of a project in which some text is replaced: its exit status, findings, lines and what it printed."""
    text = (PROJECTS / f"{name}.py").read_text()
    if right:
        assert text.count(right) == 1, right
        text = text.replace(right, wrong)
    script, out = folder / "train.py", folder / "out.json"
    script.write_text(text)
    model = getattr(models, {"text_to_image_lora": "text_to_image", "causal_lm": "causal_lm"}[name])(folder / "model")
    words = [
        "-m",
        "dtypetrace",
        "run",
        "--dry-run",
        "--json",
        str(out),
        str(script),
        str(model),
        "--epochs",
        str(epochs),
    ]
    ended = warm.run(words, folder, COLUMNS="160")  # the program imports the libraries: what writes is replaced then
    findings = json.loads(out.read_text())["findings"] if out.exists() else []
    return ended, [f for f in findings if f["severity"] == "error"], text.splitlines()


WHOLE = pytest.param("text_to_image_lora", "done", marks=pytest.mark.exhaustive)  # a mistake in it runs as far


@pytest.mark.parametrize(("name", "last"), [WHOLE, ("causal_lm", "best 2.72")])
def test_a_right_script_goes_through_to_its_end(tmp_path, name, last):
    ended, findings, _ = run(tmp_path, name, epochs=2)
    assert ended.returncode == 0, ended.stderr
    assert last in ended.stdout
    assert not findings
    assert not list(tmp_path.rglob("*.safetensors")) + list(tmp_path.rglob("*.pt"))


MISTAKES = {
    "the latents that the VAE decodes are widened": (
        "text_to_image_lora", "latents.to(weight_dtype)", "latents.to(torch.float32)", "latents.to(torch.float32)",
        "vae.decode(",
    ),
    "the VAE stays in float32": (
        "text_to_image_lora", "vae.to(accelerator.device, dtype=weight_dtype)", "vae.to(accelerator.device)",
        "AutoencoderKL.from_pretrained(", "vae.encode(",
    ),
    "validation outside autocast, with diffusers": (
        "text_to_image_lora", 'with torch.autocast("cuda", dtype=weight_dtype):', "with torch.no_grad():",
        "latents = torch.randn(", "noise = unet(",
    ),
    "validation outside autocast, with transformers": (
        "causal_lm", 'with torch.autocast("cuda", dtype=torch.float16):\n            outputs = model(tokens,',
        "with torch.no_grad():\n            outputs = model(tokens,", "mask = torch.zeros(", "outputs = model(tokens,",
    ),
    "a mask's number does not fit float16": (
        "causal_lm", "masked_fill(hidden, -6e4)", "masked_fill(hidden, -1e9)", "masked_fill(", "masked_fill(",
    ),
    "the weights that are trained are float16": (
        "causal_lm", "dtype=torch.float32)", "dtype=torch.float16)", "AutoModelForCausalLM.from_pretrained(",
        "scaler.unscale_(",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", one_in(6, list(MISTAKES)))
def test_a_mistake_is_found_at_its_line(tmp_path, mistake):
    name, right, wrong, born, collides = MISTAKES[mistake]
    ended, findings, lines = run(tmp_path, name, right, wrong)
    assert findings, ended.stderr

    def at(place):
        found = [f["line"] for f in [place, *place.get("stack", ())] if str(f.get("file")).endswith("train.py")]
        return [lines[n - 1].strip() for n in found]

    first = findings[0]
    assert first["predicted"]
    assert any(born in line for line in at(first["culprit"]["origin"])), (
        first["title"],
        at(first["culprit"]["origin"]),
    )
    assert any(collides in line for line in at(first["site"])), at(first["site"])
