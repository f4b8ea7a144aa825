"""Healthy recipes on real libraries, several steps each: no warning, and no more than ten notes.

What is healthy is what the libraries' own documentation trains with. Models are tiny and random; each program runs under
a trace as `dtypetrace run` opens it, numerics included.
"""

from __future__ import annotations

import importlib.util

import programs
import pytest

pytestmark = pytest.mark.slow
INDUCTOR = "torch.compile in the script, with inductor"

LLAMA = """
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64,
)
ids = torch.randint(0, 64, (4, 12))
"""
TRAIN = """
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=5e-3)
model.train()
for _ in range(4):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=AUTOCAST):
        loss = model(input_ids=ids, labels=ids).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
"""
AUTOCAST, PLAIN = TRAIN.replace("AUTOCAST", "True"), TRAIN.replace("AUTOCAST", "False")
LORA = 'LoraConfig(r=4, lora_alpha=16, lora_dropout=0.1, target_modules="all-linear", task_type="CAUSAL_LM")'
DIFFUSION = """
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
torch.manual_seed(0)
unet = UNet2DConditionModel(
    sample_size=8, in_channels=4, out_channels=4, block_out_channels=(16, 32), layers_per_block=1,
    down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    cross_attention_dim=16, attention_head_dim=8, norm_num_groups=4,
)
vae = AutoencoderKL(
    in_channels=3, out_channels=3, latent_channels=4, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8,
    down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
)
scheduler = DDPMScheduler()
def noised(latents):
    noise, timestep = torch.randn_like(latents), torch.randint(0, 1000, (len(latents),))
    return noise, scheduler.add_noise(latents, noise, timestep), timestep
"""
SCALED = """
trained = [p for p in unet.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
for _ in range(4):
    with torch.no_grad():
        latents = LATENTS
    noise, noisy, timestep = noised(latents)
    with torch.autocast("cpu", dtype=torch.float16):
        predicted = unet(noisy, timestep, torch.randn(2, 5, 16)).sample
        loss = F.mse_loss(predicted.float(), noise.float())
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    scaler.step(optimizer)
    scaler.update()
    AFTER
"""

RECIPES: dict[str, tuple[str, str]] = {
    "plain float32": ("transformers", LLAMA + "model = LlamaForCausalLM(config)" + PLAIN),
    "autocast bfloat16, then validation": (
        "transformers",
        LLAMA
        + "model = LlamaForCausalLM(config)"
        + AUTOCAST
        + """
model.eval()
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    for _ in range(3):
        model(input_ids=ids)
""",
    ),
    "autocast float16 with a loss scaler, and an average in float32": (
        "diffusers",
        DIFFUSION
        + "from diffusers.training_utils import EMAModel\naverage = EMAModel(unet.parameters())"
        + SCALED.replace("LATENTS", "torch.randn(2, 4, 8, 8)").replace("AFTER", "average.step(unet.parameters())")
        + "average.store(unet.parameters())\naverage.copy_to(unet.parameters())\naverage.restore(unet.parameters())",
    ),
    "LoRA of diffusers on a float16 base": (
        "diffusers,peft",
        DIFFUSION
        + """
from diffusers.training_utils import cast_training_params
from peft import LoraConfig
unet.half().requires_grad_(False), vae.half().requires_grad_(False)
unet.add_adapter(LoraConfig(r=4, lora_alpha=4, target_modules=["to_k", "to_q", "to_v", "to_out.0"]))
cast_training_params(unet, torch.float32)
"""
        + SCALED.replace("LATENTS", "vae.encode(torch.rand(2, 3, 16, 16).half()).latent_dist.sample()").replace(
            "AFTER", "pass"
        ),
    ),
    "PEFT on a bfloat16 base": (
        "transformers,peft",
        LLAMA
        + f"from peft import LoraConfig, get_peft_model\nmodel = get_peft_model(LlamaForCausalLM(config).bfloat16(), {LORA})"
        + AUTOCAST,
    ),
    "PEFT on a 4-bit base": (
        "transformers,peft,bitsandbytes",
        LLAMA
        + f"""
import tempfile
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import BitsAndBytesConfig
with tempfile.TemporaryDirectory() as folder:
    LlamaForCausalLM(config).save_pretrained(folder)
    quantised = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
    base = LlamaForCausalLM.from_pretrained(folder, quantization_config=quantised, dtype=torch.bfloat16, device_map="cpu")
model = get_peft_model(prepare_model_for_kbit_training(base, use_gradient_checkpointing=False), {LORA})
"""
        + AUTOCAST,
    ),
    "torchao int8 weights with adapters": (
        "transformers,peft,torchao",
        LLAMA
        + f"""
from peft import LoraConfig, get_peft_model
from torchao.quantization import Int8WeightOnlyConfig, quantize_
base = LlamaForCausalLM(config).bfloat16()
quantize_(base.model, Int8WeightOnlyConfig())
model = get_peft_model(base, {LORA})
"""
        + AUTOCAST,
    ),
    "T5 with its float32 modules": (
        "transformers",
        """
import tempfile
from transformers import T5Config, T5ForConditionalGeneration
torch.manual_seed(0)
config = T5Config(
    vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=3, num_heads=4, decoder_start_token_id=0, feed_forward_proj="gated-gelu"
)
with tempfile.TemporaryDirectory() as folder:
    T5ForConditionalGeneration(config).save_pretrained(folder)
    model = T5ForConditionalGeneration.from_pretrained(folder, dtype=torch.float16).eval()
assert {p.dtype for p in model.parameters()} == {torch.float16, torch.float32}
ids = torch.randint(1, 64, (2, 12))
with torch.no_grad():
    for _ in range(3):
        model(input_ids=ids, labels=ids)
model.generate(ids, max_new_tokens=4)
""",
    ),
    "a mixture of experts with a float32 router": (
        "transformers",
        """
from transformers import MixtralConfig, MixtralForCausalLM
torch.manual_seed(0)
model = MixtralForCausalLM(MixtralConfig(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    num_local_experts=4, output_router_logits=True,
)).bfloat16()
ids = torch.randint(0, 64, (2, 16))
"""
        + PLAIN,
    ),
    "activation checkpointing": (
        "transformers",
        LLAMA + "model = LlamaForCausalLM(config)\nmodel.gradient_checkpointing_enable()" + AUTOCAST,
    ),
    "a rotary model in bfloat16 with its cache": (
        "transformers",
        LLAMA
        + """
config._attn_implementation = "eager"
model = LlamaForCausalLM(config).bfloat16().eval()
for _ in range(2):
    model.generate(ids, max_new_tokens=4, do_sample=False, pad_token_id=0)
model.generate(ids, max_new_tokens=4, do_sample=True, top_p=0.9, temperature=0.7, pad_token_id=0)
""",
    ),
    "torch.compile in the script": (
        "transformers",
        LLAMA
        + "model = LlamaForCausalLM(config)\nmodel.forward = torch.compile(model.forward, backend='aot_eager')"
        + AUTOCAST,
    ),
    INDUCTOR: (
        "transformers",
        LLAMA + "model = LlamaForCausalLM(config)\nmodel.forward = torch.compile(model.forward)" + AUTOCAST,
    ),
    "a flow transformer in bfloat16": (
        "diffusers",
        """
from diffusers import FlowMatchEulerDiscreteScheduler, FluxTransformer2DModel
torch.manual_seed(0)
model = FluxTransformer2DModel(
    patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
    joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=[4, 4, 8],
).bfloat16()
scheduler = FlowMatchEulerDiscreteScheduler()
scheduler.set_timesteps(3)
latents, text, pooled = torch.randn(1, 16, 4).bfloat16(), torch.randn(1, 8, 32).bfloat16(), torch.randn(1, 32).bfloat16()
ids = torch.zeros(16, 3), torch.zeros(8, 3)
with torch.no_grad():
    for t in scheduler.timesteps:
        flow = model(latents, text, pooled, (t / 1000).expand(1).bfloat16(), *ids).sample
        latents = scheduler.step(flow, t, latents).prev_sample
""",
    ),
    "accelerate with mixed precision": (
        "transformers,accelerate",
        LLAMA
        + """
from accelerate import Accelerator
from accelerate.state import AcceleratorState
AcceleratorState._reset_state(reset_partial_state=True)  # other tests of this process made one, too
accelerator = Accelerator(mixed_precision="bf16", cpu=True)
model = LlamaForCausalLM(config)
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), 5e-3))
for _ in range(4):
    loss = model(input_ids=ids, labels=ids).loss
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
""",
    ),
}

