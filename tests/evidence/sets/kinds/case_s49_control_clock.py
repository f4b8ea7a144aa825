"""
title: a controller takes the time between robot states from float timestamps
expect: silent:precision-loss|downcast|cancellation
thread: https://github.com/facebookresearch/polymetis/pull/3

Expectation, written first: seconds since 1970 have steps of 128 in float32, so the time between two states is zero and the
integral term never moves. The joint positions in half are exact enough.
"""
import torch
from torch import nn


class RobotState:
    def __init__(self, seconds, nanos, position):
        self.seconds, self.nanos = seconds, nanos
        self.position = torch.tensor([position], dtype=torch.float16)

    def to_tensors(self):
        return {
            "timestamp": torch.tensor(self.seconds + 1e-9 * self.nanos),  # BORN
            "position": self.position.float(),
        }


class PI(nn.Module):
    def __init__(self, kp=4.0, ki=1.5):
        super().__init__()
        self.register_buffer("integral", torch.zeros(1))
        self.kp, self.ki, self.last = kp, ki, None

    def forward(self, state, goal):
        error = goal - state["position"]
        if self.last is not None:
            self.integral += error * (state["timestamp"] - self.last)
        self.last = state["timestamp"].clone()
        return self.kp * error + self.ki * self.integral


def simulate(steps=900, dt=0.01):
    controller, position, goal = PI(), 0.0, torch.tensor([1.0])
    now = 1_624_900_000_000_000_000
    for _ in range(steps):
        state = RobotState(now // 10**9, now % 10**9, position)
        force = controller(state.to_tensors(), goal)
        position += dt * (force.item() - 2.0 * position - 1.0)
        now += int(dt * 1e9)
    return position


print(f"position {simulate():.3f}, goal 1.000")
