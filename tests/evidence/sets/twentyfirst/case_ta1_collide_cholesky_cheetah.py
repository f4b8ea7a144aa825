"""
title: particle beam sampled in half precision: Cholesky inside MultivariateNormal
expect: collision
thread: https://github.com/desy-ml/cheetah/issues/484
fix_at: 25, 26

Expectation, written first: the user asks from_parameters for dtype float16; mean and covariance are built in
float16 and MultivariateNormal validates the covariance with a Cholesky factorisation, which has no half kernel on
the CPU. The sampling has to be done in float32 (and cast after it), or the beam be requested in float32.
"""
import torch
from torch.distributions import MultivariateNormal


class ParticleBeam:
    def __init__(self, particles, energy, dtype=None):
        self.particles = particles.to(dtype or particles.dtype)
        self.energy = torch.as_tensor(energy, dtype=self.particles.dtype)

    @classmethod
    def from_parameters(cls, num_particles=2000, mu=None, sigma=None, cov_xpx=None, energy=1e8, dtype=None):
        dtype = dtype if dtype is not None else torch.get_default_dtype()
        mu = mu if mu is not None else [0.0] * 6
        sigma = sigma if sigma is not None else [0.25] * 6
        mean = torch.tensor(mu, dtype=dtype)
        cov = torch.zeros(6, 6, dtype=dtype)
        for i, s in enumerate(sigma):
            cov[i, i] = s**2
        if cov_xpx is not None:
            cov[0, 1] = cov[1, 0] = cov_xpx
        return cls.from_distribution(mean, cov, num_particles, energy, dtype)

    @classmethod
    def from_distribution(cls, sample_mu, sample_cov, num_particles, energy, dtype):
        distribution = MultivariateNormal(sample_mu, covariance_matrix=sample_cov)  # BORN COLLIDES
        vector = distribution.sample((num_particles,))
        ones = torch.ones(num_particles, 1, dtype=vector.dtype)
        return cls(torch.cat([vector, ones], dim=1), energy, dtype=dtype)

    def mean(self):
        return self.particles[:, :6].float().mean(dim=0)

    def std(self):
        return self.particles[:, :6].float().std(dim=0)


class Drift:
    def __init__(self, length):
        self.length = length

    def transfer_map(self, dtype):
        tm = torch.eye(7, dtype=dtype)
        tm[0, 1] = self.length
        tm[2, 3] = self.length
        return tm

    def track(self, beam):
        outgoing = beam.particles @ self.transfer_map(beam.particles.dtype).T
        return ParticleBeam(outgoing, beam.energy.item())


if __name__ == "__main__":
    torch.manual_seed(11)
    beam = ParticleBeam.from_parameters(
        num_particles=4000,
        sigma=[0.3, 0.1, 0.3, 0.1, 0.5, 0.2],
        cov_xpx=0.01,
        energy=6e4,
        dtype=torch.float16,  # BORN
    )
    for _ in range(3):
        beam = Drift(length=0.4).track(beam)
    print("sigma_x", f"{beam.std()[0].item():.2f}", "sigma_y", f"{beam.std()[2].item():.2f}")
