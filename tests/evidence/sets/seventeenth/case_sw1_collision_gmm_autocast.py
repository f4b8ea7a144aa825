"""
title: a Gaussian mixture fitted to the autocast features of a segmentation net: Cholesky has no low-precision kernel
expect: collision
thread: https://github.com/ldeecke/gmm-torch/issues/27
fix_at: 22, 23, 26, 45, 63, 64, 73

Expectation, written first: the trainer runs the network under autocast, so the convolution features are bfloat16, and the bottleneck
fits the mixture to them as they come, with autocast switched off but no cast. Means and covariances inherit the dtype, and the Cholesky
factor wanted for the log-determinant is not implemented for it.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

class GaussianMixture:
    def __init__(self, n_components, n_features, eps=1e-3):
        self.n_components, self.n_features, self.eps = n_components, n_features, eps
    def _init_params(self, x):
        self.mu = x[torch.linspace(0, len(x) - 1, self.n_components).long()]
        eye = torch.eye(self.n_features, dtype=x.dtype)
        self.var = (eye * x.var(dim=0).mean()).expand(self.n_components, -1, -1)
        self.pi = torch.full((self.n_components,), 1.0 / self.n_components, dtype=x.dtype)
    def _log_det_and_maha(self, x):
        L = torch.linalg.cholesky(self.var)  # COLLIDES
        log_det = 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        delta = (x.unsqueeze(1) - self.mu).permute(1, 2, 0)
        z = torch.linalg.solve_triangular(L, delta, upper=False)
        return log_det, z.square().sum(1).T
    def _e_step(self, x):
        log_det, maha = self._log_det_and_maha(x)
        log_prob = -0.5 * (self.n_features * math.log(2 * math.pi) + log_det + maha) + self.pi.log()
        log_norm = torch.logsumexp(log_prob, dim=1, keepdim=True)
        return log_norm.mean(), (log_prob - log_norm).exp()
    def _m_step(self, x, resp):
        total = resp.sum(0) + 1e-6
        self.pi = total / total.sum()
        self.mu = (resp.unsqueeze(-1) * x.unsqueeze(1)).sum(0) / total.unsqueeze(-1)
        delta = x.unsqueeze(1) - self.mu
        outer = delta.unsqueeze(-1) * delta.unsqueeze(-2)
        cov = (resp[..., None, None] * outer).sum(0) / total[:, None, None]
        self.var = cov + self.eps * torch.eye(self.n_features, dtype=x.dtype)
    def fit(self, x, n_iter=10):
        self._init_params(x)
        for _ in range(n_iter):
            self.log_likelihood, resp = self._e_step(x)
            self._m_step(x, resp)
        return self
    def predict_proba(self, x):
        return self._e_step(x)[1]

class GenericUNet(nn.Module):
    def __init__(self, in_channels=1, base=6, num_classes=3, n_components=3):
        super().__init__()
        self.down = nn.Conv2d(in_channels, base, 3, stride=2, padding=1)
        self.bottleneck = nn.Conv2d(base, base, 3, padding=1)
        self.seg = nn.Conv2d(base + n_components, num_classes, 1)
        self.n_components = n_components
    def cluster(self, features):
        b, c, h, w = features.shape
        flat = features.detach().permute(0, 2, 3, 1).reshape(-1, c)  # BORN
        gmm = GaussianMixture(self.n_components, c).fit(flat)
        return gmm.predict_proba(flat).reshape(b, h, w, -1).permute(0, 3, 1, 2)
    def forward(self, x):
        f = self.bottleneck(F.leaky_relu(self.down(x)))  # BORN
        with torch.autocast("cpu", enabled=False):
            resp = self.cluster(f)  # BORN
        return F.interpolate(self.seg(torch.cat([f, resp], dim=1)).float(), size=x.shape[-2:], mode="bilinear")

class NetworkTrainer:
    def __init__(self, network, fp16=True):
        self.network, self.fp16 = network, fp16
        self.optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    def run_iteration(self, data, target):
        self.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.fp16):  # BORN
            loss = F.cross_entropy(self.network(data), target)
        loss.backward()
        self.optimizer.step()
        return loss.item()

if __name__ == "__main__":
    torch.manual_seed(0)
    trainer = NetworkTrainer(GenericUNet())
    image = torch.randn(2, 1, 16, 16)
    label = (image[:, 0] > 0.3).long() + (image[:, 0] > 1.0).long()
    print([round(trainer.run_iteration(image, label), 4) for _ in range(4)])
