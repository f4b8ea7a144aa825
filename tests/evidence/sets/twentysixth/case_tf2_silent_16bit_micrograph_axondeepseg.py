"""
title: 16-bit micrographs are segmented as noise
expect: silent:overflow|downcast
thread: https://github.com/axondeepseg/axondeepseg/issues/170
measured: 8 bits: axon share 0.20 dice 0.99 / 16 bits: axon share 0.44 dice 0.30
widened: 8 bits: axon share 0.20 dice 0.99 / 16 bits: axon share 0.20 dice 0.99; innocent: 8 bits: axon share 0.20 dice 0.99 / 16 bits: axon share 0.44 dice 0.30
suspect: 43 exact (the mask is 0 or 255)

Expectation, written first: the reader assumes 8-bit input and stores the grey levels as uint8; of a 16-bit level only the
low byte stays, which has nothing to do with the brightness. Remedy: keep the integer depth (or scale to 8 bits
before the cast). The written mask in uint8 is exact.
"""
import torch
import torch.nn.functional as F


def load_acquisition(acquisition):
    """Grey levels as the microscope wrote them, 8 or 16 bits."""
    image = acquisition["pixels"]
    image = image.to(torch.uint8)  # BORN
    return image


def rescale_intensity(image):
    image = image.float()
    low, high = image.amin(), image.amax()
    return (image - low) / (high - low)


class AxonSegmenter:
    def __init__(self, smoothing=5, threshold=0.5):
        self.kernel = torch.full((1, 1, smoothing, smoothing), 1.0 / smoothing ** 2)
        self.pad = smoothing // 2
        self.threshold = threshold

    def predict(self, image):
        x = rescale_intensity(image)[None, None]
        x = F.conv2d(F.pad(x, [self.pad] * 4, mode="reflect"), self.kernel)
        return (x[0, 0] > self.threshold).float()


def write_mask(mask):
    return (mask * 255).to(torch.uint8)


def dice(mask, truth):
    mask = mask.float() / 255
    return (2 * (mask * truth).sum() / (mask.sum() + truth.sum())).item()


def simulate(bits, size=96, seed=170):
    generator = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    truth = torch.zeros(size, size, dtype=torch.bool)
    for cy, cx, r in [(20, 24, 11), (62, 30, 15), (40, 70, 13), (78, 76, 9)]:
        truth |= (yy - cy) ** 2 + (xx - cx) ** 2 < r * r
    brightness = torch.where(truth, 0.8, 0.25) + 0.04 * torch.randn(size, size, generator=generator)
    pixels = (brightness.clamp(0, 1) * (2 ** bits - 1)).round().to(torch.int32)
    return {"pixels": pixels, "truth": truth.float(), "bits": bits}


def main():
    segmenter = AxonSegmenter()
    for bits in (8, 16):
        acquisition = simulate(bits)
        mask = write_mask(segmenter.predict(load_acquisition(acquisition)))
        share = mask.float().mean().item() / 255
        print(f"{bits} bits: axon share {share:.2f} dice {dice(mask, acquisition['truth']):.2f}")


if __name__ == "__main__":
    main()
