"""
title: the density of air over a list of whole-metre heights
expect: silent:downcast|precision-loss
thread: https://github.com/inigodelportillo/ITU-Rpy/pull/112
measured: dry column 2125 kg/m2, water column 15.02 kg/m2
widened: dry column 10213 kg/m2, water column 15.02 kg/m2

Expectation, written first: heights are whole metres in an integer tensor and the
density profile is allocated like them, so every density (below 1.3) is stored as 1 or 0. BORN
is the ones_like; a float dtype mends it. The explicit half of the humidity is harmless.
"""
import torch


class StandardAir:
    """Layers with their base height, temperature and lapse rate."""

    LAYERS = ((0, 288.15, -6.5e-3, 1.225), (11000, 216.65, 0.0, 0.3639), (20000, 216.65, 1e-3, 0.0880))
    G, R = 9.80665, 287.05

    def density(self, heights):
        out = torch.ones_like(heights)  # BORN
        for base, temperature, lapse, rho in self.LAYERS:
            inside = heights >= base
            dh = (heights[inside] - base).double()
            if lapse:
                ratio = (1 + lapse * dh / temperature) ** (-self.G / (self.R * lapse) - 1)
            else:
                ratio = torch.exp(-self.G * dh / (self.R * temperature))
            out[inside] = (rho * ratio).to(out.dtype)
        return out


class Humidity:
    def __init__(self, surface, scale):
        self.surface, self.scale = surface, scale

    def __call__(self, heights):
        vapour = self.surface * torch.exp(-heights.double() / self.scale)
        return vapour.to(torch.float16)


class Column:
    def __init__(self, air, humidity):
        self.air, self.humidity = air, humidity

    def mass(self, heights):
        dry = self.air.density(heights).double()
        wet = self.humidity(heights).double()
        step = (heights[1:] - heights[:-1]).double()
        middle = lambda q: 0.5 * (q[1:] + q[:-1])
        return (middle(dry) * step).sum().item(), (middle(wet) * step).sum().item()


def main():
    heights = torch.arange(0, 30001, 250)
    dry, wet = Column(StandardAir(), Humidity(0.0075, 2000.0)).mass(heights)
    print("dry column %.0f kg/m2, water column %.2f kg/m2" % (dry, wet))


if __name__ == "__main__":
    main()
