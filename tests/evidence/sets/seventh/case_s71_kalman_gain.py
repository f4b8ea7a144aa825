"""
title: Multi-object tracker mixes a float64 covariance from NumPy with float32 detections
expect: collision
thread: https://github.com/ultralytics/ultralytics/pull/25499

Expectation, written first.  The Kalman filter of a tracker builds its initial
covariance with np.diag over Python literals, which is float64, while the state
and the motion matrix come from float32 detections.  The sums with the noise
matrices keep float64 by promotion; the update solves the float64 innovation
covariance against a float32 right side and torch.linalg.solve refuses.
BORN is the torch.from_numpy line in initiate().
"""
import numpy as np
import torch

torch.manual_seed(0)


class KalmanFilterXY:
    """Constant-velocity filter over (x, y, vx, vy)."""

    def __init__(self, dt=1.0):
        self.motion = torch.eye(4)
        self.motion[0, 2] = self.motion[1, 3] = dt
        self.observe = torch.eye(2, 4)
        self.q = torch.diag(torch.tensor([0.1, 0.1, 0.01, 0.01]))
        self.r = torch.eye(2) * 0.5

    def initiate(self, xy):
        mean = torch.cat([xy, torch.zeros_like(xy)])
        std = [2 * 0.5, 2 * 0.5, 10 * 1e-1, 10 * 1e-1]
        covariance = torch.from_numpy(np.diag(np.square(std)))  # BORN
        return mean, covariance

    def predict(self, mean, covariance):
        f = self.motion.to(covariance.dtype)
        return self.motion @ mean, f @ covariance @ f.T + self.q

    def update(self, mean, covariance, xy):
        h = self.observe.to(covariance.dtype)
        innovation = xy - self.observe @ mean
        s = h @ covariance @ h.T + self.r
        weighted = torch.linalg.solve(s, innovation)  # COLLIDES
        gain = covariance @ h.T
        mean = mean + gain @ weighted
        covariance = covariance - gain @ torch.linalg.solve(s, gain.T)
        return mean, covariance


class Track:
    def __init__(self, kf, xy):
        self.kf = kf
        self.mean, self.cov = kf.initiate(xy)

    def step(self, xy):
        self.mean, self.cov = self.kf.predict(self.mean, self.cov)
        self.mean, self.cov = self.kf.update(self.mean, self.cov, xy)


def detections(n=30):
    start, velocity = torch.tensor([5.0, 2.0]), torch.tensor([1.5, -0.5])
    return [start + velocity * k + 0.3 * torch.randn(2) for k in range(n)]


if __name__ == "__main__":
    stream = detections()
    track = Track(KalmanFilterXY(), stream[0])
    for xy in stream[1:]:
        track.step(xy)
    print("estimated velocity:", [round(v, 2) for v in track.mean[2:].tolist()])
