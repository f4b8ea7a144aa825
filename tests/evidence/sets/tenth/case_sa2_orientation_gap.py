"""
title: small rotations between tracked orientations are measured with acos in float32
expect: silent:precision-loss|downcast
thread: https://github.com/dimforge/nalgebra/issues/543
measured: turned 0.2682 rad, in truth 0.3998
widened: turned 0.3998 rad, in truth 0.3998

Expectation, written first: the real part of a rotation by a ten-thousandth of a radian is
1 - 1.25e-9, which float32 rounds to one; the angle is zero and drift goes unseen.
"""
import torch


def multiply(p, q):
    pw, pv = p[..., :1], p[..., 1:]
    qw, qv = q[..., :1], q[..., 1:]
    w = pw * qw - (pv * qv).sum(-1, keepdim=True)
    v = pw * qv + qw * pv + torch.linalg.cross(pv, qv)
    return torch.cat([w, v], -1)


def from_axis_angle(axis, angle):
    half = angle[..., None] / 2
    return torch.cat([half.cos(), half.sin() * axis], -1)


class Tracker:
    def __init__(self, dtype):
        self.dtype, self.last, self.turned = dtype, None, []

    def push(self, q):
        q = q.to(self.dtype)  # BORN
        if self.last is not None:
            conj = self.last * torch.tensor([1, -1, -1, -1], dtype=q.dtype)
            rel = multiply(conj, q)
            self.turned.append(2 * torch.acos(rel[0].abs().clamp(max=1)))
        self.last = q

    def path(self):
        return torch.stack(self.turned).sum().item()


def main(frames=2000, step=2e-4):
    axis = torch.nn.functional.normalize(torch.tensor([0.3, -0.5, 0.8], dtype=torch.float64), dim=0)
    tracker = Tracker(torch.float32)  # BORN
    for i in range(frames):
        tracker.push(from_axis_angle(axis, torch.tensor(i * step, dtype=torch.float64)))
    print(f"turned {tracker.path():.4f} rad, in truth {(frames - 1) * step:.4f}")


main()
