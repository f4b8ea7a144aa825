"""
title: a robot controller gets the time of day as a single precision number
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/facebookresearch/fairo/pull/537
measured: time seen by the controller 0.0 s, error at the end 0.333 rad
widened: time seen by the controller 10.0 s, error at the end 0.000 rad

Expectation, written first: seconds since 1970 have steps of 128 in float32, so the time between two states is zero on
almost every tick and the integral of the error stays where it is. The gripper width is half precision, but only says
open or closed.
"""
import torch


class RobotState:
    def __init__(self, stamp, position, gripper):
        self.timestamp = torch.tensor(stamp, dtype=torch.float32)  # BORN
        self.position = torch.tensor(position, dtype=torch.float64)
        self.gripper = torch.tensor(gripper, dtype=torch.float16)


class ServoPI(torch.nn.Module):
    def __init__(self, kp, ki):
        super().__init__()
        self.kp, self.ki = kp, ki
        self.integral = torch.zeros((), dtype=torch.float64)
        self.last = None

    def forward(self, state, goal):
        error = goal - state.position
        if self.last is not None:
            self.integral = self.integral + error * (state.timestamp - self.last)
        self.last = state.timestamp
        force = self.kp * error + self.ki * self.integral
        return torch.where(state.gripper > 0.04, force, 0.9 * force)


class Arm:
    """one joint that hangs in gravity"""

    def __init__(self, dt=0.01, start=1_624_890_000.0):
        self.dt, self.now = dt, start
        self.x = self.v = 0.0

    def state(self):
        return RobotState(self.now, self.x, 0.08)

    def step(self, force):
        self.v += self.dt * (force - 4.0 - 3.0 * self.v)
        self.x += self.dt * self.v
        self.now += self.dt


def main():
    arm, servo = Arm(), ServoPI(kp=12.0, ki=8.0)
    goal = torch.tensor(0.5, dtype=torch.float64)
    travelled = 0.0
    before = None
    for _ in range(1000):
        state = arm.state()
        if before is not None:
            travelled += (state.timestamp - before).item()
        before = state.timestamp
        arm.step(servo(state, goal).item())
    print(f"time seen by the controller {travelled:.1f} s, error at the end {abs(goal.item() - arm.x):.3f} rad")


main()