LIGHTNING = """
import warnings
warnings.filterwarnings("ignore", module="lightning")
import lightning

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.register_buffer("table", torch.ones(8, dtype=TABLE))

    def training_step(self, batch, index):
        return (self.layers(batch[0]) * self.table).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)

data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(16, 8)), batch_size=4)
trainer = lightning.Trainer(
    max_steps=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, precision="PRECISION",
)
trainer.fit(Net(), data)
"""
for _precision in ("32-true", "bf16-mixed"):
    RECIPES[f"Lightning's automatic optimization, {_precision}"] = (
        "lightning",
        LIGHTNING.replace("PRECISION", _precision).replace("TABLE", "torch.float32"),
    )


def test_what_lightning_runs_in_its_closure_is_judged(tmp_path):
    """It hands every optimizer a closure with the whole training step in it."""
    pytest.importorskip("lightning")
    program = programs.run(tmp_path, LIGHTNING.replace("PRECISION", "32-true").replace("TABLE", "torch.float64"))
    assert program.error is None
    assert [(f.code, f.phase, f.count) for f in program.findings] == [("DT201", "forward", 3)]


OPTIONS = {
    "numerics": {"numerics": True},
    "dtypes": {"numerics": False},
    "reference": {"numerics": True, "reference": True},
}


def sampled() -> list:
    """Each recipe with numerics, as ``run`` has it; one in four with a reference; dtypes alone are what numerics shows, less
    values."""
    return [
        pytest.param(
            name,
            options,
            id=f"{name}-{kind}",
            marks=pytest.mark.exhaustive
            if name == INDUCTOR or kind == "dtypes" or kind == "reference" and number % 4
            else (),
        )
        for number, name in enumerate(RECIPES)
        for kind, options in OPTIONS.items()
    ]


@pytest.mark.parametrize(("name", "options"), sampled())
def test_a_healthy_recipe_gets_no_warning(name, options, tmp_path, monkeypatch):
    needs, text = RECIPES[name]
    missing = [module for module in needs.split(",") if importlib.util.find_spec(module) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    program = programs.run(tmp_path, text, **options)
    assert program.error is None
    assert not program.trace._watch.recorder.broken, program.recording.not_seen
    serious = [f for f in program.findings if f.severity != "note"]
    assert not serious, program.trace
    assert len(program.findings) <= 10, program.trace
