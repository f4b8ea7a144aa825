"""
title: a controller gets the time of a robot's state as one float
expect: silent:precision-loss|downcast
thread: https://github.com/facebookresearch/fairo/pull/537
measured: distance to the goal 1.852 rad, effort 2111
widened: distance to the goal 0.000 rad, effort 2111

Expectation, written first: seconds since 1970 in float32 move in steps of 128; the difference of two states is zero
and the controller never sees time pass. The torques are float16, well inside what the motor can resolve.
"""
import torch
from torch import nn


class RobotState:
    def __init__(self, seconds, nanos, positions, torques):
        self.seconds, self.nanos = seconds, nanos
        self.positions, self.torques = positions, torques.half()


class StateDict(dict):
    def __init__(self, state):
        super().__init__()
        stamp = state.seconds + 1e-9 * state.nanos
        self["timestamp"] = torch.tensor(stamp, dtype=torch.float32)  # BORN
        self["joint_positions"] = state.positions
        self["motor_torques"] = state.torques


class MinJerk(nn.Module):
    """goes from start to goal in a given time"""

    def __init__(self, start, goal, duration):
        super().__init__()
        self.start, self.goal, self.duration = start, goal, duration
        self.begin = None
        self.effort = 0.0

    def forward(self, state):
        if self.begin is None:
            self.begin = state["timestamp"]
        s = float((state["timestamp"] - self.begin) / self.duration)
        s = min(max(s, 0.0), 1.0)
        self.effort += float(state["motor_torques"].float().square().sum())
        return self.start + (self.goal - self.start) * (10 * s**3 - 15 * s**4 + 6 * s**5)


def run(policy, start, hz=100, seconds=3.0, epoch=1624900000):
    gen = torch.Generator().manual_seed(5)
    joints = start.clone()
    for k in range(int(hz * seconds)):
        sec, nanos = divmod(int(k * 1e9 / hz) + 250_000_000, 1_000_000_000)
        torques = torch.randn(7, generator=gen)
        state = RobotState(epoch + sec, nanos, joints, torques)
        joints = joints + 0.5 * (policy(StateDict(state)) - joints)
    return joints


def main():
    start, goal = torch.zeros(7), torch.tensor([0.4, -0.3, 0.8, -1.2, 0.2, 0.9, -0.5])
    policy = MinJerk(start, goal, duration=2.0)
    end = run(policy, start)
    print(f"distance to the goal {(end - goal).norm():.3f} rad, effort {policy.effort:.0f}")


main()
