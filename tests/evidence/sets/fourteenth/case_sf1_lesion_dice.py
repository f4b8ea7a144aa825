"""
title: a multiclass dice loss makes one-hot targets of masks that the dataset returns as floats
expect: collision
thread: https://github.com/qubvel-org/segmentation_models.pytorch/issues/323
fix_at: 35, 39, 50, 63

Expectation, written first: the masks are uint8 on disk and the dataset casts image and mask alike to float32;
one_hot is for int64 index tensors only and refuses.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Scans(Dataset):
    """slices with background, organ and lesion"""

    def __init__(self, count=8, size=24, seed=11):
        rng = np.random.default_rng(seed)
        yy, xx = np.mgrid[:size, :size]
        self.items = []
        for _ in range(count):
            cy, cx = rng.integers(8, 16, 2)
            r = np.hypot(yy - cy, xx - cx)
            mask = ((r < 7).astype(np.uint8) + (r < 3)).astype(np.uint8)
            image = (60 * mask + rng.normal(40, 12, (size, size))).clip(0, 255).astype(np.uint8)
            self.items.append((image, mask))

    def __len__(self):
        return len(self.items)

    def to_tensor(self, x, scale=1.0):
        return torch.from_numpy(x).float() / scale  # BORN

    def __getitem__(self, k):
        image, mask = self.items[k]
        return self.to_tensor(image, 255.0)[None], self.to_tensor(mask)  # BORN


class DiceLoss(nn.Module):
    def __init__(self, smooth=1.0):
        super().__init__()
        self.smooth = smooth

    def forward(self, y_pred, y_true):
        n, c = y_pred.shape[:2]
        y_pred = y_pred.log_softmax(dim=1).exp().view(n, c, -1)
        y_true = F.one_hot(y_true.view(n, -1), c)  # COLLIDES
        y_true = y_true.permute(0, 2, 1).to(y_pred.dtype)
        overlap = (y_pred * y_true).sum((0, 2))
        total = (y_pred + y_true).sum((0, 2))
        return (1 - (2 * overlap + self.smooth) / (total + self.smooth)).mean()


def main():
    torch.manual_seed(11)
    net = nn.Sequential(nn.Conv2d(1, 12, 5, padding=2), nn.ReLU(), nn.Conv2d(12, 3, 3, padding=1))
    loss_fn, opt = DiceLoss(), torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(6):
        for images, masks in DataLoader(Scans(), batch_size=4):
            loss = loss_fn(net(images), masks)
            opt.zero_grad()
            loss.backward()
            opt.step()
    print(f"dice loss {loss.item():.4f}")


main()
