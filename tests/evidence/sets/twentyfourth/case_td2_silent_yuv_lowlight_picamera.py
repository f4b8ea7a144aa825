"""
title: dark regions of the captured frame turn bright and the colours flip
expect: silent:integer-overflow|overflow|wraparound
thread: https://github.com/waveform80/picamera/pull/263
measured: mean RGB 173.9 23.1 178.4 saturated 0.45
widened: mean RGB 12.8 16.5 12.4 saturated 0.00; innocent: mean RGB 174.1 23.2 178.5 saturated 0.45
suspect: 55 range (clamped to 0..255 in float just before)

Expectation, written first: the offsets 16 and 128 are subtracted from the planes while they are still uint8, so dark
luma and every chroma below 128 wrap to large values before the colour matrix. Remedy: float planes before the
subtraction. The cast of the result to uint8 is harmless.
"""
import torch


class PiCameraFrame:
    def __init__(self, width, height, generator):
        self.width = width
        self.height = height
        y = 8 + 40 * torch.rand(height, width, generator=generator)
        u = 118 + 16 * torch.rand(height // 2, width // 2, generator=generator)
        v = 118 + 16 * torch.rand(height // 2, width // 2, generator=generator)
        self.data = torch.cat([y.flatten(), u.flatten(), v.flatten()]).round().to(torch.uint8)


def raw_resolution(width, height):
    return (width + 31) // 32 * 32, (height + 15) // 16 * 16


def bytes_to_yuv(data, resolution):
    width, height = resolution
    fwidth, fheight = raw_resolution(width, height)
    y_len = fwidth * fheight
    uv_len = (fwidth // 2) * (fheight // 2)
    y = data[:y_len].reshape(fheight, fwidth)
    u = data[y_len:y_len + uv_len].reshape(fheight // 2, fwidth // 2)
    v = data[y_len + uv_len:].reshape(fheight // 2, fwidth // 2)
    u = u.repeat_interleave(2, 0).repeat_interleave(2, 1)
    v = v.repeat_interleave(2, 0).repeat_interleave(2, 1)
    return torch.stack([y, u, v], dim=2)[:height, :width]


YUV_TO_RGB = torch.tensor([
    [1.164, 0.000, 1.596],
    [1.164, -0.392, -0.813],
    [1.164, 2.017, 0.000],
])


def yuv_to_rgb(yuv):
    planes = yuv.clone()  # BORN
    planes[..., 0] = planes[..., 0] - 16  # BORN
    planes[..., 1:] = planes[..., 1:] - 128  # BORN
    rgb = planes.float() @ YUV_TO_RGB.T
    return rgb.clamp(0, 255).to(torch.uint8)


class PiRGBArray:
    def __init__(self, resolution):
        self.resolution = resolution
        self.array = None

    def flush(self, frame):
        self.array = yuv_to_rgb(bytes_to_yuv(frame.data, self.resolution))  # BORN
        return self.array


def main():
    generator = torch.Generator().manual_seed(263)
    frame = PiCameraFrame(64, 48, generator)
    array = PiRGBArray((64, 48)).flush(frame).float()
    saturated = (array >= 250).float().mean().item()
    print("mean RGB", " ".join(f"{c:.1f}" for c in array.mean(dim=(0, 1))), f"saturated {saturated:.2f}")


main()
