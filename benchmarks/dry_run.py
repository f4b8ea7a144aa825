"""How long a dry training step takes, and how much memory: ``python benchmarks/dry_run.py [NAME ...]``.

Each model has its real size, LoRA by peft, autocast, a loss scaler and activation checkpointing, and says cuda; it is
run by ``dtypetrace run --dry-run`` in a process of its own. The second step is what a step costs; the first one also
asks the table and the meta kernels for each new kind of call. CPU time is printed beside wall time, because other
processes may take their share of the machine.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_MEMORY = 2.0
"""GB that a dry run may take."""

SD15 = """
from diffusers import UNet2DConditionModel
model = UNet2DConditionModel(
    sample_size=64, cross_attention_dim=768, attention_head_dim=8, block_out_channels=(320, 640, 1280, 1280))
model.enable_gradient_checkpointing()
args = torch.randn(2, 4, 64, 64, device="cuda"), torch.randint(0, 1000, (2,), device="cuda"), torch.randn(2, 77, 768).cuda()
kwargs, targets = {}, ["to_q", "to_k", "to_v", "to_out.0"]
"""
SDXL = """
from diffusers import UNet2DConditionModel
model = UNet2DConditionModel(
    sample_size=128, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"), block_out_channels=(320, 640, 1280),
    cross_attention_dim=2048, transformer_layers_per_block=(1, 2, 10), attention_head_dim=(5, 10, 20),
    use_linear_projection=True, addition_embed_type="text_time", addition_time_embed_dim=256,
    projection_class_embeddings_input_dim=2816)
model.enable_gradient_checkpointing()
args = torch.randn(1, 4, 128, 128, device="cuda"), torch.tensor([7], device="cuda"), torch.randn(1, 77, 2048).cuda()
added = {"text_embeds": torch.randn(1, 1280, device="cuda"), "time_ids": torch.randn(1, 6, device="cuda")}
kwargs, targets = {"added_cond_kwargs": added}, ["to_q", "to_k", "to_v", "to_out.0"]
"""
FLUX = """
from diffusers import FluxTransformer2DModel
model = FluxTransformer2DModel(guidance_embeds=True)
model.enable_gradient_checkpointing()
args, targets = (), ["to_q", "to_k", "to_v", "to_out.0"]
kwargs = dict(
    hidden_states=torch.randn(1, 4096, 64, device="cuda"), encoder_hidden_states=torch.randn(1, 512, 4096, device="cuda"),
    pooled_projections=torch.randn(1, 768, device="cuda"), timestep=torch.rand(1, device="cuda"),
    img_ids=torch.zeros(4096, 3, device="cuda"), txt_ids=torch.zeros(512, 3, device="cuda"),
    guidance=torch.ones(1, device="cuda"))
"""
LLAMA = """
from transformers import LlamaConfig, LlamaForCausalLM
model = LlamaForCausalLM(LlamaConfig(
    hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8,
    vocab_size=128256, max_position_embeddings=8192))
model.gradient_checkpointing_enable()
model.enable_input_require_grads()
tokens = torch.randint(0, 128256, (1, 2048), device="cuda")
args, kwargs, targets = (), {"input_ids": tokens, "labels": tokens}, ["q_proj", "k_proj", "v_proj", "o_proj"]
"""
MODELS = {"SD1.5 UNet": SD15, "SDXL UNet": SDXL, "Flux transformer": FLUX, "Llama 70B": LLAMA}

STEP = """
import resource, time, torch
begun, spent = time.perf_counter(), time.process_time()
{model}
from peft import LoraConfig, get_peft_model
model.to("cuda", dtype=torch.float16).train().requires_grad_(False)
model = get_peft_model(model, LoraConfig(target_modules=targets), autocast_adapter_dtype=True)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
scaler = torch.amp.GradScaler("cuda")
print("RESULT made", time.perf_counter() - begun, time.process_time() - spent)
for _ in range(2):
    begun, spent = time.perf_counter(), time.process_time()
    with torch.autocast("cuda", dtype=torch.float16):
        out = model(*args, **kwargs)
        loss = out.loss if hasattr(out, "loss") else out.sample.float().pow(2).mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print("RESULT step", time.perf_counter() - begun, time.process_time() - spent)
size = sum(p.numel() for p in model.parameters())
print("RESULT size", size / 1e9, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
"""


def measured(text: str) -> tuple[list[tuple[str, float, float]], str, float]:
    """The results of a dry run, its last line, and the seconds of the whole process."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "step.py"
        script.write_text(STEP.replace("{model}", textwrap.dedent(text)))
        env = dict(os.environ, PYTHONPATH=str(ROOT), PYTHONWARNINGS="ignore", HF_HUB_OFFLINE="1")
        command = ["-m", "dtypetrace", "run", "--dry-run", str(script)]
        ended = subprocess.run([sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True)
    found = [(kind, float(a), float(b)) for kind, a, b in re.findall(r"RESULT (\w+) (\S+) (\S+)", ended.stdout)]
    if ended.returncode or not found:
        raise SystemExit(ended.stderr)
    summary = next(line for line in ended.stderr.splitlines() if re.search(r"in \d+ steps? \(", line))
    return found, summary, found[-1][2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"parts of names of {', '.join(MODELS)}")
    names = parser.parse_args().names
    fits = True
    print(f"{'':18}{'parameters':>12}{'made':>16}{'first step':>16}{'second step':>16}{'memory':>9}")
    for name, text in MODELS.items():
        if names and not any(part.lower() in name.lower() for part in names):
            continue
        found, summary, memory = measured(text)
        times = [f"{wall:.1f} s ({cpu:.1f})" for kind, wall, cpu in found if kind in ("made", "step")]
        size = f"{found[-1][1]:.2f} billion"
        print(f"{name:18}{size:>12}{times[0]:>16}{times[1]:>16}{times[2]:>16}{memory:>6.2f} GB  {summary}", flush=True)
        fits &= memory < MOST_MEMORY
    print("seconds of wall time, in brackets those of the CPU")
    return 0 if fits else 1


if __name__ == "__main__":
    sys.exit(main())
