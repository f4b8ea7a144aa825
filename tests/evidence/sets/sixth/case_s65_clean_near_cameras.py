"""
title: disparities in small pictures: columns below 128 in halves are bfloat16, the camera's constants are half
expect: clean
"""
import torch

torch.manual_seed(953)


class Rig:
    def __init__(self, focal=64.0, baseline=0.5):
        self.focal, self.baseline = focal, baseline

    def see(self, disparity):
        left = (torch.rand(len(disparity)) * 90 + 34).round()
        return left, left - disparity


def depth_of(rig, left, right):
    columns = torch.stack([left, right]).bfloat16().float()
    scale = torch.tensor([rig.focal, rig.baseline]).half().float().prod()
    return scale / (columns[0] - columns[1])


rig = Rig()
disparity = torch.randint(4, 32, (400,)).float()
depth = rig.focal * rig.baseline / disparity
print("error of depth", round((depth_of(rig, *rig.see(disparity)) - depth).abs().max().item(), 6))
