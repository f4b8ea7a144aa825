"""
title: the pose of a visual odometry is carried on in bfloat16, step by step
expect: silent:precision-loss|downcast|lost-update|round-trip
fix_at: 55

After https://github.com/autowarefoundation/autoware_universe/issues/3090 and https://github.com/koide3/hdl_graph_slam/issues/182.
Right: the state that is carried on is float32, whatever the network computes in.
"""
import math

import torch
from torch import nn

torch.manual_seed(208)


class MotionNet(nn.Module):
    """From the pair of frames to (turn, forward): here an already trained, nearly exact layer."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(8, 2)
        with torch.no_grad():
            self.out.weight.zero_()
            self.out.weight[0, 0] = self.out.weight[1, 1] = 1.0
            self.out.bias.zero_()

    def forward(self, x):
        return self.out(x)


class Odometer:
    def __init__(self, dtype):
        self.pose = torch.eye(3, dtype=dtype)  # BORN
        self.path = [self.pose[:2, 2].float()]

    def move(self, turn, forward):
        c, s = math.cos(turn), math.sin(turn)
        step = torch.tensor([[c, -s, forward], [s, c, 0.0], [0.0, 0.0, 1.0]])
        self.pose = self.pose @ step.to(self.pose.dtype)
        self.path.append(self.pose[:2, 2].float())


def drive(count=402):
    """A closed round: as many small turns as make one circle."""
    frames = torch.zeros(count, 8)
    frames[:, 0], frames[:, 1] = 1 / 64, 0.5
    frames[:, 2:] = torch.randn(count, 6)
    return frames


@torch.no_grad()
def main(dtype=torch.bfloat16):
    net, frames = MotionNet().eval(), drive()
    odometer = Odometer(dtype)
    with torch.autocast("cpu", dtype=dtype):
        moves = net(frames)
    for turn, forward in moves.float().tolist():
        odometer.move(turn, forward)
    path = torch.stack(odometer.path)
    return (path[-1] - path[0]).norm().item(), (path[1:] - path[:-1]).norm(dim=1).sum().item()


gap, length = main()
print("closes within", round(gap, 3), "m of", round(length, 1), "m driven, 201 expected")
