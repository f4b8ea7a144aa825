"""
title: YUV camera frames become uint8 pictures after a clamp
expect: clean
thread: https://github.com/commaai/openpilot/pull/24963
measured: brightness 0.5 saturated 0.1 thumb mean 0.5 shape (24, 32, 3)
suspect: 38 negligible (values are clamped to 0..255 before, the cut is below one grey level)

Expectation, written first: the colour matrix leaves the range 0..255 for saturated colours, but the clamp stands before
the cast to uint8, so nothing wraps; truncation costs at most one level in 255. The printed means agree with float.
"""
import torch


YUV_TO_RGB = torch.tensor([
    [1.0, 1.0, 1.0],
    [0.0, -0.39465, 2.03211],
    [1.13983, -0.58060, 0.0],
])


class VisionBuf:
    def __init__(self, width, height, generator):
        self.width, self.height = width, height
        self.y = torch.randint(0, 256, (height, width), generator=generator).to(torch.uint8)
        self.u = torch.randint(16, 240, (height // 2, width // 2), generator=generator).to(torch.uint8)
        self.v = torch.randint(16, 240, (height // 2, width // 2), generator=generator).to(torch.uint8)


def yuv_to_rgb(y, u, v):
    up = [c.float().repeat_interleave(2, 0).repeat_interleave(2, 1) - 128 for c in (u, v)]
    yuv = torch.stack([y.float(), *up], dim=-1)
    rgb = yuv @ YUV_TO_RGB
    return rgb.clamp(0, 255)


def extract_image(buf):
    rgb = yuv_to_rgb(buf.y, buf.u, buf.v)
    return rgb.to(torch.uint8)


def rois_write_jpeg(image):
    small = image.reshape(image.shape[0] // 4, 4, image.shape[1] // 4, 4, 3)
    return small.float().mean(dim=(1, 3))


def brightness(image):
    return (image.float() / 255).mean().item()


def main():
    generator = torch.Generator().manual_seed(24963)
    buf = VisionBuf(128, 96, generator)
    image = extract_image(buf)
    thumb = rois_write_jpeg(image)
    white = (image == 255).float().mean().item()
    print(f"brightness {brightness(image):.1f} saturated {white:.1f} thumb mean {thumb.mean() / 255:.1f} shape {tuple(thumb.shape)}")


main()
