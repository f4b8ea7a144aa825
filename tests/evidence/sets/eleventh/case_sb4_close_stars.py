"""
title: star separations are arc cosines of float32 products; magnitudes are kept in half
expect: silent:precision-loss|downcast
thread: https://github.com/GalacticDynamics/coordinax/issues/836
measured: pairs under 30 arcsec 381 (true 240), median error 32.36 arcsec
widened: pairs under 30 arcsec 240 (true 240), median error 0.00 arcsec

Expectation, written first: stars less than a minute of arc apart have a cosine that float32 rounds to one or beside
it, so separations come in big steps. Magnitudes only order the pair, which half does.
"""
import torch

ARCSEC = 180 * 3600 / torch.pi


class Catalogue:
    def __init__(self, ra, dec, mag):
        self.vectors = self.unit(ra, dec).to(torch.float32)  # BORN
        self.mag = mag.to(torch.float16)

    @staticmethod
    def unit(ra, dec):
        return torch.stack([dec.cos() * ra.cos(), dec.cos() * ra.sin(), dec.sin()], 1)

    def separation(self, i, j):
        dot = (self.vectors[i] * self.vectors[j]).sum(1)
        return dot.clamp(-1, 1).acos().double() * ARCSEC  # BORN


class DoubleStars:
    def __init__(self, catalogue, limit=30.0):
        self.catalogue, self.limit = catalogue, limit

    def candidates(self, pairs):
        i, j = pairs
        bright = self.catalogue.mag[i] <= self.catalogue.mag[j]
        i, j = torch.where(bright, i, j), torch.where(bright, j, i)
        sep = self.catalogue.separation(i, j)
        keep = sep < self.limit
        return i[keep], j[keep], sep


def sky(n, gen):
    ra = torch.rand(n, generator=gen, dtype=torch.float64) * 2 * torch.pi
    dec = (torch.rand(n, generator=gen, dtype=torch.float64) - 0.5) * 2
    sep = (5 + 55 * torch.rand(n, generator=gen, dtype=torch.float64)) / ARCSEC
    angle = torch.rand(n, generator=gen, dtype=torch.float64) * 2 * torch.pi
    ra2 = ra + sep * angle.cos() / dec.cos()
    dec2 = dec + sep * angle.sin()
    mag = 6 + 8 * torch.rand(2 * n, generator=gen, dtype=torch.float64)
    return torch.cat([ra, ra2]), torch.cat([dec, dec2]), mag, sep * ARCSEC


def main():
    gen = torch.Generator().manual_seed(0)
    ra, dec, mag, true = sky(500, gen)
    stars = DoubleStars(Catalogue(ra, dec, mag))
    i, j, sep = stars.candidates((torch.arange(500), torch.arange(500) + 500))
    gap = (sep - true).abs()
    print(f"pairs under 30 arcsec {len(i)} (true {int((true < 30).sum())}), median error {gap.median().item():.2f} arcsec")


main()
