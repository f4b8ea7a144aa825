"""
title: A zero-terminal-SNR schedule dies with model.half(): the last sigma is infinite and the image NaN
expect: silent:underflow|precision-loss|downcast|round-trip
thread: https://github.com/AUTOMATIC1111/stable-diffusion-webui/issues/14071
measured: sigma_max inf  sigma_min 0.0313 | latent std nan  pixel std nan
widened: sigma_max 7071  sigma_min 0.0292 | latent std 0.018  pixel std 0.01
innocent: sigma_max inf  sigma_min 0.0313 | latent std nan  pixel std nan
suspect: 53 pixels-only

Expectation, written first, its mechanism put right after the first run: model.half() casts the buffer alphas_cumprod along with the weights; the tiny last alpha of the zero-terminal-SNR schedule is below float16's smallest number and becomes 0, so the sampler's first sigma is infinite and every
latent NaN. The autoencoder in half is as low in precision, but it only rounds the decoded pixels.
"""
import torch
import torch.nn as nn

dtype_vae = torch.float16


class AutoencoderKL(nn.Module):
    def __init__(self):
        super().__init__()
        self.decoder = nn.Conv2d(4, 3, 1)

    def decode(self, z):
        return self.decoder(z.to(self.decoder.weight.dtype)).float()


class LatentDiffusion(nn.Module):
    def __init__(self, timesteps=1000, linear_start=0.00085, linear_end=0.012):
        super().__init__()
        betas = torch.linspace(linear_start ** 0.5, linear_end ** 0.5, timesteps, dtype=torch.float64) ** 2
        alphas_bar_sqrt = torch.cumprod(1.0 - betas, dim=0).sqrt()
        first, last = alphas_bar_sqrt[0].clone(), alphas_bar_sqrt[-1].clone()
        alphas_bar = ((alphas_bar_sqrt - last) * first / (first - last)) ** 2
        alphas_bar[-1] = 2e-8
        self.register_buffer("alphas_cumprod", alphas_bar.float())
        self.first_stage_model = AutoencoderKL()
        self.data_std = nn.Parameter(torch.full((1,), 0.03125))

    def apply_model(self, x, sigma):
        var = self.data_std.float() ** 2
        return x * sigma / (var + sigma ** 2)


def load_model_weights(no_half=False):
    torch.manual_seed(0)
    model = LatentDiffusion()
    if not no_half:
        vae = model.first_stage_model
        model.first_stage_model = None
        model.half()  # BORN
        model.first_stage_model = vae
        model.first_stage_model.to(dtype_vae)
    return model


class CompVisDenoiser:
    def __init__(self, model):
        self.inner_model = model
        alphas_cumprod = model.alphas_cumprod.float()
        self.sigmas = ((1 - alphas_cumprod) / alphas_cumprod) ** 0.5

    def get_sigmas(self, n):
        t = torch.linspace(len(self.sigmas) - 1, 0, n).round().long()
        return torch.cat([self.sigmas[t], torch.zeros(1)])

    def __call__(self, x, sigma):
        return x - self.inner_model.apply_model(x, sigma) * sigma


@torch.no_grad()
def sample_euler(denoiser, x, sigmas):
    for i in range(len(sigmas) - 1):
        d = (x - denoiser(x, sigmas[i])) / sigmas[i]
        x = x + d * (sigmas[i + 1] - sigmas[i])
    return x


def main():
    model = load_model_weights()
    denoiser = CompVisDenoiser(model)
    sigmas = denoiser.get_sigmas(30)
    latents = sample_euler(denoiser, torch.randn(2, 4, 16, 16) * sigmas[0], sigmas)
    pixels = model.first_stage_model.decode(latents)
    print(f"sigma_max {sigmas[0].item():.0f}  sigma_min {sigmas[-2].item():.4f}")
    print(f"latent std {latents.std().item():.3f}  pixel std {pixels.std(dim=(0, 2, 3)).mean().item():.2f}")


if __name__ == "__main__":
    main()
