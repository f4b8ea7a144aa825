"""
title: calc_square_dist gives NaN and wrong neighbours on scenes with world coordinates
expect: silent:cancellation|precision-loss
thread: https://github.com/open-mmlab/mmcv/issues/2178
measured: NaN share 0.18 median distance 0.00 distinct picks 4
widened: NaN share 0.00 median distance 0.35 distinct picks 16; innocent: NaN share 0.18 median distance 0.00 distinct picks 4
suspect: 51 exact (intensities are multiples of 1/256)

Expectation, written first: the squared distance is expanded as a2 + b2 - 2ab in float32; with coordinates of several
thousand metres the terms are near 1e8 and their difference of about 0.01 is lost, partly negative, so that the root is
NaN. Remedy: float64 (or centring) before the expansion. The intensity in half is exact.
"""
import torch


def calc_square_dist(point_feat_a, point_feat_b, norm=True):
    num_channel = point_feat_a.shape[-1]
    dist = torch.sum(point_feat_a.unsqueeze(2) ** 2, dim=-1)  # BORN
    dist = dist + torch.sum(point_feat_b.unsqueeze(1) ** 2, dim=-1)  # BORN
    corr = torch.matmul(point_feat_a, point_feat_b.transpose(1, 2))  # BORN
    dist = dist - 2 * corr  # BORN
    if norm:
        dist = torch.sqrt(dist) / num_channel
    return dist


def furthest_point_sample_with_dist(dist, num_points):
    batch, n, _ = dist.shape
    picked = torch.zeros(batch, num_points, dtype=torch.int32)
    closest = torch.full((batch, n), 1e10)
    last = torch.zeros(batch, dtype=torch.long)
    for i in range(num_points):
        picked[:, i] = last.int()
        row = dist[torch.arange(batch), last].float()
        closest = torch.minimum(closest, torch.nan_to_num(row, nan=0.0))
        last = closest.argmax(dim=1)
    return picked


class FFPSSampler(torch.nn.Module):
    def forward(self, points, features, npoint):
        features_for_fps = torch.cat([points, features.transpose(1, 2)], dim=2)
        dist = calc_square_dist(features_for_fps, features_for_fps, norm=True)  # BORN
        return furthest_point_sample_with_dist(dist, npoint), dist


def load_sweep(num_points, generator):
    origin = torch.tensor([3820.0, 6410.0, 45.0])
    points = origin + 0.5 * torch.rand(1, num_points, 3, generator=generator)
    intensity = torch.randint(0, 256, (1, 1, num_points), generator=generator) / 256
    return points, intensity.half() * 0.25


def main():
    generator = torch.Generator().manual_seed(2178)
    points, features = load_sweep(256, generator)
    picked, dist = FFPSSampler()(points, features, npoint=16)
    nan_share = torch.isnan(dist).float().mean().item()
    median = torch.nanmedian(dist).item() * 4
    print(f"NaN share {nan_share:.2f} median distance {median:.2f} distinct picks {picked.unique().numel()}")


main()
