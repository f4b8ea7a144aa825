"""
title: Joint velocities of a robot arm are differenced over float32 unix time stamps
expect: silent:precision-loss|downcast|round-trip|cancellation
thread: https://github.com/facebookresearch/fairo/pull/537
measured: peak velocity = 25.129 rad/s (true 2.513), torque saturated 90.4% of the time
widened: peak velocity = 2.513 rad/s (true 2.513), torque saturated 0.0% of the time

Expectation, written first.  The controller logs seconds since 1970 at 1 kHz.
torch.tensor of a list of Python floats gives float32, whose step at 1.7e9 is
128 seconds: neighbouring stamps are equal, dt is zero, and the clamp that
guards the division turns every velocity into nonsense without an error.  BORN
is the line that makes the tensor of stamps; float64 there mends it.
"""
import math

import torch

torch.manual_seed(0)


class RobotState:
    def __init__(self, stamp, position):
        self.stamp, self.position = stamp, position


def record(n=800, rate=1000.0, start=1717171717.25):
    """One joint swings with 0.8 rad at 0.5 Hz."""
    return [RobotState(start + k / rate, 0.8 * math.sin(math.pi * k / rate)) for k in range(n)]


class VelocityEstimator:
    def __init__(self, smooth=9):
        self.smooth = smooth

    def __call__(self, log):
        stamps = torch.tensor([s.stamp for s in log])  # BORN
        positions = torch.tensor([s.position for s in log], dtype=torch.float64)
        dt = torch.diff(stamps).clamp(min=1e-4)
        velocity = torch.diff(positions) / dt
        kernel = torch.ones(1, 1, self.smooth, dtype=velocity.dtype) / self.smooth
        return torch.nn.functional.conv1d(velocity[None, None], kernel)[0, 0]


class DampingController:
    def __init__(self, gain=2.0):
        self.gain = gain

    def torque(self, velocity):
        return (-self.gain * velocity).clamp(-6, 6)


def main():
    velocity = VelocityEstimator()(record())
    torque = DampingController().torque(velocity)
    peak = velocity.abs().max().item()
    saturated = (torque.abs() >= 6).double().mean().item()
    print(f"peak velocity = {peak:.3f} rad/s (true 2.513), torque saturated {100 * saturated:.1f}% of the time")


if __name__ == "__main__":
    main()
