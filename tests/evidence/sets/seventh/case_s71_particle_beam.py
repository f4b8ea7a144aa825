"""
title: An accelerator-physics beam is drawn in half precision
expect: collision
thread: https://github.com/desy-ml/cheetah/issues/484

Expectation, written first.  The caller asks for a float16 beam to track more
particles.  The constructor makes the covariance in that dtype and hands it to
MultivariateNormal, whose Cholesky factor has no half kernel.  BORN is the
dtype of the request, which from_parameters puts into the covariance tensor:
both lines are marked.  Sampling in float32 (and casting the particles after
tracking) mends it.
"""
import torch
from torch.distributions import MultivariateNormal

torch.manual_seed(0)


class ParticleBeam:
    """Six-dimensional phase space, (x, px, y, py, tau, delta)."""

    def __init__(self, particles):
        self.particles = particles

    @classmethod
    def from_parameters(cls, num_particles=2000, sigma=(1e-1, 2e-2, 1e-1, 2e-2, 5e-2, 1e-2), correlation=0.3,
                        dtype=torch.float32):
        sigma = torch.tensor(sigma)
        corr = torch.eye(6)
        corr[0, 1] = corr[1, 0] = corr[2, 3] = corr[3, 2] = correlation
        cov = (corr * sigma[:, None] * sigma[None, :]).to(dtype)  # BORN
        mean = torch.zeros(6, dtype=dtype)
        dist = MultivariateNormal(mean, covariance_matrix=cov)  # COLLIDES
        return cls(dist.sample((num_particles,)))

    def through(self, element):
        return ParticleBeam(self.particles @ element.T.to(self.particles.dtype))

    @property
    def sigma_x(self):
        return self.particles[:, 0].float().std()


def drift(length):
    m = torch.eye(6)
    m[0, 1] = m[2, 3] = length
    return m


def quadrupole(k1l):
    m = torch.eye(6)
    m[1, 0], m[3, 2] = -k1l, k1l
    return m


def main():
    beam = ParticleBeam.from_parameters(dtype=torch.float16)  # BORN
    for element in (drift(1.0), quadrupole(0.8), drift(0.5), quadrupole(-0.8), drift(1.0)):
        beam = beam.through(element)
    print(f"sigma_x at the screen = {beam.sigma_x.item():.4f}")


if __name__ == "__main__":
    main()
