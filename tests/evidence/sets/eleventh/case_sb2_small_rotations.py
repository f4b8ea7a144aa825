"""
title: the twist of a joint is the arc cosine of a float32 quaternion's scalar part
expect: silent:precision-loss|downcast
thread: https://github.com/NVIDIA/warp/issues/1631
measured: asked for 40.0 mrad, moved 129.9 mrad, sensor says 20.0 mrad
widened: asked for 40.0 mrad, moved 38.9 mrad, sensor says 38.9 mrad

Expectation, written first: below half a milliradian the cosine rounds to one and the angle is zero; a joint that
creeps is seen to stand still, and the integral action winds up its command.
"""
import torch


class Joint:
    """a slow axis: moves by what it is told, a little less each time"""

    def __init__(self, gain=0.8):
        self.angle, self.gain = 0.0, gain

    def move(self, delta):
        self.angle += self.gain * delta

    def orientation(self):
        half = torch.tensor(self.angle / 2, dtype=torch.float64)
        return torch.stack([half.sin(), half * 0, half * 0, half.cos()])


class TwistSensor:
    def __init__(self, axis):
        self.axis = torch.tensor(axis)
        self.last = None

    def unit(self, q):
        q = q.to(torch.float32)  # BORN
        return q / q.norm()

    def multiply_conjugate(self, a, b):
        av, aw, bv, bw = a[:3], a[3], -b[:3], b[3]
        return torch.cat([aw * bv + bw * av + torch.linalg.cross(av, bv), (aw * bw - av @ bv)[None]])

    def increment(self, q):
        q = self.unit(q)
        if self.last is None:
            self.last = q
            return 0.0
        rel = self.multiply_conjugate(q, self.last)
        self.last = q
        angle = 2 * torch.acos(rel[3].clamp(-1, 1))
        return (angle * torch.sign(rel[:3] @ self.axis.to(rel.dtype))).item()


def track(speed, steps):
    joint, sensor = Joint(), TwistSensor([1.0, 0.0, 0.0])
    sensor.increment(joint.orientation())
    believed, target = 0.0, 0.0
    for _ in range(steps):
        target += speed
        joint.move(speed + 0.02 * (target - believed))
        believed += sensor.increment(joint.orientation())
    return joint.angle, believed, target


def main():
    angle, believed, target = track(speed=1e-4, steps=400)
    print(f"asked for {1000 * target:.1f} mrad, moved {1000 * angle:.1f} mrad, sensor says {1000 * believed:.1f} mrad")


main()
