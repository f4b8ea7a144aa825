"""Pictures, masks and prompts of the training set."""
import numpy as np
import torch


def picture(generator, size=16):
    pixels = generator.integers(0, 256, (3, size, size))
    return torch.from_numpy(pixels / 127.5 - 1.0)


def mask(generator, size=8):
    drawn = torch.from_numpy(generator.integers(0, 256, (1, size, size), dtype=np.uint8))
    return drawn / 255


def batch(generator, count=2):
    return {
        "pictures": torch.stack([picture(generator) for _ in range(count)]),
        "masks": torch.stack([mask(generator) for _ in range(count)]),
        "ids": torch.from_numpy(generator.integers(0, 60, (count, 6))),
        "styles": torch.tensor(generator.integers(0, 4, count), dtype=torch.int32),
        "scores": torch.as_tensor(generator.uniform(0, 1, count)),
    }
