"""
title: the denoiser is loaded in bfloat16, the text encoder beside it is not
expect: collision
needs: diffusers, transformers
fix_at: 35, 40, 44

After https://github.com/huggingface/diffusers/issues/4198 and https://github.com/HiDream-ai/HiDream-I1/pull/54.
Right: load the text encoder in the pipeline's dtype.
"""
import torch
from diffusers import DDIMScheduler, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel

torch.manual_seed(0)


def load_unet(dtype):
    unet = UNet2DConditionModel(sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(16, 32),
                                down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
                                up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), cross_attention_dim=24,
                                attention_head_dim=8, norm_num_groups=8)
    return unet.to(dtype).eval()


def load_text_encoder():
    config = CLIPTextConfig(vocab_size=100, hidden_size=24, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
                            max_position_embeddings=16, bos_token_id=98, eos_token_id=99, pad_token_id=0)
    return CLIPTextModel(config).eval()  # BORN


class Pipeline:
    def __init__(self, dtype=torch.bfloat16):
        self.dtype = dtype
        self.unet = load_unet(dtype)
        self.text_encoder = load_text_encoder()
        self.scheduler = DDIMScheduler(num_train_timesteps=100)

    def encode(self, prompt, negative):
        ids = torch.cat([negative, prompt])
        return self.text_encoder(ids).last_hidden_state

    @torch.no_grad()
    def __call__(self, prompt, negative, steps=3, guidance=5.0):
        context = self.encode(prompt, negative)
        latents = torch.randn(prompt.shape[0], 4, 8, 8, dtype=self.dtype)
        self.scheduler.set_timesteps(steps)
        for t in self.scheduler.timesteps:
            doubled = torch.cat([latents, latents])
            noise = self.unet(doubled, t, encoder_hidden_states=context).sample  # COLLIDES
            without, with_text = noise.chunk(2)
            latents = self.scheduler.step(without + guidance * (with_text - without), t, latents).prev_sample
        return latents


prompt = torch.tensor([[98, 5, 17, 31, 99, 0, 0, 0]])
negative = torch.tensor([[98, 99, 0, 0, 0, 0, 0, 0]])
print(Pipeline()(prompt, negative).float().std().item())
