"""
title: Camera rotation inverted in double is multiplied with float32 image coordinates
expect: collision
thread: https://github.com/CHUNYUWANG/imu-human-pose-pytorch/issues/8
fix_at: (none beside the marked)

Expectation, written first: The dataset stores the camera parameters as NumPy float64 and the default collate keeps
that. The depth-sampled image coordinates are made float32 by the pixel grid and the cast intrinsics, the
extrinsics are not cast, and torch.bmm of the inverse rotation and the coordinates raises.
"""
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class MultiviewH36M(Dataset):
    def __init__(self, n, njoints=6):
        rng = np.random.default_rng(8)
        self.records = []
        for _ in range(n):
            q, _ = np.linalg.qr(rng.standard_normal((3, 3)))
            self.records.append({
                "camera_R": q,  # BORN
                "camera_T": rng.standard_normal((3, 1)) * 100,
                "camera_K": np.array([[1145.0, 0, 512.5], [0, 1143.8, 515.4], [0, 0, 1.0]]),
                "heatmap": rng.random((njoints, 8, 8)).astype(np.float32),
            })

    def __len__(self):
        return len(self.records)

    def __getitem__(self, i):
        return self.records[i]


def gen_uv_grid(heatmap, stride=128.0):
    n, j, h, w = heatmap.shape
    idx = heatmap.flatten(2).argmax(-1)
    u, v = (idx % w) * stride, torch.div(idx, w, rounding_mode="floor") * stride
    return torch.stack([u, v, torch.ones_like(u)], dim=1).float()


def batch_uv_to_global_with_multi_depth(uv1, inv_cam_intri, inv_cam_extri_R, inv_cam_extri_T, depths):
    coords_img = torch.bmm(inv_cam_intri, uv1)
    n, _, j = coords_img.shape
    coords_img_all_depth = torch.einsum("ncj,d->ncdj", coords_img, depths).reshape(n, 3, -1)
    coords_global = torch.bmm(inv_cam_extri_R, coords_img_all_depth) + inv_cam_extri_T  # BORN COLLIDES
    return coords_global.view(n, 3, len(depths), j)


class OrientationFusion:
    def __init__(self, depths):
        self.depths = torch.as_tensor(depths)

    def __call__(self, batch):
        inv_intri = torch.inverse(batch["camera_K"].float())
        inv_R = torch.inverse(batch["camera_R"])  # BORN
        inv_T = -torch.bmm(inv_R, batch["camera_T"].to(inv_R))
        uv1 = gen_uv_grid(batch["heatmap"])
        return batch_uv_to_global_with_multi_depth(uv1, inv_intri, inv_R, inv_T, self.depths)


def limb_length(coords, parent=0, child=1):
    return (coords[:, :, :, child] - coords[:, :, :, parent]).norm(dim=1)


def run(config):
    loader = DataLoader(MultiviewH36M(config["n"]), batch_size=config["batch_size"])
    fusion = OrientationFusion(config["depths"])
    for i, batch in enumerate(loader):
        coords = fusion(batch)
        lengths = limb_length(coords)
        print(f"batch {i}: mean |X| {coords.abs().mean().item():.1f} mm, limb {lengths.mean().item():.1f} mm")


if __name__ == "__main__":
    torch.manual_seed(8)
    run({"n": 8, "batch_size": 4, "depths": [4000.0, 4500.0, 5000.0]})
