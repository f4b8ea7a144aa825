"""
title: the PSNR of the validation set is far too low for nearly identical images
expect: silent:overflow
thread: https://github.com/Glass-Imaging/NTIRE23BokehTransformation/issues/3
measured: PSNR 3.70 dB, weighted MAE 1.714
widened: PSNR 42.11 dB, weighted MAE 1.714; innocent: PSNR 3.70 dB, weighted MAE 1.714
suspect: 40 exact (the mask holds 0, 0.5 and 1 only)

Expectation, written first: both images are uint8 and so is their difference: 100 - 101 becomes 255. A pixel that is one
level too dark counts as if it were 255 levels off. Remedy: float before subtracting. The alpha mask in float16 holds
exact values.
"""
import math

import torch


def calculate_psnr(img0, img1):
    diff = (img0 - img1).float()  # BORN
    mse = (diff ** 2).mean()
    if mse == 0:
        return math.inf
    return (20 * torch.log10(255.0 / torch.sqrt(mse))).item()


def calculate_mae(img0, img1, alpha):
    weight = (alpha + 0.5).float()
    error = (img0.float() - img1.float()).abs() * weight
    return error.mean().item()


class ValidationSet:
    def __init__(self, num_scenes, size):
        self.num_scenes = num_scenes
        self.size = size
        self.generator = torch.Generator().manual_seed(23)

    def load_alpha(self):
        levels = torch.randint(0, 3, (1, self.size, self.size), generator=self.generator)
        return torch.tensor([0.0, 0.5, 1.0], dtype=torch.float16)[levels]

    def __iter__(self):
        for scene in range(self.num_scenes):
            tgt = torch.randint(8, 248, (3, self.size, self.size), generator=self.generator, dtype=torch.uint8)
            yield f"{scene:05d}", tgt, self.load_alpha()


class BokehTransformer:
    """Stands for the network: nearly the target, off by at most three levels."""

    def __init__(self):
        self.generator = torch.Generator().manual_seed(5)

    def __call__(self, tgt):
        noise = torch.randint(-3, 4, tgt.shape, generator=self.generator)
        return (tgt.to(torch.int16) + noise).clamp(0, 255).to(torch.uint8)


def evaluate(dataset, model):
    psnrs, maes = [], []
    for name, tgt, alpha in dataset:
        pred = model(tgt)
        psnrs.append(calculate_psnr(pred, tgt))
        maes.append(calculate_mae(pred, tgt, alpha))
    return sum(psnrs) / len(psnrs), sum(maes) / len(maes)


def main():
    psnr, mae = evaluate(ValidationSet(num_scenes=4, size=48), BokehTransformer())
    print(f"PSNR {psnr:.2f} dB, weighted MAE {mae:.3f}")


if __name__ == "__main__":
    main()
