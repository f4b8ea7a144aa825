"""
title: land-cover masks go through the float32 converter of the bands
expect: collision
thread: https://github.com/torchgeo/terratorch/pull/644
fix_at: 62

Expectation, written first: the dataset turns the bands and the class mask into tensors with one helper that casts
to float32. Cross entropy over pixels wants integer class targets and raises for a float mask. The mask must not
take the float cast (or be cast to long where it is built).
"""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


def to_tensor(array):
    return torch.from_numpy(np.ascontiguousarray(array)).to(torch.float32)  # BORN


class GenericNonGeoSegmentationDataset(Dataset):
    def __init__(self, n_samples, n_bands, n_classes, size=16, constant_scale=1e-4, reduce_zero_label=True):
        rng = np.random.default_rng(5)
        self.images = rng.integers(0, 10000, (n_samples, size, size, n_bands)).astype(np.uint16)
        self.masks = rng.integers(1, n_classes + 1, (n_samples, size, size)).astype(np.uint8)
        self.constant_scale = constant_scale
        self.reduce_zero_label = reduce_zero_label

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index].astype(np.float32) * self.constant_scale
        mask = self.masks[index]
        if self.reduce_zero_label:
            mask = mask - 1
        output = {"image": to_tensor(np.moveaxis(image, -1, 0))}
        output["mask"] = to_tensor(mask)  # BORN
        return output


class UperDecoder(nn.Module):
    def __init__(self, n_bands, n_classes, width=12):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(n_bands, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)
        )
        self.head = nn.Conv2d(width, n_classes, 1)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


class SemanticSegmentationTask:
    def __init__(self, model, lr=1e-3, ignore_index=255):
        self.model = model
        self.criterion = nn.CrossEntropyLoss(ignore_index=ignore_index)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)

    def training_step(self, batch):
        logits = self.model(batch["image"])
        loss = self.criterion(logits, batch["mask"])  # COLLIDES
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        accuracy = (logits.argmax(1) == batch["mask"]).float().mean()
        return loss.item(), accuracy.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    dataset = GenericNonGeoSegmentationDataset(n_samples=8, n_bands=6, n_classes=4)
    task = SemanticSegmentationTask(UperDecoder(6, 4))
    for batch in DataLoader(dataset, batch_size=4):
        loss, acc = task.training_step(batch)
    print("loss", f"{loss:.4f}", "pixel accuracy", f"{acc:.3f}")
