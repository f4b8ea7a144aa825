"""
title: Expanded L2 distances of near-duplicates come out negative and their roots NaN
expect: silent:cancellation|precision-loss|downcast
thread: https://github.com/NVIDIA/cuvs/issues/991
measured: nan distances 270  recall@4 0.66  nearest correct 0.26
widened: nan distances 0  recall@4 1.00  nearest correct 0.99
innocent: nan distances 260  recall@4 0.68  nearest correct 0.23
suspect: 27 consistent

Expectation, written first: The squared norms are float32 but the dot products come out of a float16 matmul, so for vectors that nearly coincide norm + norm - 2
dot is the rounding of the dot product, often negative, and its root NaN or the order of neighbours wrong. The vectors uploaded as
float16 are rounded too, but alike in all three terms, and their distances stay in order.
"""
import torch


def l2_norms(data):
    return data.float().pow(2).sum(dim=1)


class NNDescent:
    def __init__(self, graph_degree=4, metric="sqeuclidean"):
        self.graph_degree = graph_degree
        self.metric = metric

    def build(self, dataset):
        self.data = dataset.to(torch.float16)
        self.norms = l2_norms(self.data)
        distances = torch.cat([self._local_join(start) for start in range(0, len(dataset), 64)])
        distances.fill_diagonal_(float("inf"))
        best = torch.topk(torch.nan_to_num(distances, nan=float("inf")), self.graph_degree, largest=False)
        self.graph = best.indices
        self.invalid = int(distances.isnan().sum())
        return self

    def _local_join(self, start):
        rows, cols = self.data[start:start + 64], self.data
        dots = rows.half() @ cols.half().T  # BORN
        distances = self.norms[start:start + 64, None] + self.norms[None, :] - 2.0 * dots  # BORN
        if self.metric == "euclidean":
            distances = distances.sqrt()
        return distances


def make_dataset(groups=40, per_group=5, dim=32):
    g = torch.Generator().manual_seed(0)
    centers = torch.nn.functional.normalize(torch.randn(groups, dim, generator=g), dim=1) * 4.0
    radii = torch.tensor([0.01, 0.02, 0.03, 0.04, 0.05])
    offsets = torch.nn.functional.normalize(torch.randn(groups, per_group, dim, generator=g), dim=2)
    points = centers[:, None] + offsets * radii[None, :, None]
    return points.reshape(-1, dim)


def recall(graph, dataset):
    exact = torch.cdist(dataset.double(), dataset.double(), compute_mode="donot_use_mm_for_euclid_dist")
    exact.fill_diagonal_(float("inf"))
    truth = exact.topk(graph.shape[1], largest=False).indices
    hits = (graph[:, :, None] == truth[:, None, :]).any(dim=2)
    return hits.float().mean().item(), (graph[:, 0] == truth[:, 0]).float().mean().item()


def main():
    dataset = make_dataset()
    index = NNDescent(metric="euclidean").build(dataset)
    full, first = recall(index.graph, dataset)
    print(f"nan distances {index.invalid}  recall@4 {full:.2f}  nearest correct {first:.2f}")


if __name__ == "__main__":
    main()
