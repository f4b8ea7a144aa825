"""
title: Observation times are zeroed in double and only then stored as float32
expect: clean
thread: https://github.com/dirac-institute/kbmod/pull/453
measured: times [0.0, 0.01, 0.022, 0.987, 1.002, 1.99, 2.001, 2.016] / found 12 20 15.0 0.4 lh 74.0
suspect: 42 exact to 1e-7 day (the large part was subtracted before)

Expectation, written first: An MJD near 57130 has a float32 ulp of 5 minutes. The first time is subtracted in float64 and the
remainder of at most a few days is cast; its rounding times the velocity is about 1e-5 pixel. The search finds the injected object.
"""
import numpy as np
import torch
import torch.nn.functional as F


class LayeredImage:
    def __init__(self, science, mjd):
        self.science, self.mjd = science, mjd


class FakeDataSet:
    def __init__(self, width, height, times, noise_level, rng):
        self.width, self.height = width, height
        self.images = [LayeredImage(rng.normal(0, noise_level, (height, width)).astype(np.float32), t) for t in times]

    def insert_object(self, trj, flux, sigma=1.0):
        yy, xx = np.mgrid[:self.height, :self.width]
        for image in self.images:
            dt = image.mjd - self.images[0].mjd
            cx, cy = trj["x"] + trj["vx"] * dt, trj["y"] + trj["vy"] * dt
            psf = np.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / (2 * sigma ** 2))
            image.science += (flux * psf / psf.sum()).astype(np.float32)


class ImageStack:
    def __init__(self, images):
        self.images = images

    def build_zeroed_times(self):
        first = self.images[0].mjd
        zeroed = [image.mjd - first for image in self.images]
        return torch.tensor(zeroed, dtype=torch.float32)

    def science(self):
        return torch.stack([torch.from_numpy(image.science) for image in self.images])


class StackSearch:
    def __init__(self, stack):
        self.times = stack.build_zeroed_times()
        kernel = torch.exp(-(torch.arange(-2.0, 3.0) ** 2) / 2)
        kernel = torch.outer(kernel, kernel)
        self.psi = F.conv2d(stack.science().unsqueeze(1), (kernel / kernel.sum())[None, None], padding=2).squeeze(1)

    def search(self, velocities, angles, min_lh=0.0):
        num, height, width = self.psi.shape
        yy, xx = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        best = {"lh": min_lh}
        for velocity in velocities:
            for angle in angles:
                vx, vy = velocity * np.cos(angle), velocity * np.sin(angle)
                total = torch.zeros(height, width)
                for i in range(num):
                    px = torch.floor(xx + vx * self.times[i] + 0.5).long().clamp(0, width - 1)
                    py = torch.floor(yy + vy * self.times[i] + 0.5).long().clamp(0, height - 1)
                    total += self.psi[i, py, px]
                lh, index = total.flatten().max(dim=0)
                if lh.item() > best["lh"]:
                    best = {"lh": lh.item(), "x": index.item() % width, "y": index.item() // width,
                            "v": velocity, "angle": angle}
        return best


def main():
    rng = np.random.default_rng(453)
    times = 57130.2 + np.array([0.0, 0.0103, 0.0215, 0.9871, 1.0019, 1.9902, 2.0007, 2.0155])
    dataset = FakeDataSet(64, 64, times, noise_level=1.0, rng=rng)
    trj = {"x": 12, "y": 20, "vx": 15.0 * np.cos(0.4), "vy": 15.0 * np.sin(0.4)}
    dataset.insert_object(trj, flux=120.0)
    stack = ImageStack(dataset.images)
    search = StackSearch(stack)
    found = search.search(velocities=[5.0, 10.0, 15.0, 20.0], angles=[0.0, 0.2, 0.4, 0.6])
    print("times", [round(t, 3) for t in search.times.tolist()])
    print("found", found["x"], found["y"], found["v"], found["angle"], "lh", round(found["lh"], 1))


if __name__ == "__main__":
    main()
