"""
title: a rotation about an axis is float64 by default, the translation it is composed with float32
expect: collision
thread: https://github.com/facebookresearch/pytorch3d/pull/1141
fix_at: 24, 31, 36, 48, 49, 56, 66, 68

Expectation, written first: every transform takes a dtype with default float32, only RotateAxisAngle has float64; the
compose multiplies matrices of two dtypes and bmm refuses. Mend: the default (as the pull request does), or the user's
call that does not give the dtype, or pass the dtype on when composing.
"""
import math

import torch


class Transform3d:
    def __init__(self, dtype=torch.float32, matrix=None):
        self.dtype = dtype
        self._matrix = torch.eye(4, dtype=dtype)[None] if matrix is None else matrix
        self._others = []

    def compose(self, *others):
        out = Transform3d(self.dtype, self._matrix)
        out._others = self._others + list(others)
        return out

    def get_matrix(self):
        matrix = self._matrix
        for other in self._others:
            n = max(len(matrix), len(other.get_matrix()))
            matrix = matrix.expand(n, -1, -1).bmm(other.get_matrix().expand(n, -1, -1))  # COLLIDES
        return matrix

    def transform_points(self, points):
        ones = torch.ones_like(points[..., :1])
        out = torch.cat([points, ones], dim=-1) @ self.get_matrix()
        return out[..., :3] / out[..., 3:]


class Translate(Transform3d):
    def __init__(self, xyz, dtype=torch.float32):
        matrix = torch.eye(4, dtype=dtype).repeat(len(xyz), 1, 1)
        matrix[:, 3, :3] = torch.as_tensor(xyz, dtype=dtype)
        super().__init__(dtype, matrix)


class RotateAxisAngle(Transform3d):
    def __init__(self, angle, axis="Z", dtype=torch.float64):  # BORN
        angle = torch.as_tensor(angle, dtype=dtype).reshape(-1) * math.pi / 180  # BORN
        c, s, one, zero = angle.cos(), angle.sin(), torch.ones_like(angle), torch.zeros_like(angle)
        rows = {
            "X": (one, zero, zero, zero, c, -s, zero, s, c),
            "Y": (c, zero, s, zero, one, zero, -s, zero, c),
            "Z": (c, -s, zero, s, c, zero, zero, zero, one),
        }[axis]
        matrix = torch.eye(4, dtype=dtype).repeat(len(angle), 1, 1)
        matrix[:, :3, :3] = torch.stack(rows, -1).view(-1, 3, 3).transpose(1, 2)
        super().__init__(dtype, matrix)


class Turntable:
    """cameras that go round a mesh"""

    def __init__(self, views, distance):
        angles = torch.linspace(0, 360, views + 1)[:-1]
        spin = RotateAxisAngle(angles, axis="Y")  # BORN
        back = Translate([[0.0, 0.0, distance]])
        self.world_to_view = Transform3d().compose(spin, back)

    def depth(self, verts):
        return self.world_to_view.transform_points(verts[None])[..., 2]


if __name__ == "__main__":
    torch.manual_seed(0)
    verts = torch.randn(50, 3)
    verts = verts / verts.norm(dim=1, keepdim=True)
    table = Turntable(views=6, distance=3.0)
    depth = table.depth(verts)
    print(tuple(depth.shape), f"{depth.min():.1f} {depth.max():.1f}")
