"""What was asked for and did not come, seeded in programs of real libraries with tiny random models, and runs of the
same libraries that get what they ask for: those have a receipt without a difference and no warning."""

from __future__ import annotations

import programs
import pytest

PRELUDE = """
import io
import warnings
warnings.filterwarnings("ignore")
import torch.nn.functional as F
"""
T5 = """
from transformers import T5Config, T5ForConditionalGeneration
model = T5ForConditionalGeneration(T5Config(vocab_size=64, d_model=16, d_kv=4, d_ff=32, num_layers=1, num_heads=2,
                                            decoder_start_token_id=0, dropout_rate=0.0))
ids = torch.ones(1, 4, dtype=torch.long)
"""
LLAMA = """
from transformers import LlamaConfig, LlamaForCausalLM
model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
                                     num_attention_heads=2, num_key_value_heads=2))
ids = torch.randint(0, 64, (2, 8))
"""
LORA = (
    LLAMA
    + """
from peft import LoraConfig, get_peft_model
model = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
"""
)
STEP = """
def train_step():
    optimizer.zero_grad()
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
"""
RANK = """
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = dist.init_device_mesh("cpu", (1,))
"""
SWITCH = """
from transformers import SwitchTransformersConfig, SwitchTransformersForConditionalGeneration
config = SwitchTransformersConfig(vocab_size=64, d_model=16, d_kv=4, d_ff=32, num_layers=2, num_heads=2, num_experts=4,
                                  num_decoder_layers=2, num_sparse_encoder_layers=1, num_sparse_decoder_layers=1,
                                  decoder_start_token_id=0, dropout_rate=0.0, router_dtype="float32")
model = SwitchTransformersForConditionalGeneration(config)
ids = torch.ones(1, 4, dtype=torch.long)
"""
TRAINER = """
import tempfile
from transformers import Trainer, TrainingArguments
data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(4)]
arguments = TrainingArguments(tempfile.mkdtemp(), bf16=True, max_steps=2, per_device_train_batch_size=2, report_to=[],
                              use_cpu=True, save_steps=2, disable_tqdm=True, logging_strategy="no")
"""
LIGHTNING = """
import lightning.pytorch as lightning
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 1))
    def training_step(self, batch, number):
        return self.loss(batch[0])
    def loss(self, x):
        return F.mse_loss(self.net(x).float(), x.mean(1, keepdim=True))
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 8)), batch_size=4)
trainer = lightning.Trainer(accelerator="cpu", precision="bf16-mixed", max_steps=2, logger=False,  # HERE
                            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
"""
ADAMW = "optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-3)\n"
SMALL = """
class SmallMoments(torch.optim.SGD):
    def __init__(self, params):
        super().__init__(params, lr=0.1, momentum=0.9)
        self.register_step_post_hook(small)

def small(optimizer, args, kwargs):
    for state in optimizer.state.values():
        if "kept" not in state:
            state["momentum_buffer"] = state["momentum_buffer"].to(torch.bfloat16)
            state["kept"] = True
"""

