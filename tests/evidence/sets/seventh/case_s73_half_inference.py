"""
title: Half-precision inference of a keyword spotter differs in the fourth digit
expect: clean
thread: https://github.com/pytorch/pytorch/issues/175845

Expectation, written first.  Nothing is wrong.  The trained float32 model is
copied, cast to half and compared: the logits differ by about 1e-3 relative,
which is what a half gives, and the decisions are the same.  The evaluation
sums are float64.
"""
import copy

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class KeywordSpotter(nn.Module):
    def __init__(self, bands=20, classes=6):
        super().__init__()
        self.conv = nn.Conv1d(bands, 32, 5, padding=2)
        self.norm = nn.BatchNorm1d(32)
        self.lstm = nn.LSTM(32, 24, batch_first=True)
        self.head = nn.Linear(24, classes)

    def forward(self, x):
        h = self.norm(self.conv(x)).relu().transpose(1, 2)
        out, _ = self.lstm(h)
        return self.head(out.mean(1))


def spectrograms(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 6, (n,), generator=g)
    x = 0.4 * torch.randn(n, 20, 24, generator=g)
    for i, c in enumerate(y.tolist()):
        x[i, 3 * c:3 * c + 3, 4:20] += 1.0
    return x, y


def train(model, steps=25):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        x, y = spectrograms(48, step)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad(); loss.backward(); optimizer.step()


@torch.no_grad()
def compare(model):
    model.eval()
    fast = copy.deepcopy(model).half()
    error, scale, same, right, count = 0.0, 0.0, 0, 0, 0
    for seed in range(1000, 1004):
        x, y = spectrograms(50, seed)
        full, low = model(x), fast(x.half()).float()
        error += (full - low).double().pow(2).sum().item()
        scale += full.double().pow(2).sum().item()
        same += (full.argmax(1) == low.argmax(1)).sum().item()
        right += (low.argmax(1) == y).sum().item()
        count += y.numel()
    print(f"relative error {(error / scale) ** 0.5:.2e}, same decision {same}/{count}, accuracy {right / count:.3f}")


if __name__ == "__main__":
    net = KeywordSpotter()
    train(net)
    compare(net)
