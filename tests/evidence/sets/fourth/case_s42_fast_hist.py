"""
title: the confusion matrix of a segmentation run is indexed with uint8 label maps
expect: silent:overflow|precision-loss|precision-loss|precision-loss|downcast
fix_at: 48

After https://github.com/open-mmlab/mmsegmentation/issues/3583, issue 1969 and pull 3755: 21 classes, label * 21 + prediction passes 255 and
wraps. The images' cast to float32 and the predictions' cast are innocent.
Here the mean IoU of a model that is right on 90 % of the pixels comes out near 0.42 (repaired: 0.81). Right: widen the labels.
"""
import torch
from torch import nn

torch.manual_seed(22)
CLASSES = 21


class Scenes(torch.utils.data.Dataset):
    """Label maps are kept as the PNGs have them, one byte a pixel."""

    def __init__(self, n=6, size=32):
        blocks = torch.randint(0, CLASSES, (n, size // 8, size // 8))
        self.masks = blocks.repeat_interleave(8, 1).repeat_interleave(8, 2).to(torch.uint8)  # BORN
        self.size = size

    def __len__(self):
        return len(self.masks)

    def __getitem__(self, i):
        mask = self.masks[i]
        noisy = torch.where(torch.rand(self.size, self.size) < 0.1, torch.randint_like(mask, CLASSES), mask)
        return noisy, mask


class Lookup(nn.Module):
    """Stands in for a trained net: scores the class that the noisy map shows."""

    def forward(self, noisy):
        return nn.functional.one_hot(noisy.long(), CLASSES).permute(0, 3, 1, 2).to(torch.float32)


class Evaluator:
    def __init__(self, classes, ignore=255):
        self.classes, self.ignore = classes, ignore
        self.hist = torch.zeros(classes, classes, dtype=torch.int64)

    def update(self, prediction, label):
        valid = label != self.ignore
        index = self.classes * label[valid] + prediction[valid]
        count = torch.bincount(index, minlength=self.classes ** 2)
        self.hist += count[: self.classes ** 2].view(self.classes, self.classes)

    def miou(self):
        hit = self.hist.diagonal().double()
        union = self.hist.sum(0) + self.hist.sum(1) - hit
        return (hit / union.clamp(min=1))[self.hist.sum(1) > 0].mean().item()


model, evaluator = Lookup(), Evaluator(CLASSES)
for images, masks in torch.utils.data.DataLoader(Scenes(), batch_size=2):
    prediction = model(images).argmax(1).to(torch.uint8)
    evaluator.update(prediction, masks)
print("pixels", int(evaluator.hist.sum()), "mIoU", round(evaluator.miou(), 3))
