"""
title: an image is integrated in bfloat16 over many small steps, most of each step is rounded away
expect: silent:lost-update|precision-loss|downcast|round-trip
needs: diffusers
fix_at: 37

After https://github.com/huggingface/diffusers/pull/3005 and https://github.com/finegrain-ai/refiners/pull/449.
Right: the latents are float32, the model sees a bfloat16 copy. The bfloat16 model is innocent.
"""
import torch
from diffusers import UNet2DModel

torch.manual_seed(214)


def velocity_model(dtype):
    model = UNet2DModel(sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(16, 32), norm_num_groups=8,
                        down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D"))
    with torch.no_grad():
        model.conv_out.weight.mul_(3.0)
    return model.to(dtype).eval()


class Sampler:
    def __init__(self, model, steps):
        self.model, self.steps = model, steps

    def start(self, shape, seed):
        noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        return noise.to(self.model.dtype)  # BORN

    @torch.no_grad()
    def __call__(self, shape, seed):
        latents, dt = self.start(shape, seed), 1.0 / self.steps
        for i in range(self.steps):
            velocity = self.model(latents.to(self.model.dtype), 999.0 * (1 - i * dt)).sample
            latents = latents + dt * velocity
        return latents


shape, seed = (2, 3, 8, 8), 5
model = velocity_model(torch.bfloat16)
made = Sampler(model, steps=200)(shape, seed).double()
exact = Sampler(model.double(), steps=200)(shape, seed)
noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).double()
way = (exact - noise).norm().item()
print("way of the latents", round(way, 3), "error against it", round((made - exact).norm().item() / way, 4))
