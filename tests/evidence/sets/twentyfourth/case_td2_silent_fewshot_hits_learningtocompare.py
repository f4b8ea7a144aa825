"""
title: reported few-shot accuracy drops as more test episodes are evaluated
expect: silent:integer-overflow|overflow|wraparound
thread: https://github.com/dragen1860/LearningToCompare-Pytorch/issues/1
measured: hits 81 of 900, accuracy 0.090
widened: hits 849 of 900, accuracy 0.943; innocent: hits 81 of 900, accuracy 0.090
suspect: 44 range (five-way labels 0..4)

Expectation, written first: the number of hits is gathered in a byte tensor like the result of eq, so it wraps at 256
while the total goes on in a Python integer; the accuracy is far too low. Remedy: an int64 counter. Labels in uint8 are
harmless.
"""
import torch
from torch import nn


class RelationNetwork(nn.Module):
    def __init__(self, dim=16, n_way=5):
        super().__init__()
        self.n_way = n_way
        self.embed = nn.Linear(dim, 32)
        self.metric = nn.PairwiseDistance()

    def forward(self, support_x, support_y, query_x):
        support = self.embed(support_x)
        query = self.embed(query_x)
        prototypes = torch.stack([support[support_y == c].mean(0) for c in range(self.n_way)])
        distance = torch.cdist(query, prototypes)
        return distance.argmin(dim=1)


class MiniImagenet:
    def __init__(self, n_way, k_shot, k_query, dim, generator):
        self.n_way, self.k_shot, self.k_query = n_way, k_shot, k_query
        self.centres = torch.randn(20, dim, generator=generator)
        self.generator = generator

    def episode(self):
        classes = torch.randperm(20, generator=self.generator)[:self.n_way]
        support_y = torch.arange(self.n_way).repeat_interleave(self.k_shot)
        query_y = torch.arange(self.n_way).repeat_interleave(self.k_query)
        support_x = self._sample(classes[support_y])
        query_x = self._sample(classes[query_y])
        return support_x, support_y.to(torch.uint8), query_x, query_y.to(torch.uint8)

    def _sample(self, labels):
        noise = torch.randn(len(labels), self.centres.shape[1], generator=self.generator)
        return self.centres[labels] + 0.9 * noise


@torch.no_grad()
def evaluate(net, dataset, episodes):
    total_correct = torch.zeros((), dtype=torch.uint8)  # BORN
    total_num = 0
    for _ in range(episodes):
        support_x, support_y, query_x, query_y = dataset.episode()
        pred = net(support_x, support_y, query_x)
        correct = torch.eq(pred, query_y).sum()
        total_correct += correct  # BORN
        total_num += query_y.numel()
    return total_correct.item(), total_num


def main():
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(1860)
    dataset = MiniImagenet(n_way=5, k_shot=5, k_query=3, dim=16, generator=generator)
    net = RelationNetwork().eval()
    correct, total = evaluate(net, dataset, episodes=60)
    print(f"hits {correct} of {total}, accuracy {correct / total:.3f}")


main()
