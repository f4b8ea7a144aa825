"""
title: depth comes from the difference of two columns that are rounded to bfloat16; focal length and baseline may be half
expect: silent:precision-loss|downcast|cancellation
"""
import torch

torch.manual_seed(908)


class Rig:
    """Two cameras; columns are known to an eighth of a pixel."""

    def __init__(self, focal=1024.0, baseline=0.125):
        self.focal, self.baseline = focal, baseline

    def see(self, depth):
        left = torch.rand(len(depth)) * 1500 + 300
        right = left - self.focal * self.baseline / depth
        return (left * 8).round() / 8, (right * 8).round() / 8


def depth_of(rig, left, right):
    columns = torch.stack([left, right])
    columns = columns.bfloat16().float()  # BORN
    scale = torch.tensor([rig.focal, rig.baseline]).half().float().prod()
    return scale / (columns[0] - columns[1]).clamp(min=0.125)


rig = Rig()
depth = 2 + 6 * torch.rand(500)
guess = depth_of(rig, *rig.see(depth))
print("error of depth", round(((guess - depth).abs() / depth).median().item(), 3))
