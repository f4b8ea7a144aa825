"""
title: raising the brightness of the display image makes it darker
expect: silent:integer-overflow|overflow|wraparound
thread: https://github.com/LCAV/LenslessPiCam/pull/173
measured: capture level 0.5 0.5 0.5
widened: capture level 24.5 32.4 40.5; innocent: capture level 0.5 0.5 0.5
suspect: 35 range (the values are clamped to 0..255 and rounded just before)

Expectation, written first: the image is uint8 and the brightness an integer, so image * brightness stays in uint8 and
wraps before the division by 100. Remedy: a float image before the product. The last cast back to uint8 is harmless.
"""
import torch


class VirtualDisplay:
    def __init__(self, screen_res, pad=0, vshift=0, brightness=100):
        self.screen_res = screen_res
        self.pad = pad
        self.vshift = vshift
        self.brightness = brightness

    def _fit(self, img):
        height, width = self.screen_res
        canvas = torch.zeros(height, width, 3, dtype=img.dtype)
        top = (height - img.shape[0]) // 2 + self.vshift
        left = (width - img.shape[1]) // 2
        canvas[top:top + img.shape[0], left:left + img.shape[1]] = img
        return canvas

    def __call__(self, img):
        if self.pad:
            img = torch.nn.functional.pad(img.permute(2, 0, 1), [self.pad] * 4).permute(1, 2, 0)
        if self.brightness:
            img = img * self.brightness / 100  # BORN
        img = img.round().clamp(0, 255).to(torch.uint8)
        return self._fit(img)


class Sensor:
    def __init__(self, exposure, full_well=255.0):
        self.exposure = exposure
        self.full_well = full_well

    def capture(self, frame, generator):
        light = frame.float().mean(-1) * self.exposure
        shot = torch.poisson(light, generator=generator)
        return shot.clamp(max=self.full_well)


def load_image(height, width, generator):
    ramp = torch.linspace(20, 180, width).expand(height, width)
    texture = 20 * torch.rand(height, width, 3, generator=generator)
    return (ramp.unsqueeze(-1) + texture).to(torch.uint8)


def sweep_brightness(img, levels, generator):
    means = []
    for level in levels:
        display = VirtualDisplay(screen_res=(96, 128), pad=2, brightness=level)
        capture = Sensor(exposure=0.4).capture(display(img), generator)
        means.append(capture[20:70, 30:90].mean().item())
    return means


def main():
    generator = torch.Generator().manual_seed(173)
    img = load_image(64, 80, generator)
    means = sweep_brightness(img, levels=(60, 80, 100), generator=generator)
    print("capture level", " ".join(f"{m:.1f}" for m in means))


main()
