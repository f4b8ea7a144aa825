"""
title: patch training of the crop detector: float64 mix labels from numpy against float32 scores in binary_cross_entropy
expect: collision
thread: https://github.com/basilevh/dissecting-image-crops/issues/2
fix_at:

Expectation, written first: the batch mixes real and swapped patches and builds the labels with numpy, which gives float64. from_numpy keeps it and the
network's sigmoid scores are float32; binary_cross_entropy refuses the pair. The labels must be made float32 or cast before the loss.
"""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class PatchDataset(Dataset):
    def __init__(self, n, patch=8, grid=4):
        rng = np.random.default_rng(1)
        self.grid = grid
        self.images = rng.random((n, 3, patch * grid, patch * grid)).astype(np.float32)
        self.patch = patch

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        img, p = self.images[i], self.patch
        rows = [img[:, r * p : (r + 1) * p, c * p : (c + 1) * p] for r in range(self.grid) for c in range(self.grid)]
        return torch.from_numpy(np.stack(rows))


class PatchNet(nn.Module):
    def __init__(self, positions, dim=16):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, dim, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.position_head = nn.Linear(dim, positions)
        self.binary_head = nn.Linear(dim, 1)

    def forward(self, patches):
        z = self.features(patches)
        return self.position_head(z), torch.sigmoid(self.binary_head(z)).squeeze(1)


def mix_patch_batch(patches, rng, swap_ratio=0.5):
    b, n = patches.shape[:2]
    swapped = rng.random((b, n)) < swap_ratio
    donors = patches[torch.from_numpy(rng.permutation(b))]
    mask = torch.from_numpy(swapped).view(b, n, 1, 1, 1)
    mixed = torch.where(mask, donors, patches)
    true_scores = np.ones((b, n))  # BORN
    true_scores[swapped] = 0.0
    positions = torch.arange(n).repeat(b)
    return mixed.flatten(0, 1), positions, torch.from_numpy(true_scores.reshape(-1))  # BORN


def train_epoch(model, loader, optimizer, rng):
    position_loss, binary_loss = nn.CrossEntropyLoss(), nn.BCELoss()
    for patches in loader:
        inputs, positions, true_scores = mix_patch_batch(patches, rng)
        predicted_positions, predicted_scores = model(inputs)
        binary_loss_value = binary_loss(predicted_scores, true_scores)  # BORN COLLIDES
        loss = position_loss(predicted_positions, positions) + 0.5 * binary_loss_value
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", loss.item())


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(2)
    dataset = PatchDataset(8)
    model = PatchNet(dataset.grid**2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    train_epoch(model, DataLoader(dataset, batch_size=4), optimizer, rng)


if __name__ == "__main__":
    main()
