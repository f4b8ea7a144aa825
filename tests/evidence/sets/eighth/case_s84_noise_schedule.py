"""
title: the products of a noise schedule with a thousand steps
expect: silent:precision-loss|downcast|lost-update
thread: https://github.com/huggingface/diffusers/pull/182
measured: last product 0.0049, snr at step 200 17.755, left of the picture 0.053
widened: last product 0.0047, snr at step 200 3.060, left of the picture 0.051

Expectation, written first: the factors 1 - beta are kept in bf16, where numbers just
below 1 are 1/256 apart, so small betas vanish and the cumulative product is far off; the
signal-to-noise at step 200 is six times too high. BORN is the cast of the alphas; float32 mends.
The half latents are only rounded.
"""
import torch


class Schedule:
    def __init__(self, steps=1000, start=0.00085, end=0.012):
        betas = torch.linspace(start ** 0.5, end ** 0.5, steps) ** 2
        self.alphas = (1.0 - betas).to(torch.bfloat16)  # BORN
        self.alphas_cumprod = self.running_product(self.alphas)

    @staticmethod
    def running_product(alphas):
        out, acc = [], torch.ones(())
        for a in alphas.float():
            acc = acc * a
            out.append(acc)
        return torch.stack(out)

    def add_noise(self, latents, noise, step):
        keep = self.alphas_cumprod[step]
        return keep.sqrt() * latents + (1 - keep).sqrt() * noise

    def snr(self, step):
        keep = self.alphas_cumprod[step]
        return (keep / (1 - keep)).item()


class Latents:
    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)

    def sample(self):
        return torch.randn(4, 16, 16, generator=self.gen)


def left_of_image(schedule, latents, noise):
    """Correlation of the noisiest sample with the picture."""
    noisy = schedule.add_noise(latents.float(), noise, -1)
    pair = torch.stack([noisy.flatten(), latents.float().flatten()])
    return torch.corrcoef(pair)[0, 1].item()


def main():
    schedule, source = Schedule(), Latents(0)
    latents = source.sample().half()
    noise = source.sample()
    print("last product %.4f, snr at step 200 %.3f, left of the picture %.3f"
          % (schedule.alphas_cumprod[-1].item(), schedule.snr(200),
             left_of_image(schedule, latents, noise)))


if __name__ == "__main__":
    main()
