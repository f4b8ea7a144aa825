"""
title: a particle beam is drawn from its covariance in half precision
expect: collision
thread: https://github.com/desy-ml/cheetah/issues/484
fix_at: 21, 25, 66

Expectation, written first: every beam parameter is cast to the dtype that the caller asks for, so the covariance is
float16; the normal distribution checks it with a Cholesky factorisation, which has no float16 kernel.
"""
import torch
from torch.distributions import MultivariateNormal


class ParticleBeam:
    def __init__(self, particles, energy):
        self.particles, self.energy = particles, energy

    @classmethod
    def from_parameters(cls, num_particles=500, sigma_x=0.4, sigma_px=0.2, sigma_y=0.3, sigma_py=0.25, cov_xpx=0.03,
                        energy=1e4, dtype=torch.float32):
        sigma = torch.tensor([sigma_x, sigma_px, sigma_y, sigma_py], dtype=dtype)  # BORN
        cov = torch.diag(sigma.square())
        cov[0, 1] = cov[1, 0] = cov_xpx
        mu = torch.zeros(4, dtype=dtype)
        spread = MultivariateNormal(mu, covariance_matrix=cov)  # COLLIDES
        return cls(spread.sample((num_particles,)), energy)

    def widths(self):
        return self.particles.float().std(0)


class Drift:
    def __init__(self, length):
        self.length = length

    def track(self, beam):
        m = torch.eye(4, dtype=beam.particles.dtype)
        m[0, 1] = m[2, 3] = self.length
        return ParticleBeam(beam.particles @ m.T, beam.energy)


class Quadrupole:
    """thin lens"""

    def __init__(self, strength):
        self.strength = strength

    def track(self, beam):
        m = torch.eye(4, dtype=beam.particles.dtype)
        m[1, 0], m[3, 2] = -self.strength, self.strength
        return ParticleBeam(beam.particles @ m.T, beam.energy)


class Segment:
    def __init__(self, *elements):
        self.elements = elements

    def track(self, beam):
        for element in self.elements:
            beam = element.track(beam)
        return beam


def main():
    torch.manual_seed(21)
    beam = ParticleBeam.from_parameters(dtype=torch.float16)  # BORN
    line = Segment(Drift(0.5), Quadrupole(0.8), Drift(1.0), Quadrupole(-0.8), Drift(0.5))
    print([round(w, 3) for w in line.track(beam).widths().tolist()])


main()
