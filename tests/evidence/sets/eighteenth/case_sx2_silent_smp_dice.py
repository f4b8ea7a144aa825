"""
title: dice loss on half logits stands at 1.0: the cardinality over the pixels is infinite
expect: silent:overflow|zero-gradient
thread: https://github.com/qubvel-org/segmentation_models.pytorch/issues/463
measured: dice loss 1.000 -> 1.000, gradient 0.0e+00
widened: dice loss 0.943 -> 0.151, gradient 5.4e-02
innocent: dice loss 1.000 -> 1.000, gradient 0.0e+00
suspect: line 61 harmless (the layer casts its input to float16 under autocast anyway)

Expectation, written first: the logits leave autocast in float16 and the loss sums output and target over all pixels in
that dtype; with half of 400x400 pixels at 0.5 the sum passes 65504 and is inf, while the intersection of the small object
stays finite, so the score is 0, the loss 1 and its gradient 0. The images in float16 change nothing.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def soft_dice_score(output, target, smooth=0.0, eps=1e-7, dims=None):
    intersection = torch.sum(output * target, dim=dims)
    cardinality = torch.sum(output + target, dim=dims)  # BORN
    return (2.0 * intersection + smooth) / (cardinality + smooth).clamp_min(eps)


class DiceLoss(nn.Module):
    def __init__(self, smooth=0.0, eps=1e-7):
        super().__init__()
        self.smooth, self.eps = smooth, eps

    def forward(self, y_pred, y_true):
        y_pred = F.logsigmoid(y_pred).exp()  # BORN
        bs = y_true.size(0)
        y_true = y_true.view(bs, 1, -1).type_as(y_pred)
        y_pred = y_pred.view(bs, 1, -1)
        scores = soft_dice_score(y_pred, y_true, self.smooth, self.eps, dims=(0, 2))
        return (1.0 - scores).mean()


class SegmentationHead(nn.Module):
    def __init__(self, channels=4):
        super().__init__()
        self.classifier = nn.Linear(channels, 1)

    def forward(self, features):
        return self.classifier(features)


def make_batch(size=400):
    mask = torch.zeros(1, size, size)
    mask[:, 200:270, 220:290] = 1.0
    features = torch.randn(1, size, size, 4) * 0.3
    features[..., 0] += mask * 2.0
    return features, mask


def main():
    torch.manual_seed(0)
    model = SegmentationHead()
    criterion = DiceLoss()
    images, masks = make_batch()
    images = images.to(torch.float16)
    history = []
    for epoch in range(8):
        with torch.autocast("cpu", dtype=torch.float16):
            logits = model(images)
        loss = criterion(logits, masks)  # BORN
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(20.0 * p.grad)
        history.append(loss.item())
    print(f"dice loss {history[0]:.3f} -> {history[-1]:.3f}, gradient {model.classifier.weight.grad.abs().max():.1e}")


main()
