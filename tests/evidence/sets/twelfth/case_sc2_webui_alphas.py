"""
title: the whole checkpoint object is halved on load, and with it the buffer the sampler takes its noise levels from
expect: silent:precision-loss|downcast
thread: https://github.com/AUTOMATIC1111/stable-diffusion-webui/issues/14071
measured: equal neighbours among the first 60 levels 35, smallest level 0.0000, largest error of a level 100.0%, finite False
widened: equal neighbours among the first 60 levels 0, smallest level 0.0100, largest error of a level 0.0%, finite True

Expectation, written first: just below one float16 has steps of 5e-4, the first values of alphas_cumprod differ by less
than that or by odd parts of it; neighbouring noise levels become equal and the smallest is far off, so an image noised
lightly and denoised is wrong. The weights in half make no difference to that.
"""
import torch
from torch import nn


class LatentDiffusion(nn.Module):
    def __init__(self, timesteps=1000, linear_start=1e-4, linear_end=2e-2):
        super().__init__()
        betas = torch.linspace(linear_start**0.5, linear_end**0.5, timesteps, dtype=torch.float64) ** 2
        self.register_buffer("alphas_cumprod", torch.cumprod(1.0 - betas, 0).float())
        self.model = nn.Linear(16, 16, bias=False)
        nn.init.eye_(self.model.weight)

    def apply_model(self, x, sigma):
        """optimal noise prediction for latents of unit variance"""
        return self.model(x.to(self.model.weight.dtype)).float() * sigma / (1 + sigma**2)


class CheckpointLoader:
    def __init__(self, no_half=False):
        self.no_half = no_half

    def load(self):
        sd_model = LatentDiffusion().eval()
        if not self.no_half:
            sd_model.half()  # BORN
        return sd_model


class CompVisDenoiser:
    """k-diffusion's wrapper: sigmas from the model's alphas"""

    def __init__(self, model):
        self.inner = model
        alphas = model.alphas_cumprod.float()
        self.sigmas = ((1 - alphas) / alphas) ** 0.5

    def __call__(self, x, sigma):
        return x - sigma * self.inner.apply_model(x, sigma)


@torch.no_grad()
def img2img(denoiser, image, strength_steps, gen, true_sigmas):
    """noise the image to the level of a step and go down to zero by Euler's method"""
    steps = list(range(strength_steps, -1, -1))
    x = image + torch.randn(image.shape, generator=gen) * true_sigmas[strength_steps]
    for here, there in zip(steps, steps[1:] + [None]):
        sigma = denoiser.sigmas[here]
        target = denoiser.sigmas[there] if there is not None else torch.zeros(())
        x = x + (x - denoiser(x, sigma)) / sigma * (target - sigma)
    return x


def schedule_report(sigmas, first=60):
    equal = int((sigmas[1:first] == sigmas[: first - 1]).sum())
    return f"equal neighbours among the first {first} levels {equal}, smallest level {sigmas[0].item():.4f}"


gen = torch.Generator().manual_seed(5)
sd_model = CheckpointLoader().load()
denoiser = CompVisDenoiser(sd_model)
betas = torch.linspace(1e-4**0.5, 2e-2**0.5, 1000, dtype=torch.float64) ** 2
acp = torch.cumprod(1 - betas, 0)
truth = ((1 - acp) / acp).sqrt().float()
off = ((denoiser.sigmas - truth).abs() / truth)[:20].max().item()
out = img2img(denoiser, torch.randn(64, 16, generator=gen), 12, gen, truth)
print(f"{schedule_report(denoiser.sigmas)}, largest error of a level {100 * off:.1f}%, finite {bool(out.isfinite().all())}")
