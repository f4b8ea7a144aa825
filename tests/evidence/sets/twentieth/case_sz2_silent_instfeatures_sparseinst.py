"""
title: SparseInst's instance features are summed over all pixels in float16 before they are normalised, and overflow
expect: silent:overflow|downcast
thread: https://github.com/hustvl/SparseInst/issues/88
measured: finite scores 0 of 80 ; mean score per class [nan, nan, nan, nan]
widened: finite scores 80 of 80 ; mean score per class [-14.179, -10.562, 24.291, -11.02]
innocent: finite scores 0 of 80 ; mean score per class [nan, nan, nan, nan]
suspect: 33 never used (every activation map sums far above the floor)

Expectation, written first: bmm of the activation maps with 4096 pixels of features gives sums around one hundred thousand, above 65504, so the half
precision result is inf and stays inf after the division by the normaliser; the class scores are NaN. The floor of the normaliser, 1e-6, is a
subnormal of float16 and looks like a division by zero, but the sums are in the hundreds and the floor is never reached.
"""
import torch
from torch import nn


class InstanceBranch(nn.Module):
    def __init__(self, dim=32, num_masks=10, num_classes=4):
        super().__init__()
        self.inst_convs = nn.Conv2d(dim, dim, 1)
        self.iam_conv = nn.Conv2d(dim, num_masks, 1)
        self.cls_score = nn.Linear(dim, num_classes)

    def forward(self, features):
        features = torch.relu(self.inst_convs(features))
        iam = self.iam_conv(features)
        iam_prob = iam.sigmoid()
        b, n = iam_prob.shape[:2]
        c = features.shape[1]
        iam_prob = iam_prob.view(b, n, -1)
        inst_features = torch.bmm(iam_prob, features.view(b, c, -1).permute(0, 2, 1))  # BORN
        floor = torch.tensor(1e-6, dtype=torch.float16)
        normalizer = iam_prob.sum(-1).clamp(min=floor)
        inst_features = inst_features / normalizer[:, :, None]
        return self.cls_score(inst_features)


class Backbone(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.conv = nn.Conv2d(3, dim, 3, padding=1)

    def forward(self, x):
        return self.conv(x)


class SparseInst(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.decoder = InstanceBranch()

    def forward(self, images):
        return self.decoder(self.backbone(images))


def build():
    torch.manual_seed(3)
    model = SparseInst()
    with torch.no_grad():
        model.decoder.inst_convs.bias.fill_(40.0)
        model.decoder.iam_conv.weight.mul_(0.02)
    return model.eval()


@torch.no_grad()
def main():
    model = build().half()  # BORN
    images = torch.randn(2, 3, 64, 64)
    dtype = model.decoder.cls_score.weight.dtype
    scores = model(images.to(dtype)).float()
    finite = torch.isfinite(scores)
    print(f"finite scores {int(finite.sum())} of {scores.numel()}")
    print("mean score per class", [round(v, 3) for v in scores.mean((0, 1)).tolist()])


main()
