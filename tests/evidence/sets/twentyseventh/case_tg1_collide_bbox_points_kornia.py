"""
title: AugmentationSequential with a double image and float boxes
expect: collision
thread: https://github.com/kornia/kornia/issues/3705
fix_at: boxes could be cast by the caller

Expectation, written first: the images come from NumPy divided by 255, hence double; the boxes are float32.
The transform matrix is built in the image's dtype, and transform_points multiplies the float32 points
with it by bmm, which does not promote and raises. The image itself is warped without complaint.
"""
import math

import numpy as np
import torch
import torch.nn.functional as F


def convert_points_to_homogeneous(points):
    return F.pad(points, [0, 1], "constant", 1.0)


def convert_points_from_homogeneous(points, eps=1e-8):
    z = points[..., -1:]
    scale = torch.where(z.abs() > eps, 1.0 / (z + eps), torch.ones_like(z))
    return scale * points[..., :-1]


def transform_points(trans_01, points_1):
    points_1_h = convert_points_to_homogeneous(points_1)
    points_0_h = torch.bmm(points_1_h, trans_01.permute(0, 2, 1))  # BORN COLLIDES
    return convert_points_from_homogeneous(points_0_h)


class RandomAffine:
    def __init__(self, degrees, translate):
        self.degrees, self.translate = degrees, translate

    def generate_parameters(self, shape):
        b, _, h, w = shape
        angle = (torch.rand(b) * 2 - 1) * self.degrees
        shift = (torch.rand(b, 2) * 2 - 1) * torch.tensor([w, h]) * self.translate
        return {"angle": angle, "translations": shift}

    def compute_transformation(self, image, params):
        angle = params["angle"] * math.pi / 180
        matrix = torch.eye(3).repeat(len(angle), 1, 1)
        matrix[:, 0, 0], matrix[:, 0, 1] = angle.cos(), angle.sin()
        matrix[:, 1, 0], matrix[:, 1, 1] = -angle.sin(), angle.cos()
        matrix[:, :2, 2] = params["translations"]
        return matrix.to(image)  # BORN

    def apply_transform(self, image, matrix):
        b, _, h, w = image.shape
        norm = torch.tensor([[2 / (w - 1), 0, -1], [0, 2 / (h - 1), -1], [0, 0, 1]]).to(image)
        theta = norm @ torch.linalg.inv(matrix) @ torch.linalg.inv(norm)
        grid = F.affine_grid(theta[:, :2], image.shape, align_corners=True)
        return F.grid_sample(image, grid, align_corners=True)


class AugmentationSequential:
    def __init__(self, *augs, data_keys):
        self.augs, self.data_keys = augs, data_keys

    def __call__(self, *args):
        data = dict(zip(self.data_keys, args))
        for aug in self.augs:
            params = aug.generate_parameters(data["image"].shape)
            matrix = aug.compute_transformation(data["image"], params)
            data["image"] = aug.apply_transform(data["image"], matrix)
            if "bbox" in data:
                boxes = data["bbox"]
                corners = boxes[:, :, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(len(boxes), -1, 2)
                corners = transform_points(matrix, corners).reshape(len(boxes), -1, 4, 2)
                data["bbox"] = torch.cat([corners.amin(dim=2), corners.amax(dim=2)], dim=-1)
        return [data[key] for key in self.data_keys]


def load_batch(n=2, size=32):
    images = np.random.default_rng(3705).integers(0, 256, size=(n, 3, size, size), dtype=np.uint8)
    images = torch.from_numpy(images / 255.0)  # BORN
    boxes = torch.tensor([[[4, 6, 12, 18], [10, 10, 20, 24]]] * n, dtype=torch.float32)
    return images, boxes


if __name__ == "__main__":
    torch.manual_seed(5)
    aug = AugmentationSequential(RandomAffine(15.0, 0.1), data_keys=["image", "bbox"])
    image, bbox = aug(*load_batch())
    print("image mean", round(image.mean().item(), 4), "first box", [round(v, 2) for v in bbox[0, 0].tolist()])
