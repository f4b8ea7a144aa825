"""
title: angular separations of close stars come out as zero or as multiples of 71 arcsec because arccos is taken in float32
expect: silent:cancellation|precision-loss
thread: https://github.com/GalacticDynamics/coordinax/issues/836
measured: median separation 0.0 arcsec, 329 of 400 pairs within 15 arcsec
widened: median separation 19.9 arcsec, 0 of 400 pairs within 15 arcsec ; innocent: median separation 0.0 arcsec, 327 of 400 pairs within 15 arcsec
suspect: 22 margin (the catalogue columns are float32 degrees, good to 0.06 arcsec, against separations of 20)

Expectation, written first: the angle is the arccos of a float32 dot product of unit vectors; 20 arcsec below the pole of the cosine is
5e-9 under one, a twelfth of a float32 step, so the product is one or next to it and the angle is zero or some seventy arcsec. Reading
the catalogue as float32 costs a few hundredths of an arcsec.
"""
import math

import torch

ARCSEC = math.pi / 180.0 / 3600.0


class Catalogue:
    def __init__(self, ra_deg, dec_deg):
        self.ra = ra_deg.to(torch.float32)
        self.dec = dec_deg.to(torch.float32)

    def unit_vectors(self):
        ra, dec = torch.deg2rad(self.ra.double()), torch.deg2rad(self.dec.double())
        xyz = torch.stack([dec.cos() * ra.cos(), dec.cos() * ra.sin(), dec.sin()], dim=-1)
        return xyz.to(torch.float32)  # BORN


def inner(u, v):
    return (u * v).sum(-1)


def angle_between(u, v):
    uu, vv = inner(u, u), inner(v, v)
    cos = inner(u, v) / torch.sqrt(uu * vv)  # BORN
    return torch.arccos(cos.clamp(-1.0, 1.0))  # BORN


def match(primary, secondary, radius_arcsec):
    separation = angle_between(primary.unit_vectors(), secondary.unit_vectors()) / ARCSEC
    return separation, separation <= radius_arcsec


def visual_doubles(n):
    generator = torch.Generator().manual_seed(11)
    ra = 60.0 + 240.0 * torch.rand(n, generator=generator, dtype=torch.float64)
    dec = -40.0 + 80.0 * torch.rand(n, generator=generator, dtype=torch.float64)
    sep = (16.0 + 8.0 * torch.rand(n, generator=generator, dtype=torch.float64)) / 3600.0
    pa = 2 * math.pi * torch.rand(n, generator=generator, dtype=torch.float64)
    ra2 = ra + sep * pa.sin() / torch.cos(torch.deg2rad(dec))
    return (ra, dec), (ra2, dec + sep * pa.cos())


def main():
    first, second = visual_doubles(400)
    separation, inside = match(Catalogue(*first), Catalogue(*second), radius_arcsec=15.0)
    print(f"median separation {separation.median():.1f} arcsec, {int(inside.sum())} of 400 pairs within 15 arcsec")


if __name__ == "__main__":
    main()
