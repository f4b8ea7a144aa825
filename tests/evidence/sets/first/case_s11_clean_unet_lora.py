"""
title: a LoRA on a frozen bfloat16 UNet as the diffusers example does it
expect: clean
needs: diffusers, peft

The healthy twin of the training scripts: the base is cast first, the adapter's parameters are float32 (cast_training_params), forward
under autocast, integer timesteps, the loss in float32, gradients clipped, AdamW over the adapters only.
"""
import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, UNet2DConditionModel
from diffusers.training_utils import cast_training_params
from peft import LoraConfig

torch.manual_seed(0)
weight_dtype = torch.bfloat16
unet = UNet2DConditionModel(
    sample_size=8, block_out_channels=(16, 32), norm_num_groups=8, layers_per_block=1, cross_attention_dim=16, attention_head_dim=4,
    down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"))
unet.requires_grad_(False)
unet.to(dtype=weight_dtype)
unet.add_adapter(LoraConfig(r=4, lora_alpha=4, init_lora_weights="gaussian", target_modules=["to_q", "to_k", "to_v", "to_out.0"]))
cast_training_params(unet, dtype=torch.float32)
trained = [p for p in unet.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-3)
scheduler = DDPMScheduler()
unet.train()
for step in range(6):
    latents = torch.randn(2, 4, 8, 8).to(weight_dtype)
    text = torch.randn(2, 5, 16).to(weight_dtype)
    noise = torch.randn_like(latents)
    timesteps = torch.randint(0, scheduler.config.num_train_timesteps, (2,))
    noisy = scheduler.add_noise(latents, noise, timesteps)
    with torch.autocast("cpu", dtype=weight_dtype):
        predicted = unet(noisy, timesteps, text).sample
    loss = F.mse_loss(predicted.float(), noise.float())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    optimizer.zero_grad()
print(loss.isfinite().item(), {p.dtype for p in trained})
