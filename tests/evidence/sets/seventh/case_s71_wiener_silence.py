"""
title: Wiener filtering of a float64 mixture: silent frames cannot be zeroed
expect: collision
thread: https://github.com/sigsep/open-unmix-pytorch/issues/89

Expectation, written first.  The separator is called with a float64
spectrogram (the user asked for double precision).  The fill value for silent
frames is made by torch.tensor(0.0) without a dtype, so it is float32, and
writing it through a tensor of frame indices is index_put, which wants both
sides in one dtype.  BORN is the line that creates the fill value; giving it
dtype=y.dtype mends it.
"""
import torch

torch.manual_seed(3)


def stft_like(frames=60, bins=33, channels=2):
    mag = torch.rand(frames, bins, channels, dtype=torch.float64)
    mag[10:18] = 0.0
    mag[40:44] = 0.0
    return mag


class SoftMaskSeparator:
    """y = mask * x with an EM refinement of the source power spectra."""

    def __init__(self, n_sources=3, iterations=2, eps=1e-10):
        self.n_sources, self.iterations, self.eps = n_sources, iterations, eps

    def initial(self, x):
        w = torch.softmax(torch.randn(self.n_sources, dtype=x.dtype), 0)
        return x.unsqueeze(-1) * w

    def silent_frames(self, x, threshold=1e-8):
        return torch.nonzero(x.abs().sum((1, 2)) < threshold).squeeze(-1)

    def refine(self, x, y):
        t = self.silent_frames(x)
        silence = torch.tensor(0.0, device=x.device)  # BORN
        for _ in range(self.iterations):
            power = y.abs() ** 2
            gain = power / (power.sum(-1, keepdim=True) + self.eps)
            y = x.unsqueeze(-1) * gain
            y[t, ...] = silence  # COLLIDES
        return y

    def __call__(self, x):
        return self.refine(x, self.initial(x))


def main():
    mixture = stft_like()
    separator = SoftMaskSeparator()
    sources = separator(mixture)
    residual = (sources.sum(-1) - mixture).abs().max().item()
    print(f"largest reconstruction residual = {residual:.3e}")


if __name__ == "__main__":
    main()
