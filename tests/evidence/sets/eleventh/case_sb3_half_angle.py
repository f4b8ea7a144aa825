"""
title: tiny rotation angles come from float32 quaternions, by the arc tangent
expect: clean
thread: https://github.com/facebookresearch/momentum/pull/1504
measured: smallest angle 1.000e-07 rad, worst relative error below 1e-6: True

Expectation, written first: the vector part of a quaternion keeps a small angle with full relative precision and
atan2 uses it; the float32 angles agree with the true ones over seven decades.
"""
import torch


def quaternion(axis, angle):
    half = angle[:, None] / 2
    return torch.cat([axis * half.sin(), half.cos()], 1)


def multiply(a, b):
    av, aw, bv, bw = a[:, :3], a[:, 3:], b[:, :3], b[:, 3:]
    vec = aw * bv + bw * av + torch.linalg.cross(av, bv)
    return torch.cat([vec, aw * bw - (av * bv).sum(1, keepdim=True)], 1)


def conjugate(q):
    return q * q.new_tensor([-1, -1, -1, 1])


def angular_distance(q0, q1):
    rel = multiply(conjugate(q0), q1)
    return 2 * torch.atan2(rel[:, :3].norm(dim=1), rel[:, 3].abs())


class Mocap(torch.utils.data.Dataset):
    def __init__(self, n, seed=0):
        gen = torch.Generator().manual_seed(seed)
        self.axis = torch.nn.functional.normalize(torch.randn(n, 3, generator=gen, dtype=torch.float64), dim=1)
        self.angle = 10 ** (torch.linspace(-7, 0, n, dtype=torch.float64))

    def __len__(self):
        return len(self.angle)

    def __getitem__(self, i):
        return self.axis[i].float(), self.angle[i].float(), self.angle[i]


def main():
    loader = torch.utils.data.DataLoader(Mocap(400), batch_size=50)
    worst = torch.zeros((), dtype=torch.float64)
    smallest = []
    for axis, angle, true in loader:
        base = quaternion(axis, torch.zeros_like(angle))
        got = angular_distance(base, quaternion(axis, angle)).double()
        worst = torch.maximum(worst, (got / true - 1).abs().max())
        smallest.append(got.min())
    print(f"smallest angle {torch.stack(smallest).min().item():.3e} rad, worst relative error below 1e-6: {worst.item() < 1e-6}")


main()
