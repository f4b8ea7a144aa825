"""
title: Conformal calibration keeps its scores in half precision and asks for their quantile
expect: collision
thread: https://github.com/pytorch/pytorch/issues/91156

Expectation, written first.  The calibration scores of a split conformal
predictor are stored in float16 to save memory; torch.quantile accepts float32
and float64 only.  BORN is the .half() when a batch's scores are appended; the
call of torch.quantile in threshold() is the line that raises.
"""
import math

import torch
from torch import nn

torch.manual_seed(1)
torch.set_num_threads(1)


class Classifier(nn.Module):
    def __init__(self, n_classes=6):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, n_classes))

    def forward(self, x):
        return self.body(x)


class SplitConformal:
    def __init__(self, model, alpha=0.1):
        self.model, self.alpha, self.scores = model, alpha, []

    @torch.no_grad()
    def calibrate(self, loader):
        self.model.eval()
        for x, y in loader:
            prob = self.model(x).softmax(-1)
            score = 1.0 - prob.gather(1, y[:, None]).squeeze(1)
            self.scores.append(score.half())  # BORN
        self.q_hat = self.threshold(torch.cat(self.scores))

    def threshold(self, scores):
        n = scores.numel()
        level = min(1.0, math.ceil((n + 1) * (1 - self.alpha)) / n)
        return torch.quantile(scores, level, interpolation="higher")  # COLLIDES

    @torch.no_grad()
    def predict_set(self, x):
        return (1.0 - self.model(x).softmax(-1)) <= self.q_hat


def make_split(n, seed):
    g = torch.Generator().manual_seed(seed)
    centers = torch.randn(6, 8, generator=torch.Generator().manual_seed(99)) * 1.5
    y = torch.randint(0, 6, (n,), generator=g)
    return torch.utils.data.TensorDataset(centers[y] + torch.randn(n, 8, generator=g), y)


def main():
    model = Classifier()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(3):
        for x, y in torch.utils.data.DataLoader(make_split(512, 0), batch_size=64):
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
    conformal = SplitConformal(model)
    conformal.calibrate(torch.utils.data.DataLoader(make_split(400, 1), batch_size=100))
    test = make_split(400, 2)
    x, y = test.tensors
    sets = conformal.predict_set(x)
    print(f"coverage = {sets[torch.arange(len(y)), y].float().mean():.3f}, size = {sets.sum(1).float().mean():.2f}")


if __name__ == "__main__":
    main()
