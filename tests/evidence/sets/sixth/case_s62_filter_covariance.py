"""
title: a tracker keeps its covariance in bfloat16, after a good first measurement it is gone and later ones hardly count
expect: silent:precision-loss|downcast|cancellation|lost-update

After https://github.com/rpng/open_vins/issues/324, https://github.com/pykalman/pykalman/pull/211 and https://github.com/NVIDIA/cuml/pull/4259.
Right: the covariance is float32 (or wider).
"""
import torch

torch.manual_seed(723)


class Tracker:
    """Position and speed of an object from noisy positions."""

    def __init__(self, first, noise=0.2, drive=2e-5, dtype=torch.bfloat16):
        self.state = torch.tensor([first, 0.0])
        self.cov = torch.diag(torch.tensor([400.0, 25.0])).to(dtype)  # BORN
        self.noise, self.drive = noise ** 2, drive
        self.move = torch.tensor([[1.0, 1.0], [0.0, 1.0]])

    def step(self, measured):
        dtype = self.cov.dtype
        move = self.move.to(dtype)
        self.state = self.move @ self.state
        cov = move @ self.cov @ move.t()
        cov[1, 1] += self.drive
        gain = cov[:, 0] / (cov[0, 0] + self.noise)
        self.state = self.state + gain.float() * (measured - self.state[0])
        self.cov = cov - torch.outer(gain, cov[0])
        return self.state[0]


def object_(steps):
    speed = 0.8 + 0.004 * torch.randn(steps).cumsum(0)
    return speed.cumsum(0)


def track(dtype=torch.bfloat16, objects=12, steps=150):
    errors, raw = [], []
    for _ in range(objects):
        path = object_(steps)
        measured = path + 0.2 * torch.randn(steps)
        tracker = Tracker(measured[0].item(), dtype=dtype)
        guess = torch.stack([tracker.step(m) for m in measured[1:]])
        errors.append((guess - path[1:])[20:].square().mean())
        raw.append((measured - path)[21:].square().mean())
    return torch.stack(errors).mean().sqrt().item(), torch.stack(raw).mean().sqrt().item(), tracker.cov.diagonal().tolist()


error, raw, spread = track()
print("error of the track", round(error, 3), "of the measurements", round(raw, 3), "variances at the end", [round(v, 5) for v in spread])
