"""
title: a convolution net under float16 autocast with GradScaler, byte images scaled to float32
expect: clean

The usual recipe of https://pytorch.org/docs/stable/notes/amp_examples.html on the CPU, accuracy counted in int64.
"""
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(41)


class Bars(Dataset):
    def __init__(self, n):
        self.labels = torch.randint(0, 4, (n,), dtype=torch.uint8)
        self.images = torch.randint(0, 60, (n, 1, 12, 12), dtype=torch.uint8)
        for k in range(n):
            c = int(self.labels[k]) * 3
            self.images[k, :, :, c:c + 3] += 150

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i].float() / 255, self.labels[i].long()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                                      nn.Conv2d(8, 16, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(16 * 36, 4)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


def train_epoch(model, loader, optimizer, scaler):
    total = 0.0
    for images, labels in loader:
        with torch.autocast("cpu", dtype=torch.float16):
            logits = model(images)
            loss = F.cross_entropy(logits.float(), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def accuracy(model, loader):
    right = seen = 0
    for images, labels in loader:
        right += (model(images).argmax(-1) == labels).sum().item()
        seen += labels.numel()
    return right / seen


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
loader = DataLoader(Bars(128), batch_size=32, shuffle=True)
for epoch in range(3):
    loss = train_epoch(model, loader, optimizer, scaler)
print("loss", round(loss, 3), "accuracy", round(accuracy(model.eval(), loader), 3))
