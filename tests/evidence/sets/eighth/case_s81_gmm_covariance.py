"""
title: a Gaussian mixture fitted on half-precision features inside a segmentation net
expect: collision
thread: https://github.com/ldeecke/gmm-torch/issues/27

Expectation, written first: the features leave the network in float16 and the
mixture takes its dtype from them; the Cholesky factor of a float16 covariance does not
exist on this backend. BORN is the cast of the features to half before the fit; handing
float32 features to the mixture mends it.
"""
import torch
from torch import nn


class FeatureNet(nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, width, 1))

    def forward(self, image):
        out = self.body(image)
        return out.flatten(2).transpose(1, 2).reshape(-1, out.shape[1])


class GaussianMixture:
    def __init__(self, components, dim, dtype):
        self.mu = torch.randn(components, dim).to(dtype)
        self.cov = torch.eye(dim, dtype=dtype).repeat(components, 1, 1)
        self.pi = torch.full((components,), 1.0 / components, dtype=dtype)

    def log_prob(self, x):
        chol = torch.linalg.cholesky(self.cov)  # COLLIDES
        diff = x[:, None, :] - self.mu[None]
        y = torch.linalg.solve_triangular(chol, diff.permute(1, 2, 0), upper=False)
        logdet = chol.diagonal(dim1=1, dim2=2).log().sum(1)
        return -0.5 * y.square().sum(1).t() - logdet + self.pi.log()

    def fit(self, x, steps=5):
        for _ in range(steps):
            resp = self.log_prob(x).softmax(dim=1)
            mass = resp.sum(0)
            self.mu = (resp.t() @ x) / mass[:, None]
            diff = x[:, None, :] - self.mu[None]
            self.cov = torch.einsum("nk,nki,nkj->kij", resp, diff, diff) / mass[:, None, None]
            self.cov = self.cov + 1e-3 * torch.eye(x.shape[1], dtype=x.dtype)
            self.pi = mass / mass.sum()
        return self


def main():
    torch.manual_seed(7)
    image = torch.rand(1, 1, 24, 24)
    image[..., 8:16, 8:16] += 2.0
    with torch.no_grad():
        feats = FeatureNet()(image)
        feats = feats.half()  # BORN
        model = GaussianMixture(2, feats.shape[1], feats.dtype).fit(feats)
        share = model.pi.float().sort().values
    print("component shares", [round(v, 3) for v in share.tolist()])


if __name__ == "__main__":
    main()
