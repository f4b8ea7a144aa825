"""
title: complex-valued ViT on MNIST: Input type (c10::complex<float>) and bias type (float) should be the same
expect: collision
thread: https://github.com/torchcvnn/examples/issues/13

Expectation, written first: the train() path asks the input transform for complex64 images, while the patch embedder is a
real convolution that makes the spectrum itself with a real FFT. The convolution refuses the complex input.
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class ToDtype:
    def __init__(self, dtype):
        self.dtype = dtype

    def __call__(self, image):
        return image.to(self.dtype)  # BORN


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class Digits(Dataset):
    def __init__(self, transform, size=12):
        generator = torch.Generator().manual_seed(4)
        self.images = torch.randint(0, 256, (size, 1, 16, 16), generator=generator, dtype=torch.uint8)
        self.labels = torch.arange(size) % 10
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(self.images[index]), self.labels[index]


class PatchEmbedder(nn.Module):
    def __init__(self, cin=1, hidden_dim=12, patch_size=4):
        super().__init__()
        self.embedder = nn.Conv2d(cin, hidden_dim, patch_size, stride=patch_size)

    def forward(self, x):
        patches = self.embedder(x)  # COLLIDES
        return torch.fft.rfft2(patches).flatten(2).transpose(1, 2)


class Modulus(nn.Module):
    def forward(self, z):
        return z.abs()


class ViT(nn.Module):
    def __init__(self, hidden_dim=12, num_classes=10):
        super().__init__()
        self.embedder = PatchEmbedder(hidden_dim=hidden_dim)
        self.layer = nn.Linear(hidden_dim, hidden_dim, dtype=torch.complex64)
        self.head = nn.Sequential(Modulus(), nn.Linear(hidden_dim, num_classes))

    def forward(self, x):
        tokens = self.embedder(x)
        tokens = tokens + self.layer(tokens)
        return self.head(tokens.mean(dim=1))


def train(num_epochs=2):
    transform = Compose([ToDtype(torch.complex64)])  # BORN
    loader = DataLoader(Digits(transform), batch_size=4)
    model = ViT()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(num_epochs):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images / 255.0), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    train()
