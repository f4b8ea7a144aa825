"""
title: edge weights of an image graph come from differences of uint8 pixels
expect: silent:overflow|wraparound|integer-overflow|downcast
thread: https://github.com/dwave-examples/image-segmentation/issues/10
measured: edges judged rightly 18.6%, segments found 3504
widened: edges judged rightly 100.0%, segments found 6

Expectation, written first: a pixel that is darker by three than its neighbour gives 253 instead of -3, so the weight
says "edge" inside flat regions and the graph cut falls apart. The weights are kept in float16, far from the
threshold they are compared with; node numbers in int16 fit.
"""
import torch


class Picture:
    """three flat regions with a little sensor noise, 8 bits per channel"""

    def __init__(self, n, seed):
        gen = torch.Generator().manual_seed(seed)
        axis = torch.arange(n)
        region = (axis[:, None] > n // 2).long() + ((axis[None] - n // 2).abs() < n // 6).long()
        colour = torch.tensor([[60, 70, 80], [120, 60, 40], [200, 190, 90]])
        noise = torch.randint(-4, 5, (n, n, 3), generator=gen)
        self.pixels = (colour[region] + noise).to(torch.uint8)  # BORN
        self.region = region.to(torch.int8)


class PixelGraph:
    def __init__(self, picture, sigma=40.0):
        n = picture.pixels.shape[0]
        self.count, self.sigma = n * n, sigma
        node = torch.arange(n * n, dtype=torch.int16).view(n, n)
        flat = picture.pixels.reshape(-1, 3)  # BORN
        pairs = [(node[:, :-1], node[:, 1:]), (node[:-1], node[1:])]
        self.a = torch.cat([p.flatten() for p, _ in pairs]).long()
        self.b = torch.cat([q.flatten() for _, q in pairs]).long()
        self.weight = self.weigh(flat[self.a], flat[self.b])

    def weigh(self, x, y):
        difference = (x - y).float()  # BORN
        return torch.exp(-(difference / self.sigma).square().sum(-1)).half()


class Components:
    """label propagation over the edges that are strong"""

    def __init__(self, graph, strong=0.5):
        self.a, self.b = graph.a[graph.weight > strong], graph.b[graph.weight > strong]
        self.count = graph.count

    def label(self, rounds=400):
        label = torch.arange(self.count)
        for _ in range(rounds):
            before = label.clone()
            low = torch.minimum(label[self.a], label[self.b])
            label = label.scatter_reduce(0, self.a, low, "amin").scatter_reduce(0, self.b, low, "amin")
            label = label[label]
            if torch.equal(before, label):
                break
        return label


def main():
    picture = Picture(72, seed=3)
    graph = PixelGraph(picture)
    same = picture.region.flatten()[graph.a] == picture.region.flatten()[graph.b]
    right = ((graph.weight > 0.5) == same).double().mean().item()
    segments = len(Components(graph).label().unique())
    print(f"edges judged rightly {100 * right:.1f}%, segments found {segments}")


main()
