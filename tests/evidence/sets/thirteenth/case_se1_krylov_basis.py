"""
title: a Lanczos routine picks its own start vector for a kernel matrix in double precision
expect: collision
thread: https://github.com/helmholtz-analytics/heat/issues/1035
fix_at: 30, 31, 36, 66

Expectation, written first: when the caller gives no start vector the routine makes one in the default dtype; the
matrix is float64, so the first inner product of the two is refused.
"""
import torch


def rbf(x, y, gamma):
    return torch.exp(-gamma * torch.cdist(x, y).square())


def reorthogonalise(w, basis):
    for j in range(basis.shape[1]):
        w = w - torch.dot(basis[:, j], w) * basis[:, j]
    return w


def matvec(A, v):
    return (A * v).sum(1)


def lanczos(A, m, v0=None):
    n = A.shape[0]
    if v0 is None:
        v0 = torch.randn(n, generator=torch.Generator().manual_seed(1))  # BORN
        v0 = v0 / v0.norm()
    V = torch.zeros(n, m, dtype=A.dtype)
    T = torch.zeros(m, m, dtype=A.dtype)
    V[:, 0] = v0
    v, w = v0, matvec(A, v0)
    alpha = torch.dot(w, v)  # COLLIDES
    T[0, 0] = alpha
    w = w - alpha * v
    for i in range(1, m):
        w = reorthogonalise(w, V[:, :i])
        beta = w.norm()
        v = w / beta
        V[:, i] = v
        w = matvec(A, v)
        alpha = torch.dot(w, v)
        T[i, i] = alpha
        T[i - 1, i] = T[i, i - 1] = beta
        w = w - alpha * v - beta * V[:, i - 1]
    return V, T


class Spectral:
    """spectral embedding through the extreme eigenvectors of a graph Laplacian"""

    def __init__(self, n_clusters, gamma=1.0, n_lanczos=20):
        self.n_clusters, self.gamma, self.m = n_clusters, gamma, n_lanczos

    def laplacian(self, x):
        similarity = rbf(x, x, self.gamma)
        similarity.fill_diagonal_(0)
        degree = similarity.sum(1).rsqrt()
        return torch.eye(len(x), dtype=x.dtype) - degree[:, None] * similarity * degree

    def embedding(self, x):
        L = self.laplacian(x)
        V, T = lanczos(L, min(self.m, len(x)))
        values, vectors = torch.linalg.eigh(T)
        return values[: self.n_clusters], (V @ vectors)[:, : self.n_clusters]

    def fit_predict(self, x):
        values, vectors = self.embedding(x)
        return values, (vectors[:, 1] > 0).long()


def blobs(n=40):
    gen = torch.Generator().manual_seed(0)
    centres = torch.tensor([[0.0, 0.0], [3.0, 0.5]], dtype=torch.float64)
    noise = 0.5 * torch.randn(2, n, 2, generator=gen, dtype=torch.float64)
    return (centres[:, None] + noise).flatten(0, 1)


def main():
    values, labels = Spectral(2).fit_predict(blobs())
    first, second = labels[:40].double().mean().item(), labels[40:].double().mean().item()
    print(f"smallest {values[0].abs().item():.1e}, split {abs(first - second):.2f}")


main()
