"""
title: the accumulators of a splatting renderer are made half precision
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/AndrewBoessen/3DGS/issues/45
measured: off by 53.1 grey levels, mean colour [0.58, 0.44, 0.96]
widened: off by 0.0 grey levels, mean colour [0.44, 0.36, 0.56]

Expectation, written first: a haze of many faint splats takes a small share of the light each time; one minus such an
alpha is one in float16 and a colour of a half no longer grows by its share. The colours of the splats are stored in
float16 too, which no picture of eight bits shows.
"""
import torch


class Splats:
    def __init__(self, colour, alpha):
        self.colour = colour.half()
        self.alpha = alpha

    def __len__(self):
        return len(self.alpha)


class Renderer:
    """front to back over sorted splats"""

    def __init__(self, dtype=torch.float16):  # BORN
        self.dtype = dtype

    def render(self, splats, coverage, background):
        pixels = coverage.shape[1]
        light = torch.ones(pixels, 1, dtype=self.dtype)  # BORN
        colour = torch.zeros(pixels, 3, dtype=self.dtype)  # BORN
        for k in range(len(splats)):
            alpha = (splats.alpha[k] * coverage[k])[:, None]
            colour += (light.float() * alpha * splats.colour[k].float()).to(self.dtype)
            light *= (1 - alpha).to(self.dtype)
        return colour.float() + light.float() * background


def grey_levels(image, reference):
    return 255 * (image - reference).abs().mean()


def haze(splats, coverage, background):
    """the closed form for one colour"""
    left = (1 - splats.alpha[:, None].double() * coverage.double()).prod(0)[:, None]
    return ((1 - left) * splats.colour[0].double() + left * background).float()


def to_bytes(image):
    return (image.clamp(0, 1) * 255).round() / 255


def main():
    gen = torch.Generator().manual_seed(27)
    n, pixels = 6000, 400
    grey = torch.tensor([0.75, 0.5, 0.25]).expand(n, 3)
    splats = Splats(grey, torch.full((n,), 2.5e-4))
    coverage = torch.rand(n, pixels, generator=gen)
    background = torch.tensor([0.1, 0.2, 0.9])
    image = Renderer().render(splats, coverage, background)
    reference = haze(splats, coverage, background)
    print(f"off by {grey_levels(to_bytes(image), to_bytes(reference)):.1f} grey levels, mean colour {[round(v, 2) for v in image.mean(0).tolist()]}")


main()
