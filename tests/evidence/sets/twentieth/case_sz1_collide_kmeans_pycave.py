"""
title: k-means++ for a double-precision mixture stops when the sampler writes its candidates
expect: collision
thread: https://github.com/borchero/pycave/issues/59

Expectation, written first: the sampler is a metric whose state `choices` is an empty tensor in the default dtype, float32, and metrics ignore
the `.double()` of the module they sit in. With float64 data the masked assignment of the candidates meets Float and Double and is refused.
The state must be made in the dtype of the data, or the candidates be cast at the assignment.
"""
import torch
import torch.nn as nn
from torchmetrics import Metric


class UniformSampler(Metric):
    full_state_update = False

    def __init__(self, num_features):
        super().__init__()
        self.add_state("total", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")
        self.add_state("batches", [], dist_reduce_fx="cat")

    def update(self, data):
        self.total += data.size(0)
        self.batches.append(data)

    def compute(self):
        pool = torch.cat(self.batches)
        return pool[torch.randint(len(pool), (1,))]


class DistanceSampler(Metric):
    full_state_update = False

    def __init__(self, num_candidates, num_features):
        super().__init__()
        self.num_candidates = num_candidates
        self.add_state("choices", torch.empty(num_candidates, num_features), dist_reduce_fx=None)  # BORN
        self.add_state("cumulative_squared_distance", torch.zeros(()), dist_reduce_fx="sum")

    def update(self, data, shortest_distances):
        eps = torch.finfo(data.dtype).eps
        squared = shortest_distances.square()
        total = squared.sum()
        self.cumulative_squared_distance += total
        prob = total / (self.cumulative_squared_distance + eps)
        sampled = squared.multinomial(self.num_candidates, replacement=True)
        use_choice = torch.rand(self.num_candidates) < prob
        self.choices[use_choice] = data[sampled][use_choice]  # BORN COLLIDES

    def compute(self):
        return self.choices


class KmeansPlusPlusInit(nn.Module):
    def __init__(self, num_clusters, num_features, num_candidates=4):
        super().__init__()
        self.num_clusters = num_clusters
        self.centroids = nn.Parameter(torch.zeros(num_clusters, num_features), requires_grad=False)
        self.uniform_sampler = UniformSampler(num_features)
        self.distance_sampler = DistanceSampler(num_candidates, num_features)

    def fit(self, loader):
        for batch in loader:
            self.uniform_sampler.update(batch)
        self.centroids[0] = self.uniform_sampler.compute()[0]
        for k in range(1, self.num_clusters):
            self.distance_sampler.reset()
            for batch in loader:
                shortest = torch.cdist(batch, self.centroids[:k]).min(dim=1).values
                self.distance_sampler.update(batch, shortest)
            candidates = self.distance_sampler.compute().to(self.centroids.dtype)
            gains = torch.stack([torch.cdist(torch.cat(loader), c[None]).sum() for c in candidates])
            self.centroids[k] = candidates[gains.argmin()]
        return self.centroids


if __name__ == "__main__":
    torch.manual_seed(1)
    data = torch.cat([torch.randn(40, 3, dtype=torch.float64) + c for c in (-4.0, 0.0, 4.0)])
    loader = list(data[torch.randperm(len(data))].split(30))
    init = KmeansPlusPlusInit(3, 3).double()
    print("centroids", init.fit(loader).mean(dim=1).sort().values)
