"""
title: the EMA copy of a UNet is cast to the run's weight dtype and never follows the model
expect: silent:lost-update
thread: https://github.com/d8ahazard/sd_dreambooth_extension/pull/1415
measured: travelled: model 6.62, ema 0.35; loss: model 0.121, ema 1.103
widened: travelled: model 6.62, ema 0.69; loss: model 0.121, ema 0.723

Expectation, written first: one EMA update is a thousandth of the distance to the model; in bf16 that is below half a
step of nearly every weight, so the average stands where it began and its loss stays that of the untrained model.
The latents cached in float16 make no difference.
"""
import copy

import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, UNet2DModel


class LatentCache:
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        blobs = torch.randn(n, 1, 2, 2, generator=g)
        self.latents = F.interpolate(blobs, scale_factor=4, mode="bilinear").to(torch.float16)

    def batch(self, size, g):
        pick = torch.randint(0, len(self.latents), (size,), generator=g)
        return self.latents[pick].float()


class EMAModel:
    """averaged copy of the trained module"""

    def __init__(self, model, decay=0.999):
        self.decay = decay
        self.averaged_model = copy.deepcopy(model).to(dtype=torch.bfloat16)  # BORN
        self.averaged_model.requires_grad_(False)

    @torch.no_grad()
    def step(self, model):
        for mine, theirs in zip(self.averaged_model.parameters(), model.parameters()):
            mine.mul_(self.decay).add_(theirs.to(mine.dtype), alpha=1 - self.decay)

    def restored(self):
        return copy.deepcopy(self.averaged_model).float()


class DreamboothTrainer:
    def __init__(self, seed=0):
        torch.manual_seed(seed)
        self.gen = torch.Generator().manual_seed(seed)
        self.unet = UNet2DModel(
            sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(16, 16),
            norm_num_groups=4, down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D"),
        )
        self.start = [p.detach().clone() for p in self.unet.parameters()]
        self.noise_scheduler = DDPMScheduler(num_train_timesteps=1000, beta_schedule="scaled_linear")
        self.optimizer = torch.optim.AdamW(self.unet.parameters(), lr=2e-3, weight_decay=0.0)
        self.ema_unet = EMAModel(self.unet)
        self.cache = LatentCache(256, seed)

    def loss(self, net, size=8):
        latents = self.cache.batch(size, self.gen)
        noise = torch.randn(latents.shape, generator=self.gen)
        t = torch.randint(0, 1000, (size,), generator=self.gen)
        return F.mse_loss(net(self.noise_scheduler.add_noise(latents, noise, t), t).sample, noise)

    def run(self, steps=160):
        for _ in range(steps):
            loss = self.loss(self.unet)
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.unet.parameters(), 1.0)
            self.optimizer.step()
            self.ema_unet.step(self.unet)

    def travelled(self, net):
        return sum((p.detach().float() - s).norm() ** 2 for p, s in zip(net.parameters(), self.start)).sqrt().item()

    @torch.no_grad()
    def validate(self, net):
        self.gen.manual_seed(99)
        return self.loss(net.eval(), 128).item()


trainer = DreamboothTrainer()
trainer.run()
ema = trainer.ema_unet.restored()
print(f"travelled: model {trainer.travelled(trainer.unet):.2f}, ema {trainer.travelled(ema):.2f}; "
      f"loss: model {trainer.validate(trainer.unet):.3f}, ema {trainer.validate(ema):.3f}")
