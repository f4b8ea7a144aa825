"""
title: a LoRA is added to the UNet and then the whole UNet goes to the weight dtype of mixed precision
expect: collision
thread: https://github.com/huggingface/diffusers/issues/6086
fix_at: 22, 30, 31, 50, 61, 75

Expectation, written first: the cast comes after the adapter, so the trainable weights are float16 and so are their
gradients; the scaler of mixed precision refuses to unscale float16 gradients before the clipping.
"""
import torch
from diffusers import DDPMScheduler, UNet2DModel
from peft import LoraConfig, get_peft_model


def build_unet():
    return UNet2DModel(sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(8, 16),
                       down_block_types=("DownBlock2D", "AttnDownBlock2D"), norm_num_groups=4,
                       up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=8)


def weight_dtype(mixed_precision):
    return {"no": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[mixed_precision]


def prepare_unet(args):
    torch.manual_seed(args["seed"])
    unet = build_unet().requires_grad_(False)
    lora = LoraConfig(r=args["rank"], lora_alpha=args["rank"], init_lora_weights="gaussian",
                      target_modules=["to_k", "to_q", "to_v", "to_out.0"])
    unet = get_peft_model(unet, lora)
    unet.to(dtype=weight_dtype(args["mixed_precision"]))  # BORN
    return unet


class Pictures:
    def __init__(self, count, seed=3):
        gen = torch.Generator().manual_seed(seed)
        self.images = torch.rand(count, 3, 8, 8, generator=gen) * 2 - 1
        self.gen = gen

    def batches(self, size):
        for part in self.images.split(size):
            yield part, torch.randn(part.shape, generator=self.gen), torch.randint(0, 100, (len(part),), generator=self.gen)


class Loop:
    def __init__(self, unet, args):
        self.unet, self.args = unet, args
        self.scheduler = DDPMScheduler(num_train_timesteps=100)
        self.params = [p for p in unet.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.params, lr=args["lr"])
        self.scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=args["mixed_precision"] == "fp16")

    def loss(self, images, noise, steps):
        noisy = self.scheduler.add_noise(images, noise, steps)
        with torch.autocast("cpu", dtype=torch.float16, enabled=self.args["mixed_precision"] == "fp16"):
            pred = self.unet(noisy.to(weight_dtype(self.args["mixed_precision"])), steps).sample
        return (pred.float() - noise).square().mean()

    def clip(self):
        self.scaler.unscale_(self.optimizer)  # COLLIDES
        return torch.nn.utils.clip_grad_norm_(self.params, self.args["max_grad_norm"])

    def step(self, batch):
        loss = self.loss(*batch)
        self.scaler.scale(loss).backward()
        self.clip()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        return loss.item()


if __name__ == "__main__":
    args = {"mixed_precision": "fp16", "rank": 4, "lr": 1e-3, "max_grad_norm": 1.0, "seed": 0}  # BORN
    loop = Loop(prepare_unet(args), args)
    print("losses", [round(loop.step(b), 4) for b in Pictures(6).batches(2)])
