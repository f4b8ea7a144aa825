"""
title: class frequencies of a segmentation set are counted in int16 and wrap around
expect: silent:overflow
modes: diagnose

After davidtvs/PyTorch-ENet#46, meta-pytorch/tnt#135 and Lightning-AI/torchmetrics#1510 (pixel counts in too narrow an integer).
20 masks of 64 x 64 pixels give the commonest class 62,555 pixels; int16 holds 32,767, so its count is negative and it gets the weight
of the rarest class (10 instead of 0.098; the others are 2.5 times too small). Right: count in int64.
"""
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(32)
CLASSES = 4


class Scenes(Dataset):
    """Mostly background (class 0); the class can be seen in the image."""

    def __init__(self, number, size=64):
        self.number, self.size = number, size

    def __len__(self):
        return self.number

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        mask = torch.zeros(self.size, self.size, dtype=torch.int64)
        for kind in range(1, CLASSES):
            y, x = torch.randint(0, 40, (2,), generator=generator).tolist()
            mask[y : y + 18, x : x + 10 * kind] = kind
        image = mask[None].float() / CLASSES + 0.2 * torch.randn(1, self.size, self.size, generator=generator)
        return image, mask


def frequencies(dataset):
    counts = torch.zeros(CLASSES, dtype=torch.int16)  # BORN
    for index in range(len(dataset)):
        _, mask = dataset[index]
        counts += torch.bincount(mask.flatten(), minlength=CLASSES)
    return counts


def balance(counts, most=10.0):
    share = counts.float() / counts.sum().float()
    return (share.median() / share.clamp(min=1e-6)).clamp(max=most)


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.inp = nn.Conv2d(1, width, 3, stride=2, padding=1)
        self.out = nn.Conv2d(width, CLASSES, 1)

    def forward(self, image):
        return F.interpolate(self.out(F.relu(self.inp(image))), scale_factor=2, mode="nearest")


def main():
    dataset = Scenes(20)
    weight = balance(frequencies(dataset))
    print("weights", [round(w, 3) for w in weight.tolist()])
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(2):
        for image, mask in DataLoader(dataset, batch_size=5):
            loss = F.cross_entropy(model(image), mask, weight=weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, "loss", round(loss.item(), 4))


main()
