"""
title: k-means collapses into one cluster when the vectorised update sums the points of a cluster in fp16
expect: silent:overflow|downcast
thread: https://github.com/kornia/kornia/pull/4545
measured: cluster sizes [21000, 0, 0], last centre [0.0, 0.0, 0.0]
widened: cluster sizes [6000, 12000, 3000], last centre [9.0, 7.99, 3.0] ; innocent: cluster sizes [21000, 0, 0], last centre [0.0, 0.0, 0.0]
suspect: 29 range (distances are taken in fp16, but the features are below 16 and their squared gaps far below the limit)

Expectation, written first: the update multiplies a one-hot assignment with the points in fp16; a cluster of ten thousand points around 8
sums to 80000, above the fp16 limit, and its centre becomes infinite and the clusters collapse. The distances of the assignment are fp16 too, but small.
"""
import torch
import torch.nn.functional as F


class KMeans:
    def __init__(self, num_clusters, tolerance=1e-3, max_iterations=10, dtype=torch.float16):
        self.num_clusters = num_clusters
        self.tolerance = tolerance
        self.max_iterations = max_iterations
        self.dtype = dtype
        self.cluster_centers = None

    def _initialise(self, X):
        step = X.shape[0] // self.num_clusters
        return X[step // 2 :: step][: self.num_clusters].clone()

    def _pairwise(self, X, centers):
        gap = X[:, None].half() - centers[None].half()
        return (gap * gap).sum(-1)

    def _update(self, X, assignment):
        one_hot = F.one_hot(assignment, self.num_clusters).to(self.dtype)  # BORN
        sums = one_hot.t() @ X.to(self.dtype)  # BORN
        counts = one_hot.float().sum(0).clamp(min=1).unsqueeze(-1)
        return sums.float() / counts

    def fit(self, X):
        centers = self._initialise(X)
        for _ in range(self.max_iterations):
            assignment = self._pairwise(X, centers).argmin(-1)
            updated = self._update(X, assignment)
            shift = (updated - centers).norm(dim=-1).sum()
            centers = updated
            if shift < self.tolerance:
                break
        self.cluster_centers = centers
        return self

    def predict(self, X):
        return self._pairwise(X, self.cluster_centers).argmin(-1)


def colour_features(n_per_cluster):
    means = torch.tensor([[2.0, 3.0, 8.0], [9.0, 8.0, 3.0], [5.0, 12.0, 11.0]])
    sizes = [n_per_cluster, n_per_cluster // 2, 2 * n_per_cluster]
    return torch.cat([m + 0.4 * torch.randn(s, 3) for m, s in zip(means, sizes)])


def main():
    torch.manual_seed(0)
    X = colour_features(6000)
    model = KMeans(num_clusters=3, dtype=torch.float16).fit(X)  # BORN
    labels = model.predict(X)
    sizes = torch.bincount(labels, minlength=3).tolist()
    centre = model.cluster_centers[2].tolist()
    print(f"cluster sizes {sizes}, last centre {[round(c, 2) for c in centre]}")


if __name__ == "__main__":
    main()
