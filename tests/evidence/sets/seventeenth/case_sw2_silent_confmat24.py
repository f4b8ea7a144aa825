"""
title: mIoU of a 24 class segmenter is near zero though the predictions are good: ByteTensor labels wrap in the bin index
expect: silent:overflow|wraparound|integer-overflow
thread: https://github.com/Lightning-AI/torchmetrics/issues/1510
measured: mIoU 0.1286  IoU of class 3 0.2315  of class 20 0.0000
widened: mIoU 0.5720  IoU of class 3 0.5483  of class 20 0.5870
innocent: mIoU 0.1286  IoU of class 3 0.2315  of class 20 0.0000
suspect: 46 int16 predictions: fits (class numbers stay below 24)

Expectation, written first: The label map keeps its uint8 storage into the update, where target * num_classes is taken in uint8 and wraps
    from class 11 on (a Python number does not promote). The bins of high classes land in the rows of others and the mIoU collapses. The
    int16 of the predictions looks narrow, but 24 classes fit.
"""
import torch
from torch import nn


class VoidAwareLabels:
    def __init__(self, num_classes, size, seed):
        g = torch.Generator().manual_seed(seed)
        self.maps = torch.randint(0, num_classes, (6, size, size), generator=g).to(torch.uint8)

    def __len__(self):
        return self.maps.shape[0]

    def __getitem__(self, i):
        return self.maps[i]


class NoisySegmenter(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.num_classes = num_classes

    def forward(self, labels):
        onehot = nn.functional.one_hot(labels.long(), self.num_classes).permute(2, 0, 1).float()
        return (2.6 * onehot + torch.randn_like(onehot)).unsqueeze(0)


class MulticlassConfusionMatrix:
    def __init__(self, num_classes):
        self.num_classes = num_classes
        self.confmat = torch.zeros(num_classes, num_classes, dtype=torch.long)

    def _format(self, preds, target):
        preds = preds.argmax(1).flatten().to(torch.int16)
        target = target.flatten()  # BORN
        return preds, target

    def update(self, preds, target):
        preds, target = self._format(preds, target)
        unique_mapping = (target * self.num_classes + preds).to(torch.long)  # BORN
        bins = torch.bincount(unique_mapping, minlength=self.num_classes**2)
        self.confmat += bins[: self.num_classes**2].reshape(self.num_classes, self.num_classes)

    def compute(self):
        inter = self.confmat.diag().double()
        union = self.confmat.sum(0) + self.confmat.sum(1) - self.confmat.diag()
        return inter / union.clamp(min=1)


torch.manual_seed(0)
num_classes = 24
data, model = VoidAwareLabels(num_classes, 64, seed=1), NoisySegmenter(num_classes)
metric = MulticlassConfusionMatrix(num_classes)
for i in range(len(data)):
    metric.update(model(data[i]), data[i])
iou = metric.compute()
print(f"mIoU {iou.mean():.4f}  IoU of class 3 {iou[3]:.4f}  of class 20 {iou[20]:.4f}")
