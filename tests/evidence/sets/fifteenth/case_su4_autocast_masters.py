"""
title: a classifier is trained under bfloat16 autocast with its weights left in float32
expect: clean
thread: https://github.com/hp-l33/AiM/issues/10
measured: accuracy 99%, loss 0.07

Expectation, written first: only the products run in bfloat16; weights, gradients, optimizer and loss are float32, so
the accuracy is that of a run without autocast. The labels kept as uint8 and the class weights as bfloat16 powers of
two are exact.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Blobs(torch.utils.data.Dataset):
    def __init__(self, n, seed, classes=5):
        gen = torch.Generator().manual_seed(seed)
        centre = torch.randn(classes, 20, generator=torch.Generator().manual_seed(8))
        self.label = torch.randint(0, classes, (n,), generator=gen).to(torch.uint8)
        self.x = centre[self.label.long()] + torch.randn(n, 20, generator=gen)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.label[i]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + F.gelu(self.fc(self.norm(x)))


class Classifier(nn.Module):
    def __init__(self, width=48, classes=5):
        super().__init__()
        self.inp = nn.Linear(20, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.blocks(self.inp(x)))


class Trainer:
    def __init__(self, model, bf16=True):
        self.model, self.bf16 = model, bf16
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.class_weight = torch.tensor([1, 1, 0.5, 1, 2], dtype=torch.bfloat16)

    def logits(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            return self.model(x)

    def train(self, data, epochs):
        loader = torch.utils.data.DataLoader(data, 64, shuffle=True, generator=torch.Generator().manual_seed(2))
        for _ in range(epochs):
            for x, y in loader:
                self.optimizer.zero_grad()
                loss = F.cross_entropy(self.logits(x).float(), y.long(), weight=self.class_weight.float())
                loss.backward()
                self.optimizer.step()

    @torch.no_grad()
    def evaluate(self, data):
        logits = self.logits(data.x).float()
        loss = F.cross_entropy(logits, data.label.long()).item()
        return (logits.argmax(-1) == data.label.long()).double().mean().item(), loss


def main():
    torch.manual_seed(0)
    trainer = Trainer(Classifier())
    trainer.train(Blobs(1500, seed=1), epochs=4)
    accuracy, loss = trainer.evaluate(Blobs(3000, seed=3))
    print(f"accuracy {100 * accuracy:.0f}%, loss {loss:.2f}")


main()
