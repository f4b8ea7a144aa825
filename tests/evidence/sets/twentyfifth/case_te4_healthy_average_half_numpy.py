"""
title: averaging a hundred thousand halves
expect: clean
thread: https://github.com/numpy/numpy/issues/7930
measured: values 100000 mean 1.00 / dF/F peak 1.5 baseline residual 0.00
suspect: 29 negligible (torch adds halves in float32 and rounds the mean once)

Expectation, written first: the sum of the frames, 100000, is more than a half can hold, but mean() accumulates in
float32 and only its result, near one, is rounded to half. The means agree with float64 to two decimals; no infinity.
"""
import torch


class Movie:
    def __init__(self, frames, height, width, generator):
        noise = torch.randn(frames, height, width, generator=generator)
        trend = torch.linspace(0.5, 1.5, frames)[:, None, None]
        self.data = (trend + 0.3 * noise).to(torch.float16)

    def __len__(self):
        return len(self.data)


def average_trace(movie):
    return movie.data.flatten(1).mean(dim=1)


def grand_mean(movie):
    return movie.data.mean()


def subtract_baseline(movie, n_frames):
    baseline = movie.data[:n_frames].float().mean(dim=0)
    return movie.data.float() - baseline


def delta_f(movie, n_frames):
    baseline = movie.data[:n_frames].float().mean().item()
    return (average_trace(movie).float() - baseline) / baseline


def peak_frame(trace, width=9):
    kernel = torch.ones(1, 1, width) / width
    smooth = torch.nn.functional.conv1d(trace[None, None], kernel)[0, 0]
    return smooth.max().item()


def main():
    generator = torch.Generator().manual_seed(7930)
    movie = Movie(100, 40, 25, generator)
    trace = delta_f(movie, 20)
    residual = subtract_baseline(movie, 20)
    print(f"values {movie.data.numel()} mean {grand_mean(movie).item():.2f}")
    print(f"dF/F peak {peak_frame(trace):.1f} baseline residual {abs(residual[:20].mean().item()):.2f}")


main()
