"""``dtypetrace plan`` on real models with random weights: the plan is found and verified."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
import warm

from dtypetrace.records import Frame
from dtypetrace.records.text import ProgramText
from dtypetrace.source import models

PROGRAMS = {
    "unet": """
        import torch
        from diffusers import UNet2DConditionModel

        torch.manual_seed(0)
        unet = UNet2DConditionModel(
            sample_size=8, block_out_channels=(16, 32), layers_per_block=1, cross_attention_dim=16, norm_num_groups=8,
            attention_head_dim=4, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        ).to(torch.bfloat16)
        optimizer = torch.optim.SGD(unet.parameters(), lr=0.01)
        noisy, text = torch.randn(2, 4, 8, 8).bfloat16(), torch.randn(2, 3, 16).bfloat16()
        loss = unet(noisy, torch.tensor([7, 80]), text).sample.float().square().mean()
        loss.backward()
        optimizer.step()
        """,
    "vae": """
        import torch
        from diffusers import AutoencoderKL

        torch.manual_seed(0)
        vae = AutoencoderKL(
            in_channels=3, out_channels=3, latent_channels=4, block_out_channels=(16, 32), layers_per_block=1,
            norm_num_groups=8, down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        ).eval()
        with torch.no_grad():  # the scale that activations of the known decoder have in its last blocks
            vae.decoder.up_blocks[1].resnets[0].conv1.weight.mul_(3e5)
        vae = vae.half()
        with torch.no_grad():
            vae.decoder(torch.randn(1, 4, 8, 8).half())
        """,
    "llama": """
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM


        def main():
            torch.manual_seed(0)
            config = LlamaConfig(
                vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2,
            )
            model = LlamaForCausalLM(config)
            model.to(dtype=torch.bfloat16)
            ids = torch.randint(0, 64, (2, 12))
            model(input_ids=ids, labels=ids).loss.backward()
            torch.optim.SGD(model.parameters(), lr=0.1).step()


        main()
        """,
    "lora": """
        import torch
        from peft import LoraConfig, get_peft_model
        from prodigyopt import Prodigy
        from torch import nn


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 8)

            def forward(self, x):
                h = self.first(x) + 40
                return self.second(h - h.mean(-1, keepdim=True))


        torch.manual_seed(0)
        model = get_peft_model(Net(), LoraConfig(r=4, target_modules=["first", "second"], init_lora_weights=False))
        model = model.bfloat16()
        optimizer = Prodigy([p for p in model.parameters() if p.requires_grad], lr=1.0)
        x, y = torch.randn(8, 16).bfloat16(), torch.randn(8, 8)
        for _ in range(2):
            loss = (model(x).float() - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
}
TOLERANCES = {"unet": 0.02, "vae": 0.05, "llama": 0.004, "lora": 0.05}
NEEDS = {"unet": "diffusers", "vae": "diffusers", "llama": "transformers", "lora": "prodigyopt"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["lora", *(pytest.param(n, marks=pytest.mark.exhaustive) for n in ("unet", "vae", "llama"))]
)
def test_a_real_model_gets_a_plan_that_was_run(name, tmp_path):
    if importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"needs {NEEDS[name]}")

    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(PROGRAMS[name]).lstrip())
    ended = warm.run(
        ["-m", "dtypetrace", "plan", "--tolerance", str(TOLERANCES[name]), "train.py"], tmp_path, models=True
    )
    assert ended.returncode == 0, ended.stderr + ended.stdout
    assert "verified by running the step with it" in ended.stdout
    assert ".apply(model)" in ended.stdout
    if name == "vae":
        assert "up_blocks.1.resnets.0" in ended.stdout.splitlines()[3], (
            "the module whose exponent range is too small is first"
        )


TEXT = """\
'''A script.'''
import torch
from torch import nn  # layers

class Holder:
    def __init__(self):
        self.net = nn.Linear(2, 2)  # made
        self.net.half(); print()

def main():
    parts = [nn.Linear(2, 2)]
    net = nn.Sequential(
        nn.Linear(2, 2),
    )
    net.to(torch.float16)
    run(net)
"""


@pytest.mark.parametrize(
    ("line", "expression"), [(7, "self.net"), (8, None), (11, "parts"), (13, "net"), (15, "net"), (16, None), (1, None)]
)
def test_the_statement_that_makes_a_model_is_read(line, expression):
    text = ProgramText({"a.py": TEXT.splitlines(keepends=True)})
    made = models.made(text, Frame("a.py", line, "main", True))
    assert (made.expression if made else None) == expression
