"""
title: fftn inside a half-precision 3D network raises "Unsupported dtype Half"
expect: collision
thread: https://github.com/Project-MONAI/research-contributions/issues/253
fix_at: 55

Expectation, written first: the inferer converts model and volume to float16, and the spectral block passes the float16
features straight to torch.fft.fftn. The FFT on the CPU has no half implementation and raises RuntimeError.
"""
import torch
import torch.fft as fft
from torch import nn


class SpectralFilter(nn.Module):
    def __init__(self, channels, cutoff=0.25):
        super().__init__()
        self.cutoff = cutoff
        self.gain = nn.Parameter(torch.ones(1, channels, 1, 1, 1))

    def low_pass(self, shape, device):
        grids = torch.meshgrid(*[fft.fftfreq(n, device=device) for n in shape], indexing="ij")
        radius = torch.stack(grids).pow(2).sum(0).sqrt()
        return (radius <= self.cutoff).float()

    def forward(self, x):
        freq = fft.fftn(x, dim=(2, 3, 4))  # BORN COLLIDES
        freq = freq * self.low_pass(x.shape[2:], x.device)
        out = fft.ifftn(freq, dim=(2, 3, 4)).real
        return x + self.gain * out.to(x.dtype)


class SpectralSegNet(nn.Module):
    def __init__(self, in_channels=1, features=8, out_channels=2):
        super().__init__()
        self.stem = nn.Conv3d(in_channels, features, 3, padding=1)
        self.norm = nn.InstanceNorm3d(features, affine=True)
        self.spectral = SpectralFilter(features)
        self.head = nn.Conv3d(features, out_channels, 1)

    def forward(self, x):
        x = torch.relu(self.norm(self.stem(x)))
        x = self.spectral(x)
        return self.head(x)


class VolumeInferer:
    def __init__(self, network, half=True):
        self.dtype = torch.float16 if half else torch.float32  # BORN
        self.network = network.to(self.dtype).eval()

    @torch.no_grad()
    def __call__(self, volume):
        volume = (volume - volume.mean()) / volume.std()
        logits = self.network(volume.to(self.dtype))
        return logits.float().softmax(dim=1)


def main():
    torch.manual_seed(0)
    inferer = VolumeInferer(SpectralSegNet(), half=True)  # BORN
    volumes = torch.rand(2, 1, 12, 12, 12) * 400.0
    for index, volume in enumerate(volumes):
        prob = inferer(volume[None])
        print(f"volume {index} foreground {prob[:, 1].mean().item():.4f}")


if __name__ == "__main__":
    main()
