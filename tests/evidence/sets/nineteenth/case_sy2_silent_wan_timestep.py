"""
title: Denoising steps share one time embedding because the timestep is cast to bf16 first
expect: silent:precision-loss|downcast
thread: https://github.com/modelscope/DiffSynth-Studio/pull/1025
measured: steps conditioned like the step before: 10 of 100
widened: steps conditioned like the step before: 0 of 100
innocent: steps conditioned like the step before: 10 of 100
suspect: 23 after

Expectation, written first: The scheduler's timestep, close to 1000 for most of a shifted schedule, is cast to the pipeline's bf16, whose step is 4 there,
before the sinusoid is taken. Several steps then get the same conditioning. The cast of the finished sinusoid to bf16 in front of the time
embedding looks the same, but its values lie in [-1, 1] and stay distinct.
"""
import torch
import torch.nn as nn


def sinusoidal_embedding_1d(dim, position, dtype):
    half = dim // 2
    freqs = torch.pow(10000, -torch.arange(half, dtype=torch.float64).div(half))
    sinusoid = torch.outer(position.type(torch.float64), freqs)
    emb = torch.cat([torch.cos(sinusoid), torch.sin(sinusoid)], dim=1)
    return emb.to(dtype)


class FlowMatchScheduler:
    def __init__(self, num_train_timesteps=1000, shift=5.0):
        self.num_train_timesteps = num_train_timesteps
        self.shift = shift

    def set_timesteps(self, num_inference_steps):
        sigmas = torch.linspace(1.0, 0.003, num_inference_steps)
        self.sigmas = self.shift * sigmas / (1 + (self.shift - 1) * sigmas)
        self.timesteps = self.sigmas * self.num_train_timesteps

    def step(self, model_output, index, sample):
        sigma = self.sigmas[index]
        sigma_next = self.sigmas[index + 1] if index + 1 < len(self.sigmas) else 0.0
        return sample + model_output * (sigma_next - sigma)


class WanModel(nn.Module):
    def __init__(self, dim=48, freq_dim=256):
        super().__init__()
        self.freq_dim = freq_dim
        self.time_embedding = nn.Sequential(nn.Linear(freq_dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.patch_embedding = nn.Linear(16, dim)
        self.head = nn.Linear(dim, 16)

    def set_dtype(self, dtype):
        self.time_embedding.to(dtype)
        self.patch_embedding.to(dtype)
        self.head.to(dtype)

    def forward(self, x, timestep):
        t = self.time_embedding(sinusoidal_embedding_1d(self.freq_dim, timestep, x.dtype))
        h = self.patch_embedding(x) * (1 + t.to(x.dtype))
        return self.head(h), t


class WanVideoPipeline:
    def __init__(self, torch_dtype=torch.bfloat16):
        torch.manual_seed(0)
        self.torch_dtype = torch_dtype
        self.scheduler = FlowMatchScheduler()
        self.dit = WanModel()
        self.dit.set_dtype(torch_dtype)

    @torch.no_grad()
    def __call__(self, num_inference_steps=100):
        self.scheduler.set_timesteps(num_inference_steps)
        latents = torch.randn(1, 32, 16)
        repeated, previous = 0, None
        for index, timestep in enumerate(self.scheduler.timesteps):
            timestep = timestep.unsqueeze(0).to(dtype=self.torch_dtype)  # BORN
            noise_pred, t_emb = self.dit(latents.to(self.torch_dtype), timestep)
            repeated += int(previous is not None and torch.equal(previous, t_emb))
            previous = t_emb
            latents = self.scheduler.step(noise_pred.float(), index, latents)
        return latents, repeated


def main():
    pipe = WanVideoPipeline()
    latents, repeated = pipe(num_inference_steps=100)
    print(f"steps conditioned like the step before: {repeated} of 100")


if __name__ == "__main__":
    main()
