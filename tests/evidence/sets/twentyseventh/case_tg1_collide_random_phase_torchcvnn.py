"""
title: RandomPhase returns complex128 to a complex64 network
expect: collision
thread: https://github.com/torchcvnn/torchcvnn/issues/50
fix_at: a cast of the batch in the training step

Expectation, written first: the transform draws its phase in float64, so exp(1j * phase) is complex128 and the
product with the float32 image as well. The complex convolution has complex64 weights and refuses the batch.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class RandomPhase:
    """Gives a real image a random phase."""

    def __call__(self, tensor):
        phase = torch.rand_like(tensor, dtype=torch.float64) * 2 * torch.pi  # BORN
        return tensor * torch.exp(1j * phase)  # BORN


class ToMagnitude:
    def __call__(self, image):
        return image.float() / 255


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, x):
        for transform in self.transforms:
            x = transform(x)
        return x


class FakeMNIST(Dataset):
    def __init__(self, n, transform):
        generator = torch.Generator().manual_seed(50)
        self.labels = torch.randint(0, 3, (n,), generator=generator)
        self.images = torch.randint(0, 90, (n, 1, 12, 12), generator=generator, dtype=torch.uint8)
        for i, label in enumerate(self.labels.tolist()):
            self.images[i, :, 4 * label:4 * label + 4] += 120
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.transform(self.images[i]), self.labels[i]


class modReLU(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.Parameter(torch.tensor(0.1))

    def forward(self, z):
        return F.relu(z.abs() + self.b) * torch.exp(1j * z.angle())


class Mod(nn.Module):
    def forward(self, z):
        return z.abs()


def conv_block(in_channels, out_channels, cdtype):
    return [nn.Conv2d(in_channels, out_channels, 3, padding=1, dtype=cdtype), modReLU()]


class CVNN(nn.Module):
    def __init__(self, num_classes, cdtype=torch.complex64):
        super().__init__()
        self.features = nn.Sequential(*conv_block(1, 6, cdtype), *conv_block(6, 6, cdtype))
        self.head = nn.Sequential(Mod(), nn.AdaptiveAvgPool2d((3, 1)), nn.Flatten(), nn.Linear(18, num_classes))

    def forward(self, x):
        return self.head(self.features(x))  # COLLIDES


def train_epoch(model, loader, optim):
    loss_avg, correct, num = 0.0, 0, 0
    for X, y in loader:
        y_pred = model(X)
        loss = F.cross_entropy(y_pred, y)
        optim.zero_grad()
        loss.backward()
        optim.step()
        loss_avg += loss.item() * len(y)
        correct += (y_pred.argmax(dim=1) == y).sum().item()
        num += len(y)
    return loss_avg / num, correct / num


if __name__ == "__main__":
    torch.manual_seed(1)
    dataset = FakeMNIST(48, Compose([ToMagnitude(), RandomPhase()]))
    model = CVNN(3)
    optim = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for epoch in range(2):
        loss, acc = train_epoch(model, DataLoader(dataset, batch_size=16), optim)
        print("epoch", epoch, "loss", round(loss, 4), "acc", round(acc, 3))
