"""
title: a convolutional classifier trains in float16 autocast on the CPU with a gradient scaler
expect: clean
thread: https://github.com/pytorch/pytorch/issues/111559
measured: accuracy 1.00 (float32: accuracy 1.00)

Expectation, written first: the scaler lifts the half gradients, unscales before clipping and skips a step should one
overflow; weights are float32. The accuracy is that of a float32 run.
"""
import torch
import torch.nn.functional as F
from torch import nn

DTYPE = torch.float16


class ConvNet(nn.Module):
    def __init__(self, classes=4, width=12):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1)
        self.bn = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = F.relu(self.bn(self.conv1(x)))
        x = F.relu(self.conv2(x)).mean((2, 3))
        return self.head(x)


class Stripes(torch.utils.data.Dataset):
    """four orientations of a noisy grating"""

    def __init__(self, n, seed):
        gen = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(4, (n,), generator=gen)
        y, x = torch.meshgrid(torch.arange(10.0), torch.arange(10.0), indexing="ij")
        angle = self.labels[:, None, None] * torch.pi / 4
        phase = 6.28 * torch.rand(n, 1, 1, generator=gen)
        self.images = torch.sin(1.5 * (x * angle.cos() + y * angle.sin()) + phase)
        self.images += 0.2 * torch.randn(n, 10, 10, generator=gen)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i][None], self.labels[i]


class Engine:
    def __init__(self, model, lr=5e-3):
        self.model = model
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=DTYPE is torch.float16)

    def autocast(self):
        return torch.autocast("cpu", DTYPE, enabled=DTYPE is not torch.float32)

    def train_epoch(self, loader):
        self.model.train()
        for images, labels in loader:
            with self.autocast():
                logits = self.model(images)
                loss = F.cross_entropy(logits.float(), labels)
            self.opt.zero_grad(set_to_none=True)
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.opt)
            nn.utils.clip_grad_norm_(self.model.parameters(), 2.0)
            self.scaler.step(self.opt)
            self.scaler.update()

    @torch.no_grad()
    def accuracy(self, data):
        self.model.eval()
        with self.autocast():
            logits = self.model(data.images[:, None])
        return (logits.argmax(1) == data.labels).double().mean().item()


def main():
    torch.manual_seed(0)
    engine = Engine(ConvNet())
    loader = torch.utils.data.DataLoader(Stripes(320, seed=1), batch_size=32, shuffle=False)
    for _ in range(10):
        engine.train_epoch(loader)
    print(f"accuracy {engine.accuracy(Stripes(200, seed=2)):.2f}")


main()
