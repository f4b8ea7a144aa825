"""
title: the label maps of a data set with 847 categories are read as bytes
expect: silent:overflow|integer-overflow|wraparound|downcast
thread: https://github.com/facebookresearch/detectron2/pull/5386
measured: categories with examples 256 of 847, accuracy 21.7%
widened: categories with examples 847 of 847, accuracy 100.0%

Expectation, written first: category 256 becomes category 0 and so on, three or four categories share a name, and a
classifier that is otherwise right is wrong for most of them. The innocent suspect is the crowd flag beside it, also
a uint8 tensor: it holds only 0 and 1.
"""
import torch
from torch import nn


class SegmentationDataset:
    def __init__(self, classes, regions, gen):
        self.classes = classes
        self.category = torch.randint(0, classes, (regions,), generator=gen)
        self.crowd = torch.rand(regions, generator=gen) < 0.05
        self.prototypes = torch.randn(classes, 48, generator=gen)
        self.gen = gen

    def __len__(self):
        return len(self.category)

    def record(self, i):
        return {"category_id": int(self.category[i]), "iscrowd": int(self.crowd[i])}

    def feature(self, i):
        return self.prototypes[self.category[i]] + 0.4 * torch.randn(48, generator=self.gen)


class Mapper:
    """turns annotation records into what the model is given"""

    def __call__(self, dataset, indices):
        records = [dataset.record(i) for i in indices]
        return {
            "features": torch.stack([dataset.feature(i) for i in indices]),
            "labels": torch.tensor([r["category_id"] for r in records]).to(torch.uint8),  # BORN
            "iscrowd": torch.tensor([r["iscrowd"] for r in records]).to(torch.uint8),
        }


class PrototypeHead(nn.Module):
    def __init__(self, classes, width=48):
        super().__init__()
        self.register_buffer("total", torch.zeros(classes, width))
        self.register_buffer("count", torch.zeros(classes))

    def fit(self, batch):
        keep = batch["iscrowd"] == 0
        labels = batch["labels"][keep].long()
        self.total.index_add_(0, labels, batch["features"][keep])
        self.count.index_add_(0, labels, torch.ones(len(labels)))

    def forward(self, x):
        means = self.total / self.count.clamp(min=1)[:, None]
        distance = torch.cdist(x, means)
        return distance.masked_fill(self.count == 0, float("inf")).argmin(-1)


def main():
    gen = torch.Generator().manual_seed(6)
    data = SegmentationDataset(classes=847, regions=6000, gen=gen)
    mapper, head = Mapper(), PrototypeHead(847)
    for start in range(0, len(data), 500):
        head.fit(mapper(data, range(start, start + 500)))
    truth = torch.randint(0, 847, (1500,), generator=gen)
    probe = data.prototypes[truth] + 0.4 * torch.randn(1500, 48, generator=gen)
    predicted = head(probe)
    print(f"categories with examples {int((head.count > 0).sum())} of 847, accuracy {100 * (predicted == truth).double().mean():.1f}%")


main()
