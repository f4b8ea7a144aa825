"""
title: saturation augmentation paints bright artefacts because the blended image goes back to uint8 without clipping
expect: silent:wraparound|overflow|integer-overflow|downcast
thread: https://github.com/tensorpack/tensorpack/issues/614
measured: mean change 49.1 levels, pixels that jumped over half the range 17.1 %
widened: mean change 11.8 levels, pixels that jumped over half the range 0.0 % ; innocent: mean change 49.1 levels, pixels that jumped over half the range 17.1 %
suspect: 31 margin (the grey level is taken in fp16, where values up to 255 keep an eighth of a level)

Expectation, written first: the augmentor stretches each pixel away from its grey value; saturated colours leave the range 0..255 and
the cast back to uint8 wraps them to the other end, so vivid pixels turn dark and the reverse. The grey image in fp16 is within a
fraction of one level of the exact one.
"""
import torch


class ImageAugmentor:
    def _rand_range(self, low, high):
        return low + (high - low) * torch.rand((), generator=self.rng).item()


class Saturation(ImageAugmentor):
    def __init__(self, alpha=0.4, rgb=True, seed=0):
        self.alpha = alpha
        self.rng = torch.Generator().manual_seed(seed)
        self.coeffs = torch.tensor([0.299, 0.587, 0.114] if rgb else [0.114, 0.587, 0.299])

    def _get_augment_params(self, _):
        return 1 + self._rand_range(self.alpha / 2, self.alpha)

    def _augment(self, img, v):
        grey = (img.half() * self.coeffs.half()).sum(-1, keepdim=True)
        out = img.float() * v + grey.float() * (1 - v)
        out = torch.round(out).to(torch.int16)  # BORN
        return out.to(torch.uint8)  # BORN

    def augment(self, img):
        return self._augment(img, self._get_augment_params(img))


class Flip(ImageAugmentor):
    def augment(self, img):
        return img.flip(1)


class AugmentorList:
    def __init__(self, augmentors):
        self.augmentors = augmentors

    def augment(self, img):
        for aug in self.augmentors:
            img = aug.augment(img)
        return img


def vivid_photo(h=96, w=96):
    base = torch.rand(h // 8, w // 8, 3) ** 0.4
    base = torch.where(torch.rand(h // 8, w // 8, 1) < 0.3, base * torch.tensor([1.0, 0.15, 0.1]), base)
    img = base.repeat_interleave(8, 0).repeat_interleave(8, 1)
    return (img * 255).round().to(torch.uint8)


def main():
    torch.manual_seed(0)
    photo = vivid_photo()
    augs = AugmentorList([Flip(), Saturation(0.4, rgb=True)])
    out = augs.augment(photo)
    change = (out.float() - photo.flip(1).float()).abs()
    jumped = (change > 128).float().mean().item()
    print(f"mean change {change.mean():.1f} levels, pixels that jumped over half the range {100 * jumped:.1f} %")


if __name__ == "__main__":
    main()
