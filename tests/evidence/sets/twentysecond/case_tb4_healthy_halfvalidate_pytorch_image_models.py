"""
title: validation runs the model in bfloat16 and counts hits in whole numbers
expect: clean
thread: https://github.com/huggingface/pytorch-image-models/pull/2397
measured: images 613 Acc@1 99.5 Acc@5 100.0 loss 0.09
suspect: line 67 - innocent: classes are far apart in the logits, and the averages are kept outside of bfloat16

Expectation, written first: model and inputs are brought to bfloat16 for validation, which rounds the logits by a part
in a few hundred. Few leads are that small, so the hits stay the same; the loss is taken from float32 logits
and the meters sum Python numbers weighted by the batch size. The reported accuracy is the float32 one.
"""
import torch
import torch.nn.functional as F
from torch import nn


class AverageMeter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, val, n=1):
        self.sum += val * n
        self.count += n

    avg = property(lambda self: self.sum / self.count)


def accuracy(output, target, topk=(1,)):
    maxk = max(topk)
    _, pred = output.topk(maxk, 1, True, True)
    correct = pred.t().eq(target.reshape(1, -1).expand_as(pred.t()))
    return [correct[: k].reshape(-1).float().sum(0) * 100.0 / target.size(0) for k in topk]


class PrototypeNet(nn.Module):
    def __init__(self, num_classes=20, dim=32):
        super().__init__()
        self.stem = nn.Conv2d(3, dim, 4, stride=4)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, x):
        return self.head(F.gelu(self.stem(x)).mean((2, 3)))


class SyntheticImages:
    def __init__(self, num_classes, gen):
        self.templates = 2 * torch.randn(num_classes, 3, 16, 16, generator=gen)
        self.gen = gen

    def batch(self, n):
        labels = torch.randint(0, len(self.templates), (n,), generator=self.gen)
        return self.templates[labels] + 2.5 * torch.randn(n, 3, 16, 16, generator=self.gen), labels


def train(model, data, steps=80):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        x, y = data.batch(64)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def validate(model, data, batches=10, model_dtype=torch.bfloat16):
    model = model.eval().to(model_dtype)
    losses, top1, top5 = AverageMeter(), AverageMeter(), AverageMeter()
    for index in range(batches):
        x, y = data.batch(64 if index else 37)
        output = model(x.to(next(model.parameters()).dtype)).float()
        acc1, acc5 = accuracy(output, y, topk=(1, 5))
        losses.update(F.cross_entropy(output, y).item(), x.size(0))
        top1.update(acc1.item(), x.size(0))
        top5.update(acc5.item(), x.size(0))
    return losses, top1, top5


def main():
    torch.manual_seed(0)
    data = SyntheticImages(20, torch.Generator().manual_seed(1))
    model = PrototypeNet()
    train(model, data)
    losses, top1, top5 = validate(model, data)
    print(f"images {losses.count} Acc@1 {top1.avg:.1f} Acc@5 {top5.avg:.1f} loss {losses.avg:.2f}")


if __name__ == "__main__":
    main()
