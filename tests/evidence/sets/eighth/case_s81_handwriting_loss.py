"""
title: a line reader for handwriting whose dataset stores the target ids as int32
expect: collision
thread: https://github.com/tobiasvanderwerff/full-page-handwriting-recognition/issues/4

Expectation, written first: the label encoder returns an int32 tensor; the loss wants
class indices in int64 (or bytes) and refuses a target of type Int.
BORN is the line of the label encoder where int32 is chosen; int64 there mends it.
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class LabelEncoder:
    def __init__(self, alphabet):
        self.index = {c: i + 1 for i, c in enumerate(alphabet)}

    def encode(self, text, length):
        ids = [self.index[c] for c in text][:length]
        ids += [0] * (length - len(ids))
        return torch.tensor(ids, dtype=torch.int32)  # BORN

    def __len__(self):
        return len(self.index) + 1


class LineImages(Dataset):
    def __init__(self, texts, encoder, length=10):
        self.texts, self.encoder, self.length = texts, encoder, length

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(i)
        image = torch.rand(1, 8, 40, generator=gen)
        return image, self.encoder.encode(self.texts[i], self.length)


class Reader(nn.Module):
    def __init__(self, classes, length=10):
        super().__init__()
        self.conv = nn.Conv2d(1, 12, 3, padding=1)
        self.pool = nn.AdaptiveAvgPool2d((1, length))
        self.head = nn.Linear(12, classes)

    def forward(self, x):
        h = self.pool(torch.relu(self.conv(x))).squeeze(2)
        return self.head(h.transpose(1, 2))


class Trainer:
    def __init__(self, model, classes):
        self.model, self.classes = model, classes
        self.criterion = nn.CrossEntropyLoss(ignore_index=0)
        self.opt = torch.optim.Adam(model.parameters(), 1e-2)

    def step(self, images, targets):
        logits = self.model(images)
        loss = self.criterion(logits.reshape(-1, self.classes), targets.reshape(-1))  # COLLIDES
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


def main():
    torch.manual_seed(0)
    encoder = LabelEncoder("abcdefghijklmnopqrstuvwxyz")
    data = LineImages(["letters", "written", "byhand", "onpaper"], encoder)
    trainer = Trainer(Reader(len(encoder)), len(encoder))
    for epoch in range(3):
        for images, targets in DataLoader(data, batch_size=2):
            loss = trainer.step(images, targets)
    print("loss %.3f" % loss)


if __name__ == "__main__":
    main()
