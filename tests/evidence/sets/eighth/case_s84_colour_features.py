"""
title: fitting a colour correction on products of camera channels
expect: silent:overflow|precision-loss|downcast
thread: https://github.com/mahmoudnafifi/Deep_White_Balance/issues/15
measured: mean colour error 2.934 levels
widened: mean colour error 0.002 levels
fix_at: 39

Expectation, written first: the feature function multiplies the channels as uint8,
so the products wrap modulo 256 and the fit is poor. BORN is the uint8 of the sampled pixels;
float32 there gives a good fit. The half copy of the fitted matrix is only a small rounding.
"""
import torch


class Scene:
    def __init__(self, pixels, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.pixels = pixels

    def sample(self):
        raw = torch.randint(10, 246, (self.pixels, 3), generator=self.gen)
        return raw.to(torch.uint8)  # BORN


def camera_to_reference(raw):
    """The true response, slightly bent."""
    x = raw.double()
    mixed = torch.stack([x[:, 0] * 0.9 + x[:, 1] * 0.1,
                         x[:, 1] * 0.8 + x[:, 2] * 0.2,
                         x[:, 2] * 0.7 + x[:, 0] * 0.3], dim=1)
    return mixed + 0.0012 * mixed * mixed.flip(1)


class Kernel:
    """Linear terms and products of the channels."""

    def __call__(self, raw):
        r, g, b = raw.unbind(1)
        columns = [r, g, b, r * g, r * b, g * b, r * r, g * g, b * b]
        return torch.stack([c.float() for c in columns] + [torch.ones(len(raw))], dim=1)


class Correction:
    def __init__(self, kernel):
        self.kernel = kernel

    def fit(self, raw, wanted):
        feats = self.kernel(raw).double()
        scale = feats.abs().amax(0)
        solution = torch.linalg.lstsq(feats / scale, wanted).solution
        self.scale = scale.float()
        self.matrix = solution.float().half().float()
        return self

    def apply(self, raw):
        return (self.kernel(raw) / self.scale) @ self.matrix


def main():
    scene = Scene(4000, seed=1)
    train = scene.sample()
    model = Correction(Kernel()).fit(train, camera_to_reference(train))
    test = scene.sample()
    error = (model.apply(test).double() - camera_to_reference(test)).abs().mean().item()
    print("mean colour error %.3f levels" % error)


if __name__ == "__main__":
    main()
