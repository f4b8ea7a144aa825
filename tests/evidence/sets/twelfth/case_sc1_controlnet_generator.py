"""
title: a ControlNet is attached in float32 to a half-precision UNet
expect: collision
thread: https://github.com/huggingface/diffusers/issues/4860
fix_at: 37, 39, 57

Expectation, written first: the time projection is cast to the sample's half precision, and the time embedding's
linear layer of the ControlNet, which kept the loader's default of float32, refuses it.
"""
from dataclasses import dataclass, field

import torch
from diffusers import ControlNetModel, DDIMScheduler, UNet2DConditionModel


@dataclass
class PipelineConfig:
    dtype: torch.dtype = torch.float16
    steps: int = 3
    guidance: float = 5.0
    controlnet: dict = field(default_factory=lambda: {"scale": 0.8})


def tiny_unet():
    return UNet2DConditionModel(
        sample_size=8, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8, cross_attention_dim=16,
        attention_head_dim=4, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    )


def load_unet(config):
    torch.manual_seed(1)
    return tiny_unet().to(config.dtype).eval()


def load_controlnet(unet, dtype=torch.float32):  # BORN
    net = ControlNetModel.from_unet(unet, load_weights_from_unet=True, conditioning_channels=3)
    return net.to(dtype).eval()


def load_lora(unet, rank=2):
    """merge a small low-rank update into the attention projections"""
    g = torch.Generator().manual_seed(5)
    for name, module in unet.named_modules():
        if name.endswith(("to_q", "to_v")):
            up = torch.randn(module.out_features, rank, generator=g)
            down = torch.randn(rank, module.in_features, generator=g)
            module.weight.data += (0.01 * up @ down).to(module.weight.dtype)


class ControlledGenerator:
    def __init__(self, config):
        self.config = config
        self.scheduler = DDIMScheduler(num_train_timesteps=1000)
        self.unet = load_unet(config)
        self.controlnet = load_controlnet(self.unet)
        load_lora(self.unet)

    def prepare(self, hint, embeds):
        dtype = self.config.dtype
        latents = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
        return latents, hint.to(dtype), torch.cat([torch.zeros_like(embeds), embeds]).to(dtype)

    def predict(self, latents, t, embeds, hint):
        model_input = torch.cat([latents] * 2)
        down, mid = self.controlnet(  # COLLIDES
            model_input, t, encoder_hidden_states=embeds, controlnet_cond=torch.cat([hint] * 2),
            conditioning_scale=self.config.controlnet["scale"], return_dict=False,
        )
        noise = self.unet(
            model_input, t, encoder_hidden_states=embeds, down_block_additional_residuals=down,
            mid_block_additional_residual=mid,
        ).sample
        uncond, cond = noise.chunk(2)
        return uncond + self.config.guidance * (cond - uncond)

    @torch.no_grad()
    def __call__(self, hint, embeds):
        latents, hint, embeds = self.prepare(hint, embeds)
        self.scheduler.set_timesteps(self.config.steps)
        for t in self.scheduler.timesteps:
            noise = self.predict(latents, t, embeds, hint)
            latents = self.scheduler.step(noise, t, latents).prev_sample
        return latents


def main():
    torch.manual_seed(0)
    generator = ControlledGenerator(PipelineConfig())
    edges = (torch.rand(1, 3, 64, 64) > 0.8).float()
    out = generator(edges, torch.randn(1, 5, 16))
    print(tuple(out.shape), round(out.float().std().item(), 3))


main()
