"""
title: Lanczos draws its start vector in float32 while the operator is float64
expect: collision
thread: https://github.com/helmholtz-analytics/heat/issues/1035
fix_at: 26

Expectation, written first: the similarity matrix and so the Laplacian are float64. lanczos() is called without v0 and
draws one with the default dtype. The library's own matmul promotes, so w is float64, but the projection coefficient is
a torch.dot of w with the float32 vector, which refuses. v0 must be drawn in A's dtype.
"""
import numpy as np
import torch


def matmul(a, b):
    promoted = torch.promote_types(a.dtype, b.dtype)
    return a.to(promoted) @ b.to(promoted)


def lanczos(A, m, v0=None):
    n = A.shape[0]
    T = torch.zeros((m, m), dtype=A.dtype)
    V = torch.zeros((n, m), dtype=A.dtype)
    if v0 is None:
        vr = torch.rand(n)  # BORN
        v = vr / torch.linalg.vector_norm(vr)
    else:
        v = v0
    V[:, 0] = v
    w = matmul(A, v)
    alpha = torch.dot(w, v)  # COLLIDES
    w = w - alpha * v
    T[0, 0] = alpha
    for i in range(1, m):
        beta = torch.linalg.vector_norm(w)
        if beta.abs() < 1e-10:
            vi = torch.rand(n, dtype=A.dtype)
            vi = vi - V[:, :i] @ (V[:, :i].T @ vi)
            vi = vi / torch.linalg.vector_norm(vi)
        else:
            vi = w / beta
        V[:, i] = vi
        w = matmul(A, vi)
        alpha = torch.dot(w, vi)
        w = w - alpha * vi - beta * V[:, i - 1]
        T[i - 1, i] = T[i, i - 1] = beta
        T[i, i] = alpha
    return V, T


class Laplacian:
    def __init__(self, similarity, definition="norm_sym"):
        self.similarity_metric, self.definition = similarity, definition

    def construct(self, X):
        S = self.similarity_metric(X)
        S.fill_diagonal_(0.0)
        degree = S.sum(1)
        if self.definition == "simple":
            return torch.diag(degree) - S
        scale = degree.rsqrt()
        return torch.eye(len(S), dtype=S.dtype) - scale[:, None] * S * scale[None]


class Spectral:
    def __init__(self, n_clusters, gamma=1.0, n_lanczos=20):
        self.n_clusters, self.n_lanczos = n_clusters, n_lanczos
        self._laplacian = Laplacian(lambda x: torch.exp(-gamma * torch.cdist(x, x) ** 2))

    def _spectral_embedding(self, X):
        L = self._laplacian.construct(X)
        V, T = lanczos(L, self.n_lanczos)
        eval, evec = torch.linalg.eigh(T)
        return eval, V @ evec

    def fit_predict(self, X):
        _, components = self._spectral_embedding(X)
        return (components[:, 1] > 0).long()


if __name__ == "__main__":
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    blobs = np.concatenate([rng.normal(-2, 0.5, (30, 2)), rng.normal(2, 0.5, (30, 2))])
    print(Spectral(n_clusters=2, gamma=0.1).fit_predict(torch.from_numpy(blobs)).bincount())
