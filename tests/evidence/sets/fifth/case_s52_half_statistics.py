"""
title: a classifier of 12-bit images is shipped in half, the running variances of its first norm become infinite
expect: silent:overflow|downcast|round-trip
fix_at: 70

After https://github.com/apple/coreai-torch/pull/54 and https://github.com/pytorch/pytorch/pull/126525.
Right: the statistics stay float32 in what is shipped.
"""
import io

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(204)


def slices(batch, size=16):
    """12-bit scans, class 1 has a bright spot."""
    label = torch.randint(0, 2, (batch,))
    image = 1500 + 700 * torch.randn(batch, 1, size, size)
    spot = torch.zeros(batch, 1, size, size)
    spot[:, :, 5:9, 5:9] = 1800
    return (image + spot * label[:, None, None, None]).clamp(0, 4095), label


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width)
        self.second, self.last = nn.Conv2d(width, width, 3, padding=1, stride=2), nn.BatchNorm2d(width)
        self.out = nn.Linear(width, 2)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        x = F.relu(self.last(self.second(x)))
        return self.out(x.amax((2, 3)))


class Package:
    def __init__(self, dtype):
        self.dtype = dtype

    def write(self, model):
        blob = io.BytesIO()
        state = {name: value.to(self.dtype) if value.is_floating_point() else value for name, value in model.state_dict().items()}  # BORN
        torch.save(state, blob)
        return blob.getvalue()

    def read(self, data):
        model = Net()
        model.load_state_dict(torch.load(io.BytesIO(data)))
        return model.eval()


def accuracy(model):
    images, label = slices(256)
    with torch.no_grad():
        return (model(images).argmax(-1) == label).float().mean().item()


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(60):
    images, label = slices(32)
    loss = F.cross_entropy(model(images), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
package = Package(torch.float16)
shipped = package.read(package.write(model))
print("accuracy here", round(accuracy(model.eval()), 3), "shipped", round(accuracy(shipped), 3))
