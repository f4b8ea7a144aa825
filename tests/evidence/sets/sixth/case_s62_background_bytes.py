"""
title: a camera's background is carried on in bytes, each frame's part is cut off again
expect: silent:lost-update|precision-loss|downcast|integer-truncation

After https://github.com/marcinz606/NegPy/pull/897, https://github.com/pytorch/vision/pull/9646 and https://github.com/LCAV/LenslessPiCam/pull/173.
Right: the background is carried on in float32.
"""
import torch

torch.manual_seed(714)


class Background:
    """A slow average of the frames."""

    def __init__(self, first, rate=0.04):
        self.image, self.rate = first, rate

    def update(self, frame):
        mixed = (1 - self.rate) * self.image.float() + self.rate * frame.float()
        self.image = mixed.to(frame.dtype)  # BORN
        return self.image


class Camera:
    """A street in the evening: it gets brighter as lamps go on, a car passes now and then."""

    def __init__(self, side=32):
        self.scene = torch.randint(40, 120, (side, side)).float()
        self.side = side

    def frame(self, t):
        light = self.scene + 30 * min(t / 150, 1.0)
        image = light + 1.5 * torch.randn(self.side, self.side)
        car = torch.zeros(self.side, self.side, dtype=torch.bool)
        if t % 10 == 0:
            left = int(torch.randint(0, self.side - 8, ()))
            car[12:18, left:left + 8] = True
            image[car] += 45
        return image.round().clamp(0, 255).to(torch.uint8), car, light


camera = Camera()
background = Background(camera.frame(1)[0])
inter, union, off = 0, 0, []
for t in range(1, 400):
    frame, car, light = camera.frame(t)
    image = background.update(frame)
    if t > 250:
        moving = (frame.float() - image.float()).abs() > 15
        inter, union = inter + (moving & car).sum().item(), union + (moving | car).sum().item()
        off.append((image.float() - light).mean().item())
print("background off by", round(sum(off) / len(off), 2), "grey levels, overlap with the cars", round(inter / union, 3))
