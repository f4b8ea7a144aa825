"""
title: The lattice hash of a noise generator wraps around in int32
expect: clean
thread: https://github.com/Auburn/FastNoiseLite/issues/140
measured: mean -0.02 std 0.25 within one True / slope 0.67 water 0.25
suspect: 30 (the overflow is part of the hash)

Expectation, written first: The coordinates times a prime and the hash times 0x27d4eb2d leave the range of int32 and
wrap; the algorithm is defined by that two's complement arithmetic, as the author says in the thread. The
noise is smooth, has mean near 0 and stays within [-1, 1].
"""
import torch

PRIME_X, PRIME_Y = 501125321, 1136930381


class FastNoiseLite:
    def __init__(self, seed=1337, frequency=0.06, octaves=3, lacunarity=2.0, gain=0.5):
        self.seed, self.frequency = seed, frequency
        self.octaves, self.lacunarity, self.gain = octaves, lacunarity, gain
        amp, fractal = gain, 1.0
        for _ in range(1, octaves):
            fractal += amp
            amp *= gain
        self.fractal_bounding = 1 / fractal

    @staticmethod
    def _hash2d(seed, x_primed, y_primed):
        hash = seed ^ x_primed ^ y_primed
        return hash * 0x27D4EB2D

    def _val_coord(self, seed, x_primed, y_primed):
        hash = self._hash2d(seed, x_primed, y_primed)
        hash = hash * hash
        hash = hash ^ (hash << 19)
        return hash.float() * (1 / 2147483648.0)

    @staticmethod
    def _interp_hermite(t):
        return t * t * (3 - 2 * t)

    def _single_value(self, seed, x, y):
        x0, y0 = torch.floor(x).int(), torch.floor(y).int()
        xs, ys = self._interp_hermite(x - x0), self._interp_hermite(y - y0)
        x0, y0 = x0 * PRIME_X, y0 * PRIME_Y
        x1, y1 = x0 + PRIME_X, y0 + PRIME_Y
        xf0 = torch.lerp(self._val_coord(seed, x0, y0), self._val_coord(seed, x1, y0), xs)
        xf1 = torch.lerp(self._val_coord(seed, x0, y1), self._val_coord(seed, x1, y1), xs)
        return torch.lerp(xf0, xf1, ys)

    def get_noise(self, x, y):
        x, y = x * self.frequency, y * self.frequency
        total, amp, seed = torch.zeros_like(x), self.fractal_bounding, self.seed
        for _ in range(self.octaves):
            total = total + self._single_value(seed, x, y) * amp
            x, y = x * self.lacunarity, y * self.lacunarity
            amp, seed = amp * self.gain, seed + 1
        return total


class Terrain:
    def __init__(self, noise, size, height=40.0):
        ys, xs = torch.meshgrid(torch.arange(size).float(), torch.arange(size).float(), indexing="ij")
        self.noise = noise.get_noise(xs, ys)
        self.heights = (self.noise * 0.5 + 0.5) * height

    def slope(self):
        dx = self.heights[:, 1:] - self.heights[:, :-1]
        return dx.abs().mean().item()

    def water_share(self, level=16.0):
        return (self.heights < level).float().mean().item()


def main():
    terrain = Terrain(FastNoiseLite(), size=160)
    noise = terrain.noise
    print("mean", round(noise.mean().item(), 2), "std", round(noise.std().item(), 2),
          "within one", bool(noise.abs().max() <= 1.0))
    print("slope", round(terrain.slope(), 2), "water", round(terrain.water_share(), 2))


if __name__ == "__main__":
    main()
