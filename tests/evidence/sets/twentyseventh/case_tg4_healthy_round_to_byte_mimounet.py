"""
title: half a grey level is added to clipped predictions before they are stored as bytes
expect: clean
thread: https://github.com/chosj95/MIMO-UNet/issues/11
measured: PSNR 26.49 dB, stored 26.49 dB, brightest byte 255
suspect: 38 nil (255.5 is cut to 255, and the added half makes the cut a rounding)

Expectation, written first: after the clip to [0, 1] the largest value is 1 + 0.5 / 255, so mul(255) gives at most 255.5
and byte() cuts it to 255; nothing wraps. The added half level turns the cut into a proper rounding. The PSNR of the
stored picture differs from that of the float prediction by less than a hundredth of a decibel.
"""
import torch
import torch.nn as nn


class ResBlock(nn.Module):
    def __init__(self, channel):
        super().__init__()
        self.main = nn.Sequential(nn.Conv2d(channel, channel, 3, padding=1), nn.ReLU(),
                                  nn.Conv2d(channel, channel, 3, padding=1))

    def forward(self, x):
        return self.main(x) + x


class DeblurNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = ResBlock(3)
        for p in self.parameters():
            nn.init.normal_(p, std=0.03)

    def forward(self, x):
        return 1.04 * self.body(x) - 0.02


def to_pil_bytes(pic):
    return pic.mul(255).byte()


def peak_signal_noise_ratio(a, b):
    return (-10 * torch.log10((a - b).pow(2).mean())).item()


class Adder:
    def __init__(self):
        self.count, self.num = 0, 0.0

    def __call__(self, num):
        self.count += 1
        self.num += num

    def average(self):
        return self.num / self.count


@torch.no_grad()
def _eval(model, loader):
    stored, floating = Adder(), Adder()
    brightest = 0
    for input_img, label_img in loader:
        pred = model(input_img)
        pred_clip = torch.clamp(pred, 0, 1)
        floating(peak_signal_noise_ratio(pred_clip, label_img))
        pred_clip += 0.5 / 255
        saved = to_pil_bytes(pred_clip.squeeze(0))
        brightest = max(brightest, int(saved.max()))
        stored(peak_signal_noise_ratio(saved.float() / 255, label_img.squeeze(0)))
    print(f"PSNR {floating.average():.2f} dB, stored {stored.average():.2f} dB, brightest byte {brightest}")


def gopro(n):
    for _ in range(n):
        sharp = nn.functional.interpolate(torch.rand(1, 3, 8, 8) * 1.2 - 0.1, scale_factor=6, mode="bicubic").clamp(0, 1)
        blurred = nn.functional.avg_pool2d(sharp, 5, stride=1, padding=2, count_include_pad=False)
        yield blurred, sharp


def main():
    torch.manual_seed(11)
    _eval(DeblurNet().eval(), gopro(4))


main()
