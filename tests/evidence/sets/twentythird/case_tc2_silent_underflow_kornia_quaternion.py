"""
title: the guard of normalize_quaternion is zero in float16 and missing joints become NaN poses
expect: silent:underflow
thread: https://github.com/kornia/kornia/issues/4021
measured: lost joints 30 of 960 | nan joint positions 43, frames touched 17 of 120 | mean height of the clip nan
widened: lost joints 30 of 960 | nan joint positions 0, frames touched 0 of 120 | mean height of the clip 0.064
innocent: lost joints 30 of 960 | nan joint positions 43, frames touched 17 of 120 | mean height of the clip nan
suspect: line 36, root positions of a metre or two lose a millimetre at most

Expectation, written first: the poses are read as float16 and F.normalize gets the default eps of 1e-12, which is 0 in half. A joint that
the tracker lost is the zero quaternion, 0 / 0 gives NaN, and through the blend with its parent NaN spreads to every frame mean. In
float32 (or with an eps half can hold) the joint stays zero. Translations in half precision are innocent.
"""
import torch
import torch.nn.functional as F


def normalize_quaternion(quaternion, eps=1.0e-12):  # BORN
    return F.normalize(quaternion, p=2.0, dim=-1, eps=eps)  # BORN


def quaternion_to_rotation_matrix(q):
    q = normalize_quaternion(q)  # BORN
    w, x, y, z = q.unbind(-1)
    tx, ty, tz = 2 * x, 2 * y, 2 * z
    one = torch.ones_like(w)
    m = torch.stack([one - (ty * y + tz * z), tx * y - tz * w, tx * z + ty * w,
                     tx * y + tz * w, one - (tx * x + tz * z), ty * z - tx * w,
                     tx * z - ty * w, ty * z + tx * w, one - (tx * x + ty * y)], -1)
    return m.view(*q.shape[:-1], 3, 3)


class MotionClip:
    def __init__(self, quats, trans):
        self.quats = quats.to(torch.float16)  # BORN
        self.trans = trans.to(torch.float16)


class Skeleton:
    parents = [-1, 0, 1, 2, 1, 4, 0, 6]

    def __init__(self, offsets):
        self.offsets = offsets

    def forward_kinematics(self, clip):
        rot = quaternion_to_rotation_matrix(clip.quats).float()
        pos, world = [], []
        for j, p in enumerate(self.parents):
            if p < 0:
                pos.append(clip.trans.float())
                world.append(rot[:, j])
            else:
                pos.append(pos[p] + world[p] @ self.offsets[j])
                world.append(world[p] @ rot[:, j])
        return torch.stack(pos, 1)


def track(frames, joints, g, lost=0.03):
    q = torch.randn(1, joints, 4, generator=g) + 0.1 * torch.randn(frames, joints, 4, generator=g)
    q = q / q.norm(dim=-1, keepdim=True)
    gone = torch.rand(frames, joints, generator=g) < lost
    q[gone] = 0.0
    trans = torch.cumsum(0.02 * torch.randn(frames, 3, generator=g), 0)
    return q, trans, gone


g = torch.Generator().manual_seed(0)
quats, trans, gone = track(120, 8, g)
clip = MotionClip(quats, trans)
skel = Skeleton(torch.randn(8, 3, generator=g) * 0.2)
pos = skel.forward_kinematics(clip)
bad = torch.isnan(pos).any(-1)
print("lost joints %d of %d" % (gone.sum(), gone.numel()))
print("nan joint positions %d, frames touched %d of 120" % (bad.sum(), bad.any(1).sum()))
print("mean height of the clip %.3f" % pos[..., 1].mean())
