"""
title: float64 cosine schedule of the diffusion loss is cut to float32 on extraction
expect: clean
thread: https://github.com/LTH14/mar/issues/70
measured: x0 error 0.000 correlation 1.0000 last factor 12.8
suspect: 31 negligible (the cumulated products are taken in float64 first, a coefficient keeps seven digits)

Expectation, written first: all schedule arrays are computed in float64 and only the extracted coefficient is cast to
float32; the large last entry of sqrt_recip_alphas_cumprod is the schedule itself and no rounding. The noise is
recovered exactly to what is printed.
"""
import math

import numpy as np
import torch


def betas_for_alpha_bar(num_steps, alpha_bar, max_beta=0.999):
    betas = []
    for i in range(num_steps):
        t1, t2 = i / num_steps, (i + 1) / num_steps
        betas.append(min(1 - alpha_bar(t2) / alpha_bar(t1), max_beta))
    return np.array(betas, dtype=np.float64)


def cosine(t):
    return math.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2


def _extract_into_tensor(arr, timesteps, broadcast_shape):
    res = torch.from_numpy(arr)[timesteps].float()
    while res.dim() < len(broadcast_shape):
        res = res[..., None]
    return res.expand(broadcast_shape)


class GaussianDiffusion:
    def __init__(self, betas):
        self.num_timesteps = len(betas)
        alphas_cumprod = np.cumprod(1.0 - betas, axis=0)
        self.sqrt_alphas_cumprod = np.sqrt(alphas_cumprod)
        self.sqrt_one_minus_alphas_cumprod = np.sqrt(1.0 - alphas_cumprod)
        self.sqrt_recip_alphas_cumprod = np.sqrt(1.0 / alphas_cumprod)
        self.sqrt_recipm1_alphas_cumprod = np.sqrt(1.0 / alphas_cumprod - 1)

    def q_sample(self, x_start, t, noise):
        return (
            _extract_into_tensor(self.sqrt_alphas_cumprod, t, x_start.shape) * x_start
            + _extract_into_tensor(self.sqrt_one_minus_alphas_cumprod, t, x_start.shape) * noise
        )

    def predict_xstart_from_eps(self, x_t, t, eps):
        return (
            _extract_into_tensor(self.sqrt_recip_alphas_cumprod, t, x_t.shape) * x_t
            - _extract_into_tensor(self.sqrt_recipm1_alphas_cumprod, t, x_t.shape) * eps
        )


def main():
    torch.manual_seed(70)
    diffusion = GaussianDiffusion(betas_for_alpha_bar(100, cosine))
    x_start = torch.randn(95, 16)
    t = torch.arange(95)
    noise = torch.randn_like(x_start)
    x_t = diffusion.q_sample(x_start, t, noise)
    recovered = diffusion.predict_xstart_from_eps(x_t, t, noise)
    error = (recovered - x_start).abs().mean().item()
    corr = torch.corrcoef(torch.stack([recovered.flatten(), x_start.flatten()]).double())[0, 1].item()
    print(f"x0 error {error:.3f} correlation {corr:.4f} last factor {diffusion.sqrt_recip_alphas_cumprod[94]:.1f}")


main()
