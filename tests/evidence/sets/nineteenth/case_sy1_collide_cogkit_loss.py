"""
title: CogView4 training, compute_loss: mat1 and mat2 must have the same dtype, Float and BFloat16
expect: collision
thread: https://github.com/THUDM/CogKit/issues/32

Expectation, written first: the transformer is loaded in the training dtype bfloat16, but the encoded images and prompt embeddings come out
of the cache as float32 and the noise is drawn like them. The model input is float32 and the transformer's patch embedding refuses it. The
batch's tensors must be cast to the training dtype in compute_loss (or when they are cached).
"""
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from diffusers import CogView4Transformer2DModel, FlowMatchEulerDiscreteScheduler


class LatentCacheDataset(torch.utils.data.Dataset):
    def __init__(self, size, channels, text_dim):
        g = torch.Generator().manual_seed(0)
        self.latents = torch.randn(size, channels, 8, 8, generator=g)  # BORN
        self.prompts = torch.randn(size, 6, text_dim, generator=g)

    def __len__(self):
        return len(self.latents)

    def __getitem__(self, i):
        return {"encoded_image": self.latents[i], "prompt_embedding": self.prompts[i]}


class Cogview4Trainer:
    def __init__(self, mixed_precision="bf16"):
        self.weight_dtype = torch.bfloat16 if mixed_precision == "bf16" else torch.float32
        self.accelerator = Accelerator(cpu=True)
        transformer = CogView4Transformer2DModel(
            patch_size=2, in_channels=4, out_channels=4, num_layers=1, attention_head_dim=8, num_attention_heads=2,
            text_embed_dim=16, time_embed_dim=16, condition_dim=8, pos_embed_max_size=16,
        ).to(self.weight_dtype)
        self.scheduler = FlowMatchEulerDiscreteScheduler(num_train_timesteps=100)
        optimizer = torch.optim.AdamW(transformer.parameters(), lr=1e-4)
        loader = torch.utils.data.DataLoader(LatentCacheDataset(4, 4, 16), batch_size=2)
        self.transformer, self.optimizer, self.loader = self.accelerator.prepare(transformer, optimizer, loader)

    def add_noise(self, latent, noise, sigmas):
        sigmas = sigmas.view(-1, 1, 1, 1).to(latent.dtype)
        return (1 - sigmas) * latent + sigmas * noise, noise - latent

    def compute_loss(self, batch):
        prompt_embeds = batch["prompt_embedding"]  # BORN
        latent = batch["encoded_image"]  # BORN
        batch_size, _, height, width = latent.shape
        sigmas = torch.rand(batch_size)
        timestep = (sigmas * self.scheduler.config.num_train_timesteps).long()
        noise = torch.randn_like(latent)
        model_input, model_label = self.add_noise(latent, noise, sigmas)
        size = torch.tensor([[height * 8, width * 8]] * batch_size, dtype=self.weight_dtype)
        crop = torch.zeros(batch_size, 2, dtype=self.weight_dtype)
        noise_pred = self.transformer(  # COLLIDES
            hidden_states=model_input, encoder_hidden_states=prompt_embeds, timestep=timestep,  # BORN
            original_size=size, target_size=size, crop_coords=crop, return_dict=False,
        )[0]
        return F.mse_loss(noise_pred.float(), model_label.float())

    def fit(self):
        for step, batch in enumerate(self.loader):
            loss = self.compute_loss(batch)
            self.accelerator.backward(loss)
            self.optimizer.step()
            self.optimizer.zero_grad()
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(42)
    Cogview4Trainer().fit()
