"""
title: Aerial lidar tile in UTM coordinates is turned into float32 before it is centred
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/centreborelli/s2p/pull/82
measured: slope = (0.100, 0.632) wanted (0.100, 0.850), rms = 0.107 m, 3 distinct northings
widened: slope = (0.100, 0.850) wanted (0.100, 0.850), rms = 0.020 m, 4000 distinct northings

Expectation, written first.  UTM northings are around 5.4 million metres; a
float32 has a step of half a metre there.  The loader makes the tensor float32
at once and subtracts the tile's corner afterwards, when the centimetres are
gone; the roof plane that is fitted to the points gets the wrong slope and the
residual is decimetres instead of the sensor's 2 cm.  BORN is the torch.tensor
with dtype float32 of the raw coordinates; in float64 (then centred, then
float32 for the network) it is right.
"""
import torch

torch.manual_seed(0)


def las_tile(n=4000):
    """Raw records of one roof, as the file stores them (float64)."""
    g = torch.Generator().manual_seed(4)
    corner = torch.tensor([691234.13, 5412345.67], dtype=torch.float64)
    local = torch.rand(n, 2, generator=g, dtype=torch.float64) * torch.tensor([9.0, 0.9], dtype=torch.float64)
    height = 412.0 + 0.10 * local[:, 0] + 0.85 * local[:, 1]
    height = height + 0.02 * torch.randn(n, generator=g, dtype=torch.float64)
    return torch.cat([corner + local, height[:, None]], 1).tolist()


class RoofDataset(torch.utils.data.Dataset):
    def __init__(self, tiles):
        self.tiles = tiles

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, i):
        points = torch.tensor(self.tiles[i], dtype=torch.float32)  # BORN
        points = points - points.min(0).values
        return points


def fit_plane(points):
    p = points.double()
    design = torch.cat([p[:, :2], torch.ones(p.size(0), 1, dtype=p.dtype)], 1)
    solution = torch.linalg.lstsq(design, p[:, 2:]).solution
    residual = (design @ solution - p[:, 2:]).pow(2).mean().sqrt()
    return solution[:2, 0].tolist(), residual.item()


def main():
    dataset = RoofDataset([las_tile()])
    slope, rms = fit_plane(dataset[0])
    rows = torch.unique(dataset[0][:, 1]).numel()
    print(f"slope = ({slope[0]:.3f}, {slope[1]:.3f}) wanted (0.100, 0.850), rms = {rms:.3f} m, {rows} distinct northings")


if __name__ == "__main__":
    main()
