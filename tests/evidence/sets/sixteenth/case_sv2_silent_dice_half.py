"""
title: the soft dice of a segmentation is summed in the float16 of the network's output
expect: silent:overflow|downcast
thread: https://github.com/qubvel-org/segmentation_models.pytorch/issues/463
measured: epoch 3 dice 0.781, epoch 9 dice 0.450, kept epoch 3
widened: epoch 3 dice 0.781, epoch 9 dice 0.932, kept epoch 9

Expectation, written first: an organ that fills an eighth of a 512 by 512 slice gives a sum of both masks above 65504,
the quotient is zero, and the epoch that finds large organs best is thrown away. The contours' weights are float16 as
well and hold ones and halves.
"""
import torch


class SoftDice:
    def __init__(self, smooth=1.0):
        self.smooth = smooth

    def __call__(self, output, target, weight):
        output, target = output.flatten(1), target.flatten(1).type_as(output)  # BORN
        weight = weight.flatten(1).to(output.dtype)
        intersection = (weight * output * target).sum(-1)
        cardinality = (weight * (output + target)).sum(-1)
        return (2 * intersection + self.smooth) / (cardinality + self.smooth)


class Slices:
    def __init__(self, gen, size=512):
        y, x = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
        self.x, self.y, self.gen = x, y, gen

    def draw(self, radius):
        shift = 0.1 * torch.randn(2, generator=self.gen)
        return (self.x - shift[0]).hypot(self.y - shift[1]) - radius

    def contour_weight(self, distance):
        return torch.where(distance.abs() < 0.02, 0.5, 1.0).half()


class Epoch:
    """a network that errs by a margin, differently for small and large organs"""

    def __init__(self, name, small, large):
        self.name, self.error = name, {0.18: small, 0.418: large}

    def predict(self, distance, radius):
        return torch.sigmoid(-(distance + self.error[radius]) * 80).half()  # BORN


def main():
    slices, dice = Slices(torch.Generator().manual_seed(15)), SoftDice()
    cases = [(r, slices.draw(r)) for r in (0.18, 0.418) for _ in range(4)]
    scores = {}
    for epoch in (Epoch("epoch 3", 0.01, 0.14), Epoch("epoch 9", 0.02, 0.016)):
        per_case = [dice(epoch.predict(d, r)[None], (d < 0)[None], slices.contour_weight(d)[None]) for r, d in cases]
        scores[epoch.name] = float(torch.cat(per_case).float().mean())
    best = max(scores, key=scores.get)
    print(", ".join(f"{k} dice {v:.3f}" for k, v in scores.items()) + f", kept {best}")


main()