OF_VALUES = ("DT304", "DT307")
FAULTS = {
    "a cast of the whole model overrides what transformers' class keeps": (
        "DT407", T5 + "model = model.half()  # HERE\nmodel(input_ids=ids, labels=ids)\n",
    ),
    "the same with diffusers": (
        "DT407",
        """
from diffusers import UNet2DModel
class Unet(UNet2DModel):
    _keep_in_fp32_modules = ["time_embedding"]
model = Unet(sample_size=8, in_channels=4, out_channels=4, block_out_channels=(8,), layers_per_block=1,
             down_block_types=("DownBlock2D",), up_block_types=("UpBlock2D",), norm_num_groups=4)
for p in model.parameters():
    p.data = p.data.to(torch.float16)  # HERE
model(torch.randn(1, 4, 8, 8, dtype=torch.float16), 3)
""",
    ),
    "a resume makes moments wide": (
        "DT408",
        LLAMA + SMALL + STEP
        + """
optimizer = SmallMoments(model.parameters())
train_step()
file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
file.seek(0)
saved = torch.load(file)
optimizer = SmallMoments(model.parameters())
optimizer.load_state_dict(saved["optimizer"])  # HERE
train_step()
""",
    ),
    "a resume rounds moments": (
        "DT408",
        LORA + SMALL.replace("torch.bfloat16", "torch.float32") + STEP
        + """
model.to(torch.bfloat16)
optimizer = SmallMoments([p for p in model.parameters() if p.requires_grad])
train_step()
optimizer.load_state_dict(optimizer.state_dict())  # HERE
train_step()
""",
    ),
    "steps are counted in bfloat16": (
        "DT505",
        LORA + STEP + ADAMW
        + """
train_step()
for entry in optimizer.state.values():
    entry["step"] = entry["step"].to(torch.bfloat16)  # HERE
train_step()
""",
    ),
    "a checkpoint is written narrower than what trains": (
        "DT408",
        LORA + STEP + ADAMW
        + """
train_step()
narrow = {name: value.half() for name, value in model.state_dict().items()}  # HERE
torch.save({"model": narrow, "optimizer": optimizer.state_dict()}, io.BytesIO())
""",
    ),
    "an average is narrower than its source": (
        "DT203",
        LLAMA + STEP + ADAMW
        + """
from diffusers.training_utils import EMAModel
ema = EMAModel(model.parameters(), decay=0.9999)
ema.to(dtype=torch.bfloat16)  # HERE
for _ in range(6):
    train_step()
    ema.step(model.parameters())
""",
    ),
    "gradients of 32 micro-batches are added up in bfloat16": (
        "DT309",
        LORA
        + """
model.to(torch.bfloat16)  # HERE
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-1)
for _ in range(32):
    (model(input_ids=ids, labels=ids).loss / 32).backward()
optimizer.step()
""",
    ),
    "float16 autocast, a backward and no scaler": (
        "DT404",
        LLAMA + ADAMW
        + """
for _ in range(2):
    with torch.autocast("cpu", dtype=torch.float16):
        loss = model(input_ids=ids, labels=ids).loss  # HERE
    loss.backward()
    optimizer.step()
""",
    ),
    "updates of 16-bit weights without a wide copy are lost": (
        "DT304",
        LLAMA + STEP + """
model.to(torch.bfloat16)  # HERE
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
for _ in range(6):
    train_step()
""",
    ),
    "moments are made in bfloat16": (
        "DT307",
        LLAMA + STEP + """
class Adam(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            if not self.state[p]:
                self.state[p]["exp_avg_sq"] = torch.zeros_like(p, dtype=torch.bfloat16)  # HERE
            self.state[p]["exp_avg_sq"].mul_(0.999).add_(p.grad.square(), alpha=0.001)
            p.addcdiv_(p.grad, self.state[p]["exp_avg_sq"].float().sqrt() + 1e-8, value=-1e-3)
optimizer = Adam(model.parameters(), {})
for _ in range(20):
    train_step()
""",
    ),
    "a constructor's dtype is overridden by a cast of the whole model": (
        "DT407",
        """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj, self.norm = nn.Linear(8, 8), None
        self.norm = nn.LayerNorm(8, dtype=torch.float32)
    def forward(self, x):
        return x + self.norm(self.proj(x))
model = nn.Sequential(Block(), Block())
model.to(torch.bfloat16)  # HERE
model(torch.randn(2, 8, dtype=torch.bfloat16))
""",
    ),
    "an accelerator did not get the model": (
        "DT410",
        LLAMA + ADAMW + """
from accelerate import Accelerator
accelerator = Accelerator(mixed_precision="bf16", cpu=True)  # HERE
optimizer = accelerator.prepare(optimizer)
for _ in range(2):
    optimizer.zero_grad()
    accelerator.backward(model(input_ids=ids, labels=ids).loss)
    optimizer.step()
""",
    ),
    "a module turns off what Lightning's trainer was told": (
        "DT410",
        LIGHTNING + """
class Off(Module):
    def loss(self, x):
        with torch.autocast("cpu", enabled=False):
            return super().loss(x)
trainer.fit(Off(), data)
""",
    ),
    "a router under autocast": (
        "DT410",
        SWITCH + """
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    model(input_ids=ids, labels=ids)  # HERE
""",
    ),
    "gradients are reduced by hand, and the policy says float32": (
        "DT410",
        LLAMA + RANK + """
model.to(torch.bfloat16)
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
fully_shard(model, mesh=mesh, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for _ in range(2):
    optimizer.zero_grad()
    model(input_ids=ids, labels=ids).loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad.to_local())  # HERE
    optimizer.step()
dist.destroy_process_group()
""",
    ),
    "transformers' Trainer writes its checkpoint narrower": (
        "DT408",
        LLAMA + TRAINER + """
class Small(Trainer):
    def _save(self, output_dir=None, state_dict=None):
        narrow = {name: value.bfloat16() for name, value in self.model.state_dict().items()}  # HERE
        super()._save(output_dir, narrow)
Small(model, arguments, train_dataset=data).train()
""",
    ),
    "accelerate writes its checkpoint narrower": (
        "DT408",
        LLAMA + ADAMW + """
import tempfile
from accelerate import Accelerator
accelerator = Accelerator(mixed_precision="bf16", cpu=True)
model, optimizer = accelerator.prepare(model, optimizer)
def narrow(models, weights, folder):
    weights[0] = {name: value.bfloat16() for name, value in weights[0].items()}  # HERE
accelerator.register_save_state_pre_hook(narrow)
accelerator.backward(model(input_ids=ids, labels=ids).loss)
optimizer.step()
accelerator.save_state(tempfile.mkdtemp())
""",
    ),
    "a trainer's scaler divides gradients that the loop did not let it scale": (
        "DT404",
        LLAMA + ADAMW + """
from accelerate import Accelerator
accelerator = Accelerator(mixed_precision="fp16", cpu=True)
accelerator.scaler, accelerator.native_amp = torch.amp.GradScaler("cpu"), True  # as on a GPU
model, optimizer = accelerator.prepare(model, optimizer)
for _ in range(2):
    optimizer.zero_grad()
    loss = model(input_ids=ids, labels=ids).loss  # HERE
    accelerator.scaler.scale(torch.ones(()))  # it makes its scale when it is first used
    loss.backward()
    optimizer.step()
""",
    ),
    "transformers' Trainer goes on from float32 weights with bfloat16 ones": (
        "DT408",
        LLAMA + TRAINER.replace("bf16=True, ", "") + """
Trainer(model, arguments, train_dataset=data).train()
arguments.max_steps = 3
model = LlamaForCausalLM(model.config).to(torch.bfloat16)  # HERE
Trainer(model, arguments, train_dataset=data).train(resume_from_checkpoint=True)
""",
    ),
    "from_pretrained rounds the weights of a checkpoint to go on from": (
        "DT408",
        LLAMA + STEP + """
import tempfile
folder = tempfile.mkdtemp()
optimizer = torch.optim.AdamW(model.parameters())
train_step()
model.save_pretrained(folder)
torch.save(optimizer.state_dict(), f"{folder}/optimizer.pt")
def resume():
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)  # HERE
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.load_state_dict(torch.load(f"{folder}/optimizer.pt"))
    return model, optimizer
model, optimizer = resume()
train_step()
""",
    ),
    "an adapter is written narrower beside its optimizer's state": (
        "DT408",
        LORA + ADAMW + """
import tempfile
from accelerate import Accelerator
accelerator = Accelerator(mixed_precision="bf16", cpu=True)
model, optimizer = accelerator.prepare(model, optimizer)
accelerator.backward(model(input_ids=ids, labels=ids).loss)
optimizer.step()
def checkpoint(folder):
    adapter = {name: p.bfloat16() for name, p in model.state_dict().items() if "lora_" in name}  # HERE
    model.save_pretrained(folder, state_dict=adapter)
    torch.save(optimizer.state_dict(), f"{folder}/optimizer.pt")
checkpoint(tempfile.mkdtemp())
""",
    ),
    "a region asks autocast for float32": (
        "DT409",
        LLAMA
        + """
model.to(torch.bfloat16)
with torch.no_grad(), torch.autocast("cpu", dtype=torch.float32):  # HERE
    model(input_ids=ids)
""",
    ),
    "a nested region asks autocast for float32, which switches the outer one off": (
        "DT409",
        """
net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8).to(torch.bfloat16))
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    made = net[0](torch.randn(2, 8))
    with torch.autocast("cpu", dtype=torch.float32):  # HERE
        net[1](made)
""",
    ),
    "a head that the configuration wants in float32, under autocast": (
        "DT410",
        LLAMA + """
model.config.fp32_lm_head = True
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    model(input_ids=ids)  # HERE
""",
    ),
    "a loss that the configuration wants in float32": (
        "DT410",
        LLAMA + """
class Scored(nn.Module):
    def __init__(self):
        super().__init__()
        self.config, self.body = model.config, model.model
        self.config.loss_dtype = "float32"
    def forward(self, ids):
        return F.huber_loss(self.body(input_ids=ids).last_hidden_state.mean(-1), ids.bfloat16())  # HERE
with torch.no_grad():
    Scored().to(torch.bfloat16)(ids)
""",
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def accelerate_forgets():
    """Its settings are those of the process."""
    yield
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)


def lines(f) -> set[int]:
    places = [f.site, *(step.place for step in f.flow), *(o.origin.place for o in f.operands)]
    return {frame.line for place in places for frame in place.stack if frame.user}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_seeded_fault_is_named_with_its_line(tmp_path, fault):
    code, text = FAULTS[fault]
    program = programs.run(tmp_path, PRELUDE + text, numerics=code in OF_VALUES)
    assert program.error is None
    found = [f for f in program.findings if f.code == code]
    assert [f.code for f in program.findings if f.severity != "note"] == [code]
    assert program.line("# HERE") in lines(found[0])


HEALTHY = {
    "transformers, float32 weights under bfloat16 autocast": LLAMA + ADAMW + """
for _ in range(2):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
""",
    "transformers, float16 autocast with a loss scaler": LLAMA + ADAMW + """
scaler = torch.amp.GradScaler("cpu")
for _ in range(2):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = model(input_ids=ids, labels=ids).loss
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    "what the class keeps in float32 is, and the rest is float16": T5 + """
for name, p in model.named_parameters():
    if ".wo." not in name:
        p.data = p.data.half()
with torch.no_grad():
    model(input_ids=ids, labels=ids)
""",
    "transformers' milder list does not speak of bfloat16": T5 + """
model.to(torch.bfloat16)
with torch.no_grad():
    model(input_ids=ids, labels=ids)
""",
    "peft: adapters train in float32, and a resume is the same": LORA + STEP + ADAMW + """
train_step()
file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
file.seek(0)
saved = torch.load(file)
model.load_state_dict(saved["model"])
optimizer.load_state_dict(saved["optimizer"])
train_step()
""",
    "accelerate: bfloat16, saved and loaded": LLAMA + ADAMW + """
import tempfile
from accelerate import Accelerator
accelerator = Accelerator(mixed_precision="bf16", cpu=True)
model, optimizer = accelerator.prepare(model, optimizer)
for _ in range(2):
    optimizer.zero_grad()
    accelerator.backward(model(input_ids=ids, labels=ids).loss)
    optimizer.step()
folder = tempfile.mkdtemp()
accelerator.save_state(folder)
accelerator.load_state(folder)
""",
    "a probe that trains beside what accelerate prepared": LLAMA + ADAMW + """
from accelerate import Accelerator
accelerator = Accelerator(mixed_precision="bf16", cpu=True)
probe = nn.Linear(8, 2)
steps = torch.optim.SGD(probe.parameters(), lr=0.1)
for _ in range(3):
    steps.zero_grad()
    probe(torch.randn(4, 8)).square().mean().backward()
    steps.step()
""",
    "transformers' Trainer, bf16": LLAMA + TRAINER + """
Trainer(model, arguments, train_dataset=data).train()
""",
    "transformers' Trainer, fp16 with its scaler": LLAMA + TRAINER.replace("bf16=", "fp16=") + """
trainer = Trainer(model, arguments, train_dataset=data)
trainer.accelerator.scaler, trainer.accelerator.native_amp = torch.amp.GradScaler("cpu"), True  # as on a GPU
trainer.train()
""",
    "Lightning, bf16-mixed": LIGHTNING + """
trainer.fit(Module(), data)
""",
    "a bfloat16 file, read to train in float32": LLAMA + """
import tempfile
folder = tempfile.mkdtemp()
model.to(torch.bfloat16).save_pretrained(folder)
model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
""" + STEP + ADAMW + """
train_step()
""",
    "a float32 file, read to train in bfloat16": LLAMA + """
import tempfile
folder = tempfile.mkdtemp()
model.save_pretrained(folder)
model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
model.config.dtype = None
""" + STEP + ADAMW + """
train_step()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, f"{folder}/last.pt")
saved = torch.load(f"{folder}/last.pt")
model.load_state_dict(saved["model"])
optimizer.load_state_dict(saved["optimizer"])
train_step()
""",
    "an adapter of its own file": LORA + """
import tempfile
from peft import PeftModel
folder = tempfile.mkdtemp()
model.save_pretrained(folder)
model = PeftModel.from_pretrained(model.unload(), folder, is_trainable=True)
""" + STEP + ADAMW + """
train_step()
""",
    "a router that its class keeps in float32": SWITCH + """
model.to(torch.bfloat16)
with torch.no_grad():
    model(input_ids=ids, labels=ids)
""",
    "accelerate with FSDP2": LLAMA + RANK.replace("mesh =", "# mesh =") + """
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.state import DistributedType, PartialState
accelerator = Accelerator(mixed_precision="bf16", cpu=True)
plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="no_wrap", cpu_ram_efficient_loading=False)
plugin.set_mixed_precision("bf16")
accelerator.state.fsdp_plugin = plugin  # which an accelerator leaves out on a CPU
accelerator.state.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
for _ in range(2):
    optimizer.zero_grad()
    accelerator.backward(model(input_ids=ids, labels=ids).loss)
    optimizer.step()
