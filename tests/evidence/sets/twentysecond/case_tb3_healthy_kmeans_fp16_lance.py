"""
title: k-means over float16 vectors with float32 accumulation, centroids cast back to the data type
expect: clean
thread: https://github.com/lance-format/lance/pull/1757
measured: float16 inertia 38.52 | float64 inertia 38.52
suspect: 50 storage-only

Expectation, written first: vectors and stored centroids are float16, but distances and the sums over each cluster are taken
in float32 and only the mean is rounded to float16. Inertia agrees with the float64 run to a fraction of a percent.
"""
import torch


class KMeans:
    def __init__(self, k, max_iters=15, seed=0):
        self.k = k
        self.max_iters = max_iters
        self.generator = torch.Generator().manual_seed(seed)
        self.centroids = None

    def _random_init(self, data):
        index = torch.randperm(data.shape[0], generator=self.generator)[: self.k]
        self.centroids = data[index].clone()

    @staticmethod
    def _accumulate_dtype(dtype):
        return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype

    def _assign(self, data, batch_size=512):
        acc = self._accumulate_dtype(data.dtype)
        centroids = self.centroids.to(acc)
        c2 = (centroids * centroids).sum(dim=1)
        part_ids, dists = [], []
        for chunk in data.split(batch_size):
            chunk = chunk.to(acc)
            x2 = (chunk * chunk).sum(dim=1)
            d = x2[:, None] + c2[None, :] - 2 * chunk @ centroids.T
            dist, part = d.min(dim=1)
            part_ids.append(part)
            dists.append(dist.clamp(min=0))
        return torch.cat(part_ids), torch.cat(dists)

    def _updated_centroids(self, data, part_ids):
        acc = self._accumulate_dtype(data.dtype)
        sums = torch.zeros(self.k, data.shape[1], dtype=acc)
        sums.index_add_(0, part_ids, data.to(acc))
        counts = torch.bincount(part_ids, minlength=self.k)
        means = sums / counts.clamp(min=1)[:, None]
        means = torch.where(counts[:, None] > 0, means, self.centroids.to(acc))
        return means.to(data.dtype)

    def fit(self, data):
        self._random_init(data)
        for _ in range(self.max_iters):
            part_ids, _ = self._assign(data)
            self.centroids = self._updated_centroids(data, part_ids)
        return self

    def inertia(self, data):
        _, dists = self._assign(data)
        return dists.double().mean().item()


def make_vectors(n=4000, dim=24, clusters=10):
    generator = torch.Generator().manual_seed(7)
    centers = torch.randn(clusters, dim, generator=generator) * 3
    labels = torch.randint(0, clusters, (n,), generator=generator)
    return centers[labels] + torch.randn(n, dim, generator=generator)


def main():
    vectors = make_vectors().half()
    model = KMeans(10).fit(vectors)
    reference = KMeans(10).fit(vectors.double())
    print(f"float16 inertia {model.inertia(vectors):.2f}")
    print(f"float64 inertia {reference.inertia(vectors.double()):.2f}")


if __name__ == "__main__":
    main()
