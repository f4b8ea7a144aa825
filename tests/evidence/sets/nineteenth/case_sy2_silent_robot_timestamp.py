"""
title: A joint trajectory never starts because the robot state's time is a float32 tensor
expect: silent:precision-loss|downcast|cancellation
thread: https://github.com/facebookresearch/fairo/pull/537
measured: elapsed 0.00 s  distance to goal 1.727 rad
widened: elapsed 6.00 s  distance to goal 0.000 rad
innocent: elapsed 0.00 s  distance to goal 1.727 rad
suspect: 42 exact

Expectation, written first: The timestamp of the robot state, seconds since 1970 plus nanoseconds, is packed into a default float32 tensor with a spacing
of 128 s, so the elapsed time of the policy is 0 through the whole run and the arm keeps its first pose. The stiffness gains in float16 are
small whole numbers and exact, and the torque is promoted to float32 anyway.
"""
import math
from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class RobotState:
    seconds: int
    nanos: int
    joint_positions: list
    joint_velocities: list


def parse_state(state):
    return {
        "timestamp": torch.tensor([state.seconds + state.nanos * 1e-9]),  # BORN
        "joint_positions": torch.tensor(state.joint_positions),
        "joint_velocities": torch.tensor(state.joint_velocities),
    }


class MinJerkPolicy(nn.Module):
    def __init__(self, goal, time_to_go):
        super().__init__()
        self.goal = goal
        self.time_to_go = time_to_go
        self.Kx = torch.tensor([40.0, 30.0, 50.0, 25.0, 35.0, 25.0, 10.0], dtype=torch.float16)
        self.start_time = None
        self.start = None
        self.elapsed = 0.0

    def forward(self, state_dict):
        if self.start_time is None:
            self.start_time = state_dict["timestamp"].clone()
            self.start = state_dict["joint_positions"].clone()
        self.elapsed = (state_dict["timestamp"] - self.start_time).item()
        s = min(max(self.elapsed / self.time_to_go, 0.0), 1.0)
        phase = 10 * s ** 3 - 15 * s ** 4 + 6 * s ** 5
        desired = self.start + (self.goal - self.start) * phase
        error = desired - state_dict["joint_positions"]
        return {"torque": self.Kx * error - 2.0 * torch.sqrt(self.Kx.float()) * state_dict["joint_velocities"]}


class SimulatedArm:
    def __init__(self, hz=250):
        self.dt = 1.0 / hz
        self.clock_ns = 1_625_011_200 * 10 ** 9 + 250_000_000
        self.q = torch.zeros(7)
        self.qd = torch.zeros(7)

    def get_state(self):
        seconds, nanos = divmod(self.clock_ns, 10 ** 9)
        return RobotState(seconds, nanos, self.q.tolist(), self.qd.tolist())

    def apply(self, torque):
        self.qd = self.qd + torque * self.dt
        self.q = self.q + self.qd * self.dt
        self.clock_ns += int(self.dt * 10 ** 9)


def main():
    goal = torch.tensor([0.3, -0.5, 0.2, -1.2, 0.1, 1.0, math.pi / 8])
    policy = MinJerkPolicy(goal, time_to_go=4.0)
    arm = SimulatedArm()
    for _ in range(6 * 250):
        arm.apply(policy(parse_state(arm.get_state()))["torque"])
    print(f"elapsed {policy.elapsed:.2f} s  distance to goal {(goal - arm.q).norm():.3f} rad")


if __name__ == "__main__":
    main()
