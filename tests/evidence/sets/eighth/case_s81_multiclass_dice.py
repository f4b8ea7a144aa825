"""
title: multiclass dice loss on masks that are loaded as bytes
expect: collision
thread: https://github.com/qubvel-org/segmentation_models.pytorch/issues/462
fix_at: 39

Expectation, written first: the mask loader hands out uint8 class maps, and one_hot
wants an int64 index tensor: one_hot is only applicable to index tensor.
BORN is the dtype of the loaded mask; int64 there mends it (a .long() in the loss as well).
"""
import torch
from torch import nn
from torch.nn import functional as F


class TileSource:
    def __init__(self, count, classes=4, size=12):
        self.count, self.classes, self.size = count, classes, size

    def __iter__(self):
        for i in range(self.count):
            gen = torch.Generator().manual_seed(i)
            mask = torch.zeros(self.size, self.size, dtype=torch.uint8)  # BORN
            for c in range(1, self.classes):
                r, k = torch.randint(0, self.size - 4, (2,), generator=gen).tolist()
                mask[r:r + 4, k:k + 4] = c
            image = mask.float()[None] / self.classes
            yield image + 0.05 * torch.randn(image.shape, generator=gen), mask


class DiceLoss(nn.Module):
    def __init__(self, classes, smooth=1.0):
        super().__init__()
        self.classes, self.smooth = classes, smooth

    def forward(self, logits, target):
        batch = logits.shape[0]
        probs = logits.softmax(1).reshape(batch, self.classes, -1)
        flat = target.reshape(batch, -1)
        truth = F.one_hot(flat, self.classes).permute(0, 2, 1)  # COLLIDES
        inter = (probs * truth).sum((0, 2))
        card = probs.sum((0, 2)) + truth.sum((0, 2))
        return 1 - ((2 * inter + self.smooth) / (card + self.smooth)).mean()


class SmallUnet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.down = nn.Conv2d(1, 12, 3, padding=1)
        self.up = nn.Conv2d(12, classes, 3, padding=1)

    def forward(self, x):
        return self.up(torch.relu(self.down(x)))


def main():
    torch.manual_seed(0)
    model, loss_fn = SmallUnet(4), DiceLoss(4)
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(4):
        for image, mask in TileSource(6):
            loss = loss_fn(model(image[None]), mask[None])
            opt.zero_grad()
            loss.backward()
            opt.step()
    print("dice loss %.3f" % loss.item())


if __name__ == "__main__":
    main()