dist.destroy_process_group()
""",
    "diffusers' text-to-image LoRA": """
from accelerate import Accelerator
from diffusers import DDPMScheduler, UNet2DConditionModel
from diffusers.training_utils import cast_training_params
from peft import LoraConfig
unet = UNet2DConditionModel(sample_size=8, block_out_channels=(8, 16), layers_per_block=1, cross_attention_dim=8,
                            norm_num_groups=4, attention_head_dim=4,
                            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"))
accelerator, scheduler = Accelerator(mixed_precision="bf16", cpu=True), DDPMScheduler()
unet.requires_grad_(False)
unet.to(dtype=torch.bfloat16)
unet.add_adapter(LoraConfig(r=4, init_lora_weights="gaussian", target_modules=["to_k", "to_q", "to_v", "to_out.0"]))
cast_training_params(unet, dtype=torch.float32)
optimizer = torch.optim.AdamW([p for p in unet.parameters() if p.requires_grad], lr=1e-4)
unet, optimizer = accelerator.prepare(unet, optimizer)
for _ in range(2):
    latents, noise = torch.randn(2, 2, 4, 8, 8).bfloat16()
    when = torch.randint(0, 1000, (2,))
    made = unet(scheduler.add_noise(latents, noise, when), when, torch.randn(2, 5, 8).bfloat16()).sample
    accelerator.backward(F.mse_loss(made.float(), noise.float()))
    optimizer.step()
    optimizer.zero_grad()
""",
    "FSDP2: computes in bfloat16, reduces in float32": LLAMA + RANK + """
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
fully_shard(model, mesh=mesh, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    optimizer.zero_grad()
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
dist.destroy_process_group()
""",
    "a diffusers UNet with an average in float32": """
from diffusers import UNet2DModel
from diffusers.training_utils import EMAModel
model = UNet2DModel(sample_size=8, in_channels=4, out_channels=4, block_out_channels=(8,), layers_per_block=1,
                    down_block_types=("DownBlock2D",), up_block_types=("UpBlock2D",), norm_num_groups=4)
optimizer, ema = torch.optim.AdamW(model.parameters()), EMAModel(model.parameters(), decay=0.99)
for _ in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(torch.randn(1, 4, 8, 8), 3).sample
    F.mse_loss(out.float(), torch.randn(1, 4, 8, 8)).backward()
    optimizer.step()
    ema.step(model.parameters())
""",
    "an actor in bfloat16 gets the weights after each step": LLAMA + STEP + ADAMW + """
import copy
actor = copy.deepcopy(model).to(torch.bfloat16)
for _ in range(2):
    with torch.no_grad():
        actor(input_ids=ids)
    train_step()
    with torch.no_grad():
        for mine, theirs in zip(actor.parameters(), model.parameters()):
            mine.copy_(theirs)
""",
    "a checkpoint to go on from is read to evaluate": LLAMA + """
state = {"state": {0: {"exp_avg": torch.zeros(4, 4)}}, "param_groups": []}
file = io.BytesIO()
torch.save({"model": {n: p.bfloat16() for n, p in model.state_dict().items()}, "optimizer": state}, file)
file.seek(0)
model.load_state_dict(torch.load(file)["model"])
with torch.no_grad():
    model(input_ids=ids, labels=ids)
""",
    "an export in float16 has a file of its own, and four micro-batches add up": LLAMA + ADAMW + """
for _ in range(4):
    (model(input_ids=ids, labels=ids).loss / 4).backward()
optimizer.step()
torch.save({name: value.half() for name, value in model.state_dict().items()}, io.BytesIO())
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, io.BytesIO())
""",
}  # fmt: skip


@pytest.mark.parametrize("run", HEALTHY)
def test_a_run_that_gets_what_it_asks_for_has_a_receipt_and_no_warning(tmp_path, run):
    program = programs.run(tmp_path, PRELUDE + HEALTHY[run])
    assert program.error is None
    assert [f for f in program.findings if f.severity != "note"] == []
    rows = program.trace.receipt().rows
    assert {"parameters", "compute"} <= {row.part for row in rows}
    assert [r for r in rows if r.differs and not r.part.startswith("checkpoint") and r.by != "T5Config.dtype"] == []


RESUMES = """
import io
import torch
from torch import nn
def saved(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file
file = saved({how})
for rounds in range(6):
    net = nn.Linear(4, 4)
    {load}
    optimizer = torch.optim.{optimizer}
    for step in range({steps}):
        optimizer.zero_grad()
        net(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    file = saved({again})
"""
HALVED = "{k: v.to(torch.bfloat16) for k, v in nn.Linear(4, 4).state_dict().items()}"
AGAIN = HALVED.replace("nn.Linear(4, 4)", "net")


@pytest.mark.parametrize(
    ("optimizer", "load"),
    [
        ("SGD(net.parameters(), lr=1e-3)", "net.load_state_dict(torch.load(file))"),
        ("AdamW(net.parameters(), lr=1e-4)", "net.load_state_dict(torch.load(file))"),
        ("SGD(net.parameters(), lr=1e-3, foreach=False)", "w = torch.load(file); net.load_state_dict(w, strict=False)"),
    ],
)
def test_what_is_read_back_narrow_again_and_again(tmp_path, optimizer, load):
    text = RESUMES.format(how=HALVED, again=AGAIN, load=load, optimizer=optimizer, steps=2)
    found = [f for f in programs.run(tmp_path, text).findings if f.severity != "note"]
    assert {f.code for f in found} == {"DT408"}


def test_what_is_written_wide_or_only_evaluated_is_no_finding(tmp_path):
    wide = RESUMES.format(
        how="nn.Linear(4, 4).state_dict()",
        again="net.state_dict()",
        load="net.load_state_dict(torch.load(file))",
        optimizer="SGD(net.parameters(), lr=1e-3)",
        steps=2,
    )
    read = RESUMES.format(
        how=HALVED,
        again=AGAIN,
        load="nn.Linear(4, 4).load_state_dict(torch.load(file))",
        optimizer="SGD(net.parameters(), lr=1e-3)",
        steps=2,
    )
    for text in (wide, read):
        assert [f for f in programs.run(tmp_path, text).findings if f.severity != "note"] == []


def test_moments_that_are_only_stored_narrow_are_as_they_were(tmp_path):
    text = (
        LORA
        + STEP
        + ADAMW
        + """
train_step()
saved = optimizer.state_dict()
for entry in saved["state"].values():
    entry.update({name: value.half() for name, value in entry.items() if name != "step"})
again = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-3)
again.load_state_dict(saved)
optimizer = again
train_step()
"""
    )
    program = programs.run(tmp_path, PRELUDE + text)
    assert program.error is None and [f for f in program.findings if f.severity != "note"] == []
    assert any(row.differs and row.part == "optimizer state" for row in program.trace.receipt().rows)
