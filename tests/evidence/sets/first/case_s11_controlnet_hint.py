"""
title: a ControlNet's hint image stays float32 while the models are bfloat16
expect: collision
needs: diffusers
fix_at: 39

After huggingface/diffusers#4860 and hotshotco/Hotshot-XL#8 ("fix: control net for fp16": Input type (float) and bias type (c10::Half)
should be the same). Latents and text were made in the weights' dtype; the hint comes from an image preparer that knows no dtype.
Right change: cast the prepared hint to the ControlNet's dtype.
"""
import numpy as np
import torch
from diffusers import ControlNetModel, UNet2DConditionModel

SIZES = dict(block_out_channels=(16, 32), norm_num_groups=8, layers_per_block=1, cross_attention_dim=16, attention_head_dim=4,
             down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"))


class HintPreparer:
    def __init__(self, size):
        self.size = size

    def canny(self, image):
        edges = np.abs(np.diff(image.mean(-1), axis=1, prepend=0)) > 40
        return np.repeat(edges[..., None], 3, -1)

    def __call__(self, images):
        stack = np.stack([self.canny(i) for i in images]).astype(np.float32)
        return torch.from_numpy(stack).permute(0, 3, 1, 2)  # BORN


class Sampler:
    def __init__(self, unet, controlnet, dtype):
        self.unet, self.controlnet, self.dtype = unet, controlnet, dtype
        self.prepare = HintPreparer(32)

    @torch.no_grad()
    def __call__(self, images, text, steps=2):
        hint = self.prepare(images)
        latents = torch.randn(len(images), 4, 16, 16, dtype=self.dtype)
        for t in torch.linspace(900, 0, steps).long():
            down, middle = self.controlnet(latents, t, text, hint, return_dict=False)  # COLLIDES
            noise = self.unet(latents, t, text, down_block_additional_residuals=down, mid_block_additional_residual=middle).sample
            latents = latents - noise / steps
        return latents


torch.manual_seed(0)
unet = UNet2DConditionModel(sample_size=16, up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), **SIZES).to(torch.bfloat16).eval()
controlnet = ControlNetModel.from_unet(unet, conditioning_embedding_out_channels=(8, 16)).to(torch.bfloat16).eval()
images = np.random.default_rng(0).integers(0, 255, (1, 32, 32, 3), dtype=np.uint8)
print(Sampler(unet, controlnet, torch.bfloat16)(images, torch.randn(1, 3, 16, dtype=torch.bfloat16)).dtype)
